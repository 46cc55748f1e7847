/*
 * A child whose agent copies long Writes into memory of its parent: copying-agents DEVICE (RoCE) HOW. With
 * - "requests" the child also uses memory that only the agent reaches, while copies wait without a pause;
 * - "numbers" the child also replaces descriptors of any number by one that has hung up;
 * - "freeze-dereg" and "freeze-destroy" the child is stopped within a copy, until the caller of this program continues
 *   it; the parent ends the region or the queue pair meanwhile;
 * - "death" the caller kills the daemon within a copy, while others wait, and then sends SIGUSR1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lent-writes.h"

/* Further queue pairs for long Writes, and how many of each are under way, in chains. */
#define STREAMS 3
#define AHEAD 32
#define CHAIN 8
/* The parts of memory that they change, which are the first half. */
#define PARTS (BYTES / LONG)
/* How long a long Write takes, at least, where the parent's memory is slow. */
#define COPY_US 1000

/* Identifies a request for which the agent is needed, among the numbers of streams. */
#define REQUEST STREAMS
#define REQUESTS 50
/* How many chains may complete before it. */
#define CHAINS_MAX 50

#define DELAY_US 50
#define LOOKS 3000
#define FIRST_NUMBER 1024
#define NUMBERS 64

static struct ibv_qp *streams[STREAMS];

static void connect_streams(int wire) {
  uint32_t own[STREAMS], others[STREAMS];
  for (int at = 0; at < STREAMS; at++) {
    streams[at] = create_qp(pd, plain_init(cq, AHEAD));
    own[at] = streams[at]->qp_num;
  }
  CHECK(write(wire, own, sizeof own) == sizeof own);
  CHECK(read(wire, others, sizeof others) == sizeof others);
  for (int at = 0; at < STREAMS; at++) connect_qp(streams[at], others[at], GID_INDEX, ACCESS);
}

static void tell(int wire) { CHECK(write(wire, "", 1) == 1); }

static void await(int wire) {
  char byte;
  CHECK(read(wire, &byte, 1) == 1);
}

/* Long Writes posted at once: the daemon may copy the first itself. Each changes another part than the one before. */
static void post_stream(uint64_t which) {
  static uint32_t posted[STREAMS];
  struct ibv_sge sges[CHAIN];
  struct ibv_send_wr requests[CHAIN], *bad;
  for (int at = 0; at < CHAIN; at++) {
    uint32_t offset = posted[which]++ % PARTS * LONG;
    sges[at] = piece(region, memory + offset, LONG);
    requests[at] = (struct ibv_send_wr){
        .wr_id = which,
        .next = at < CHAIN - 1 ? &requests[at + 1] : NULL,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = at < CHAIN - 1 ? 0 : IBV_SEND_SIGNALED,
        .sg_list = &sges[at],
        .num_sge = 1,
        .wr.rdma = {.remote_addr = peer.address + offset, .rkey = peer.rkey}};
  }
  CHECK(ibv_post_send(streams[which], requests, &bad) == 0);
}

static void post_streams(void) {
  while (!is_served()) usleep(1000);
  for (int number = 0; number < STREAMS * AHEAD / CHAIN; number++) post_stream(number % STREAMS);
}

/* Each of the long Writes waits a while for memory of the parent. */
static void *answer_slowly(void *fd) {
  for (;;) {
    long which = (await_fault(*(int *)fd) - memory) / LONG;
    usleep(COPY_US);
    for (long at = 0; at < PARTS; at++) {
      if (at != which) CHECK(madvise(memory + at * LONG, LONG, MADV_DONTNEED) == 0);
    }
    resolve(*(int *)fd, memory + which * LONG);
  }
  return NULL;
}

static int succeed(pid_t child, const char *text) {
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  puts(text);
  return 0;
}

/* The daemon leaves memory that it registers from now on to the agent: it looks for such descriptors once a second,
 * and then refuses atomics. */
static void be_slow(void) {
  static uint64_t value;
  struct ibv_mr *mr;
  CHECK(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY) >= 0);
  while ((mr = ibv_reg_mr(other_pd, &value, sizeof value, ACCESS)) != NULL) {
    CHECK(ibv_dereg_mr(mr) == 0);
    usleep(10 * 1000);
  }
}

static void post_request(struct ibv_mr *mr, uint64_t *value, enum ibv_wr_opcode opcode) {
  struct ibv_sge sge = piece(mr, value, sizeof *value);
  struct ibv_send_wr wr = {.wr_id = REQUEST,
                           .opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .wr.rdma = {.remote_addr = peer.address + 2 * BYTES, .rkey = peer.rkey}},
                     *bad;
  CHECK(ibv_post_send(other, &wr, &bad) == 0);
}

/* The agent must read the bytes of a Write, and write those of a Read. */
static void request(int wire) {
  static uint64_t values[2];
  be_slow();
  struct ibv_mr *mr = MADE(ibv_reg_mr(other_pd, values, sizeof values, IBV_ACCESS_LOCAL_WRITE));
  await(wire);
  post_streams();
  for (uint64_t done = 0; done < REQUESTS; done++) {
    bool reads = done % 2 == 1;
    int chains = 0;
    if (!reads) values[0] = done;
    post_request(mr, &values[reads], reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
    for (uint64_t which; (which = good_completion(cq).wr_id) != REQUEST; chains++) {
      CHECK(chains < CHAINS_MAX);
      post_stream(which);
    }
    if (reads) CHECK(values[1] == values[0]);
  }
  CHECK(is_served());
}

static int serve_requests(pid_t child, int wire) {
  int fd = stall(memory, PARTS * LONG);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, answer_slowly, &fd) == 0);
  tell(wire);
  return succeed(child, "requests do not wait for copies");
}

/* Delays and counts the agent's looks at its connection, once it has read the number. */
static volatile bool delays;
static volatile int looks;

long syscall(long number, ...) {
  static long (*next)(long, ...);
  long words[6];
  va_list list;
  va_start(list, number);
  for (int at = 0; at < 6; at++) words[at] = va_arg(list, long);
  va_end(list);
  const struct timespec *limit = (const struct timespec *)words[2];
  bool waits = number != SYS_ppoll || limit == NULL || limit->tv_sec != 0 || limit->tv_nsec != 0;
  if (delays && !waits) {
    looks++;
    usleep(DELAY_US);
  }
  if (next == NULL) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

static void *replace_numbers(void *unused) {
  int ends[2];
  CHECK(pipe(ends) == 0 && close(ends[1]) == 0);
  for (int round = 0; delays; round++) {
    int number = FIRST_NUMBER + round % NUMBERS;
    CHECK(dup2(ends[0], number) == number && close(number) == 0);
  }
  return unused;
}

static void copy_beside_numbers(int wire) {
  pthread_t thread;
  (void)wire;
  post_streams();
  delays = true;
  CHECK(pthread_create(&thread, NULL, replace_numbers, NULL) == 0);
  while (looks < LOOKS && is_served()) post_stream(good_completion(cq).wr_id);
  delays = false;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(looks >= LOOKS && is_served());
}

static int outlast(pid_t child, int wire) {
  (void)wire;
  return succeed(child, "the agent still copies");
}

/* As in proc(5): 'T' if it is stopped. */
static char state_of(pid_t process) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
  FILE *file = MADE(fopen(path, "r"));
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = '\0';
  return strrchr(text, ')')[2];
}

static void be_frozen(int wire) {
  await(wire);
  post_to_stalled(LONG);
  /* Succeeds if the last Write, a short one, came before the end of what allowed it. */
  next_completion(cq);
  CHECK(ibv_dereg_mr(region) == 0 && ibv_destroy_qp(qp) == 0);
}

static int freeze(pid_t child, int wire) {
  int fd = stall(memory + LONG, LONG);
  tell(wire);
  await_fault(fd);
  CHECK(kill(child, SIGSTOP) == 0);
  /* Its agent cannot stop while it waits for memory. Once another thread has, the agent stops right after the copy. */
  while (state_of(child) != 'T') usleep(1000);
  resolve(fd, memory + LONG);
  CHECK(waitpid(child, NULL, WUNTRACED) == child);
  printf("frozen: %d\n", (int)child);
  fflush(stdout);
  if (strcmp(title, "freeze-dereg") == 0) CHECK(ibv_dereg_mr(region) == 0 && ibv_destroy_qp(qp) == 0);
  else CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(region) == 0);
  puts("answered");
  fflush(stdout);
  return succeed(child, "all processes survive");
}

/* The device's last event. */
static void await_death(void) {
  struct ibv_async_event event;
  CHECK(ibv_get_async_event(context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_DEVICE_FATAL);
  ibv_ack_async_event(&event);
}

static int changed_parts(void) {
  int changed = 0;
  for (int at = 0; at < PARTS; at++) changed += memory[at * LONG] != 0;
  return changed;
}

static void outlive_daemon(int wire) {
  await(wire);
  post_to_stalled(BYTES + LONG);
  await(wire);
  post_stream(0);
  while (orders_waiting() < CHAIN - 1) usleep(1000);
  tell(wire);
  await_death();
  struct ibv_wc wc = next_completion(cq);
  CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
  tell(wire);
  while (orders() != NULL) usleep(1000);
  /* The results do not matter. */
  ibv_destroy_qp(qp);
  ibv_dereg_mr(region);
}

static int outlive_daemon_too(pid_t child, int wire) {
  int fd = stall(memory + BYTES + LONG, LONG);
  tell(wire);
  await_fault(fd);
  tell(wire);
  await(wire);
  /* The daemon itself copies the first. */
  while (changed_parts() == 0) usleep(1000);
  puts("copies wait");
  fflush(stdout);
  await_death();
  sigset_t dead;
  int number;
  CHECK(sigemptyset(&dead) == 0 && sigaddset(&dead, SIGUSR1) == 0 && sigwait(&dead, &number) == 0);
  await(wire);
  resolve(fd, memory + BYTES + LONG);
  int result = succeed(child, "no copy begins after the daemon's death");
  CHECK(changed_parts() == 1);
  ibv_dereg_mr(region);
  ibv_destroy_qp(qp);
  return result;
}

static const struct {
  const char *how;
  void (*child)(int wire);
  int (*parent)(pid_t child, int wire);
  bool apart;
} cases[] = {
    {"requests", request, serve_requests, true},
    {"numbers", copy_beside_numbers, outlast, false},
    {"freeze-dereg", be_frozen, freeze, false},
    {"freeze-destroy", be_frozen, freeze, false},
    {"death", outlive_daemon, outlive_daemon_too, false},
};

int main(int count, char **words) {
  CHECK(count == 3);
  title = words[2];
  size_t at = 0;
  while (strcmp(cases[at].how, title) != 0) CHECK(++at < sizeof cases / sizeof *cases);
  int wires[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, wires) == 0);
  sigset_t dead;
  CHECK(sigemptyset(&dead) == 0 && sigaddset(&dead, SIGUSR1) == 0);
  CHECK(pthread_sigmask(SIG_BLOCK, &dead, NULL) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  int wire = wires[child == 0];
  if (child == 0) CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
  set_up(words[1], wire, false, cases[at].apart && child == 0);
  connect_streams(wire);
  if (child > 0) _exit(cases[at].parent(child, wire) != 0 || fflush(stdout) != 0);
  memset(memory, 1, BYTES);
  cases[at].child(wire);
  fflush(stdout);
  _exit(0);
}
