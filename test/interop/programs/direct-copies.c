/*
 * Long messages between two processes: direct-copies DEVICE (RoCE) HOW. With "order" the child sends Writes,
 * each followed by a short one that the parent polls for, and Sends; the parent checks every byte. With
 * "stop-dereg", "kill-dereg" and "stop-destroy" the child is stopped or killed while it writes; the parent ends
 * the region or the queue pair, reuses the memory, and checks that nothing is written there once the child continues.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "program.h"

#define BYTES (1u << 20)
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)
#define GID_INDEX 1
#define MESSAGES 300
#define ROUNDS 25
#define DEPTH 8
#define CANARY 0xee

struct end {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t address;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
/* Two halves of `BYTES`, then a page for short messages. */
static uint8_t *memory;
static struct ibv_mr *region;
static struct end peer;
/* Shared by both processes: messages that the parent has checked. */
static atomic_int *checked;

static const uint32_t sizes[] = {32767, 32768, 32769, 40000, 65535, 65536, 65537, 98304, 131073, BYTES};
#define SIZES (sizeof sizes / sizeof *sizes)

static void set_up(const char *device, int wire) {
  context = open_device(device);
  pd = MADE(ibv_alloc_pd(context));
  cq = MADE(ibv_create_cq(context, 64, NULL, NULL, 0));
  memory = mmap(NULL, 2 * BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memset(memory, 0, 2 * BYTES + 4096);
  region = MADE(ibv_reg_mr(pd, memory, 2 * BYTES + 4096, ACCESS));
  qp = create_qp(pd, plain_init(cq, 32));
  struct end own = {.qpn = qp->qp_num, .rkey = region->rkey, .address = (uintptr_t)memory};
  CHECK(write(wire, &own, sizeof own) == sizeof own);
  CHECK(read(wire, &peer, sizeof peer) == sizeof peer);
  connect_qp(qp, peer.qpn, GID_INDEX, ACCESS);
  char ready = 0;
  CHECK(write(wire, &ready, 1) == 1 && read(wire, &ready, 1) == 1);
}

static bool is_served(void) {
  static char maps[1 << 20];
  FILE *file = MADE(fopen("/proc/self/maps", "r"));
  size_t length = fread(maps, 1, sizeof maps - 1, file);
  fclose(file);
  maps[length] = '\0';
  return strstr(maps, "iwarpd-copies") != NULL;
}

static void fill(uint8_t *bytes, uint32_t length, uint32_t number) {
  for (uint32_t at = 0; at < length; at++) bytes[at] = (uint8_t)(number * 37 + at * 11 + (at >> 8));
}

static void expect(const uint8_t *bytes, uint32_t length, uint32_t number) {
  for (uint32_t at = 0; at < length; at++) {
    uint8_t wanted = (uint8_t)(number * 37 + at * 11 + (at >> 8));
    if (bytes[at] == wanted) continue;
    printf("message %u of %u bytes: byte %u is %u, not %u\n", number, length, at, bytes[at], wanted);
    fflush(stdout);
    _exit(1);
  }
}

static void post(enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length, bool signalled) {
  struct ibv_sge sge = piece(region, memory + offset, length);
  struct ibv_send_wr wr = {.opcode = opcode,
                           .send_flags = signalled ? IBV_SEND_SIGNALED : 0,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .wr.rdma = {.remote_addr = peer.address + offset, .rkey = peer.rkey}},
                     *bad;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* The number of the newest message, after its data. */
static volatile uint32_t *flag(void) { return (volatile uint32_t *)(memory + 2 * BYTES); }

static void send_in_order(void) {
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    uint32_t length = sizes[number % SIZES];
    uint32_t half = number % 2 * BYTES;
    while (atomic_load(checked) + 1 < (int)number) sched_yield();
    fill(memory + half, length, number);
    *flag() = number;
    /* In two messages, now and then. */
    uint32_t first = number % 3 == 0 ? length / 2 : length;
    post(IBV_WR_RDMA_WRITE, half, first, false);
    if (first < length) post(IBV_WR_RDMA_WRITE, half + first, length - first, false);
    post(IBV_WR_RDMA_WRITE, 2 * BYTES, sizeof number, true);
    good_completion(cq);
  }
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    uint32_t half = number % 2 * BYTES;
    while (atomic_load(checked) < MESSAGES) sched_yield();
    fill(memory + half, sizes[number % SIZES], number);
    post(IBV_WR_SEND, half, sizes[number % SIZES], true);
    good_completion(cq);
  }
}

static void receive_in_order(void) {
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    while (*flag() < number) sched_yield();
    expect(memory + number % 2 * BYTES, sizes[number % SIZES], number);
    atomic_store(checked, (int)number);
  }
  puts("writes are in order");
  post_recv(qp, 1, piece(region, memory + BYTES, BYTES));
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    struct ibv_wc wc = good_completion(cq);
    CHECK(wc.byte_len == sizes[number % SIZES]);
    if (number < MESSAGES) post_recv(qp, number + 1, piece(region, memory + (number + 1) % 2 * BYTES, BYTES));
    expect(memory + number % 2 * BYTES, wc.byte_len, number);
  }
  puts("sends are whole");
}

static _Noreturn void write_for_ever(void) {
  int posted = 0;
  for (uint32_t number = 0;; number++) {
    post(IBV_WR_RDMA_WRITE, number % 16 * 65536, 65536, true);
    if (++posted < DEPTH) continue;
    struct ibv_wc wc = next_completion(cq);
    posted--;
    if (wc.status != IBV_WC_SUCCESS) for (;;) pause();
  }
}

static void *continue_later(void *child) {
  usleep(60 * 1000);
  kill(*(pid_t *)child, SIGCONT);
  return NULL;
}

/* Returns whether the verb had to wait. */
static bool interrupt(pid_t child, const char *how, uint32_t *seed) {
  pthread_t thread;
  bool kills = strncmp(how, "kill", 4) == 0;
  bool destroys = strcmp(how, "stop-destroy") == 0;
  while (*(volatile uint8_t *)memory == 0) sched_yield();
  usleep(next_random(seed) % 3000);
  CHECK(kill(child, kills ? SIGKILL : SIGSTOP) == 0);
  if (!kills) {
    CHECK(waitpid(child, NULL, WUNTRACED) == child);
    CHECK(pthread_create(&thread, NULL, continue_later, &child) == 0);
  }
  int64_t start = now_ns();
  CHECK((destroys ? ibv_destroy_qp(qp) : ibv_dereg_mr(region)) == 0);
  bool waited = now_ns() - start > SECOND_NS / 25;
  memset(memory, CANARY, BYTES);
  if (!kills) CHECK(pthread_join(thread, NULL) == 0);
  usleep(20 * 1000);
  for (uint32_t at = 0; at < BYTES; at++) CHECK(memory[at] == CANARY);
  if (destroys) CHECK(ibv_dereg_mr(region) == 0);
  else CHECK(ibv_destroy_qp(qp) == 0);
  return waited;
}

int main(int count, char **words) {
  CHECK(count == 3);
  const char *how = words[2];
  bool order = strcmp(how, "order") == 0;
  uint32_t seed = (uint32_t)getpid();
  int waited = 0;
  title = how;
  checked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(checked != MAP_FAILED);
  for (int round = 0; round < (order ? 1 : ROUNDS); round++) {
    int wires[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, wires) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    set_up(words[1], wires[child == 0]);
    if (child == 0) {
      memset(memory, 1, BYTES);
      if (!order) write_for_ever();
      send_in_order();
      if (is_served()) puts("an agent copies");
      fflush(stdout);
      _exit(0);
    }
    if (order) {
      int status;
      receive_in_order();
      fflush(stdout);
      CHECK(waitpid(child, &status, 0) == child && status == 0);
      return 0;
    }
    waited += interrupt(child, how, &seed);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    munmap(memory, 2 * BYTES + 4096);
    close(wires[0]);
    close(wires[1]);
  }
  printf("nothing is written later\n");
  fprintf(stderr, "%d of %d had to wait\n", waited, ROUNDS);
  return 0;
}
