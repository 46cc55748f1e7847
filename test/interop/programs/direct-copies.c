/*
 * Long messages between two processes: direct-copies DEVICE HOW [ADDRESS], with the ADDRESS of an iWARP device. With
 * - "order" the child sends Writes, each followed by a short one that the parent polls for, and Sends; the parent
 *   checks every byte;
 * - "stop-dereg", "kill-dereg", "stop-destroy" and "stop-rights" the child is stopped or killed while it writes; the
 *   parent ends the region, the queue pair or its rights, reuses the memory, and checks that nothing is written there
 *   once the child continues;
 * - "stop-error" it moves the queue pair to ERR;
 * - "kill-send" the child is killed while it sends: the parent's queue pair does not fail;
 * - "atomics" the child's other queue pair does atomics on the region that it writes to without a pause;
 * - "stall-source" and "stall-target" the child's memory does not answer when it is copied; "stall-unmap" is the
 *   latter, and the child unmaps it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lent-writes.h"

#define MESSAGES 300
#define ROUNDS 25
#define DEPTH 8
#define CANARY 0xee
#define ATOMICS 300
/* Identifies an atomic. */
#define ATOMIC 1

/* Shared by both processes: messages that the parent has checked. */
static atomic_int *checked;

static const uint32_t sizes[] = {32767, 32768, 32769, 40000, 65535, 65536, 65537, 98304, 131073, BYTES};
#define SIZES (sizeof sizes / sizeof *sizes)

/* Connections of an iWARP device: the listener, or that of `qp` before its context is used. */
static struct rdma_event_channel *channel;
static struct rdma_cm_id *first_id;

static struct rdma_cm_id *await_event(enum rdma_cm_event_type type) {
  struct rdma_cm_event *event;
  CHECK(rdma_get_cm_event(channel, &event) == 0 && event->event == type);
  struct rdma_cm_id *id = event->id;
  CHECK(rdma_ack_cm_event(event) == 0);
  return id;
}

static struct sockaddr_in address_of(const char *text, uint16_t port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = port};
  CHECK(inet_pton(AF_INET, text, &address.sin_addr) == 1);
  return address;
}

static struct rdma_cm_id *resolved(struct sockaddr_in *listener) {
  struct rdma_cm_id *id;
  CHECK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
  CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)listener, 1000) == 0);
  await_event(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(rdma_resolve_route(id, 1000) == 0);
  await_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

/* Listens, or resolves the peer's address: now the context is known. */
static void find_context(const char *text, int wire, bool listens) {
  uint16_t port = 0;
  channel = MADE(rdma_create_event_channel());
  if (!listens) {
    CHECK(read(wire, &port, sizeof port) == sizeof port);
    struct sockaddr_in address = address_of(text, port);
    first_id = resolved(&address);
  } else {
    struct sockaddr_in address = address_of(text, 0);
    CHECK(rdma_create_id(channel, &first_id, NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_bind_addr(first_id, (struct sockaddr *)&address) == 0 && rdma_listen(first_id, 2) == 0);
    port = rdma_get_src_port(first_id);
    CHECK(write(wire, &port, sizeof port) == sizeof port);
  }
  context = MADE(first_id->verbs);
}

static struct ibv_qp *connected_qp(struct ibv_qp_init_attr init, bool listens) {
  struct rdma_conn_param none = {.initiator_depth = 1, .responder_resources = 1};
  struct rdma_cm_id *id = first_id;
  if (listens) id = await_event(RDMA_CM_EVENT_CONNECT_REQUEST);
  else if (qp != NULL) id = resolved((struct sockaddr_in *)rdma_get_peer_addr(first_id));
  CHECK(rdma_create_qp(id, pd, &init) == 0);
  CHECK((listens ? rdma_accept(id, &none) : rdma_connect(id, &none)) == 0);
  await_event(RDMA_CM_EVENT_ESTABLISHED);
  return id->qp;
}

static void set_up_with_cm(const char *device, const char *address, int wire, bool listens, bool receives) {
  find_context(address, wire, listens);
  register_memory(device, false);
  qp = connected_qp(plain_init(cq, RECEIVES), listens);
  other = connected_qp(plain_init(cq, 32), listens);
  exchange_ends(wire);
  await_peer(wire, receives);
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

static void send_in_order(void) {
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    uint32_t length = sizes[number % SIZES];
    uint32_t half = number % 2 * BYTES;
    while (atomic_load(checked) + 1 < (int)number) sched_yield();
    fill(memory + half, length, number);
    *flag() = number;
    if (number % 3 == 1) {
      post_chain(half, length);
      good_completion(cq);
      continue;
    }
    /* In two messages, now and then. */
    uint32_t first = number % 3 == 0 ? length / 2 : length;
    post(IBV_WR_RDMA_WRITE, half, first, false);
    if (first < length) post(IBV_WR_RDMA_WRITE, half + first, length - first, false);
    post(IBV_WR_RDMA_WRITE, 2 * BYTES, sizeof number, true);
    good_completion(cq);
  }
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    uint32_t half = number % 2 * BYTES;
    while (atomic_load(checked) < MESSAGES + (int)number) sched_yield();
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
  atomic_store(checked, MESSAGES + 1);
  for (uint32_t number = 1; number <= MESSAGES; number++) {
    struct ibv_wc wc = good_completion(cq);
    CHECK(wc.byte_len == sizes[number % SIZES]);
    if (number < MESSAGES) post_recv(qp, number + 1, piece(region, memory + (number + 1) % 2 * BYTES, BYTES));
    atomic_store(checked, MESSAGES + 1 + (int)number);
    expect(memory + number % 2 * BYTES, wc.byte_len, number);
  }
  puts("sends are whole");
}

static _Noreturn void write_for_ever(void) {
  int posted = 0;
  for (uint32_t number = 0;; number++) {
    post(IBV_WR_RDMA_WRITE, number % 16 * LONG, LONG, true);
    if (++posted < DEPTH) continue;
    struct ibv_wc wc = next_completion(cq);
    posted--;
    if (wc.status != IBV_WC_SUCCESS) for (;;) pause();
  }
}

static _Noreturn void send_for_ever(void) {
  for (uint32_t number = 0;; number++) {
    post(IBV_WR_SEND, number % 16 * LONG, LONG, true);
    if (number >= DEPTH) good_completion(cq);
  }
}

static void post_atomic(void) {
  struct ibv_sge sge = piece(region, memory + 2 * BYTES + 128, 8);
  struct ibv_send_wr wr = {.wr_id = ATOMIC,
                           .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                           .send_flags = IBV_SEND_SIGNALED,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .wr.atomic = {.remote_addr = peer.address + 2 * BYTES + 64,
                                         .rkey = peer.rkey,
                                         .compare_add = 1}},
                     *bad;
  CHECK(ibv_post_send(other, &wr, &bad) == 0);
}

static void add_beside_writes(void) {
  for (int number = 0; number < DEPTH; number++) post(IBV_WR_RDMA_WRITE, number * LONG, LONG, true);
  post_atomic();
  for (int added = 0, number = 0; added < ATOMICS; number++) {
    if (good_completion(cq).wr_id != ATOMIC) {
      post(IBV_WR_RDMA_WRITE, number % 16 * LONG, LONG, true);
      continue;
    }
    CHECK(*(uint64_t *)(memory + 2 * BYTES + 128) == (uint64_t)added);
    if (++added < ATOMICS) post_atomic();
  }
}

/* The child's memory does not answer while it is copied by an agent. The daemon ends the child alone. */
static void outlive(pid_t child, int wire, bool sends) {
  int status;
  char ready;
  CHECK(read(wire, &ready, 1) == 1);
  if (sends) post_to_stalled(LONG);
  else while (*(volatile uint8_t *)(memory + LONG - 64) != 2) sched_yield();
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  if (!sends) CHECK(*flag() == 0);
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  if (!sends) CHECK(attr.qp_state == IBV_QPS_RTS);
  CHECK(ibv_dereg_mr(region) == 0 && ibv_destroy_qp(qp) == 0);
  puts("only the other program ends");
}

/* All receives complete, and none in an error of its own. */
static void lose_sender(pid_t child, uint32_t *seed) {
  struct ibv_wc wc = good_completion(cq);
  int64_t end = now_ns() + next_random(seed) % 400 * 1000;
  while (now_ns() < end) continue;
  CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
  int completed = 1;
  for (int64_t late = now_ns() + SECOND_NS / 50; now_ns() < late;) {
    if (ibv_poll_cq(cq, 1, &wc) == 0) continue;
    CHECK(wc.status == IBV_WC_SUCCESS);
    completed++;
  }
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_RTS);
  to_state(qp, IBV_QPS_ERR);
  for (; completed < RECEIVES; completed++) {
    wc = next_completion(cq);
    CHECK(wc.status == IBV_WC_SUCCESS || wc.status == IBV_WC_WR_FLUSH_ERR);
  }
  CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(region) == 0);
}

static void *continue_later(void *child) {
  usleep(60 * 1000);
  /* Other commands do not wait for copies. */
  struct ibv_pd *unrelated = MADE(ibv_alloc_pd(beside));
  CHECK(ibv_dealloc_pd(unrelated) == 0);
  kill(*(pid_t *)child, SIGCONT);
  return NULL;
}

/* Returns whether the verb had to wait. */
static bool interrupt(pid_t child, const char *how, uint32_t *seed) {
  pthread_t thread;
  bool kills = strncmp(how, "kill", 4) == 0;
  bool destroys = strcmp(how, "stop-destroy") == 0;
  bool forbids = strcmp(how, "stop-rights") == 0;
  bool fails = strcmp(how, "stop-error") == 0;
  while (*(volatile uint8_t *)memory == 0) sched_yield();
  usleep(next_random(seed) % 3000);
  CHECK(kill(child, kills ? SIGKILL : SIGSTOP) == 0);
  if (!kills) {
    CHECK(waitpid(child, NULL, WUNTRACED) == child);
    CHECK(pthread_create(&thread, NULL, continue_later, &child) == 0);
  }
  int64_t start = now_ns();
  struct ibv_qp_attr none = {.qp_access_flags = 0};
  if (destroys) CHECK(ibv_destroy_qp(qp) == 0);
  else if (forbids) CHECK(ibv_modify_qp(qp, &none, IBV_QP_ACCESS_FLAGS) == 0);
  else if (fails) to_state(qp, IBV_QPS_ERR);
  else CHECK(ibv_dereg_mr(region) == 0);
  bool waited = now_ns() - start > SECOND_NS / 25;
  memset(memory, CANARY, BYTES);
  if (!kills) CHECK(pthread_join(thread, NULL) == 0);
  usleep(20 * 1000);
  for (uint32_t at = 0; at < BYTES; at++) CHECK(memory[at] == CANARY);
  if (!destroys) CHECK(ibv_destroy_qp(qp) == 0);
  if (destroys || forbids || fails) CHECK(ibv_dereg_mr(region) == 0);
  return waited;
}

int main(int count, char **words) {
  CHECK(count == 3 || count == 4);
  const char *how = words[2];
  bool order = strcmp(how, "order") == 0;
  bool atomics = strcmp(how, "atomics") == 0;
  bool stalls = strncmp(how, "stall", 5) == 0;
  const char *address = count == 4 ? words[3] : NULL;
  bool once = order || atomics || stalls;
  /* A child cannot use librdmacm once its parent has. */
  int rounds = once || address != NULL ? 1 : ROUNDS;
  bool sends = strcmp(how, "kill-send") == 0;
  uint32_t seed = (uint32_t)getpid();
  int waited = 0;
  title = how;
  checked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(checked != MAP_FAILED);
  for (int round = 0; round < rounds; round++) {
    int wires[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, wires) == 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    int wire = wires[child == 0];
    bool receives = sends && child > 0;
    if (address == NULL) set_up(words[1], wire, receives, false);
    else set_up_with_cm(words[1], address, wire, child > 0, receives);
    if (child == 0) {
      memset(memory, 1, BYTES);
      if (stalls) {
        stall(memory + LONG, LONG);
        CHECK(write(wires[1], how, 1) == 1);
        if (strcmp(how, "stall-source") == 0) post_to_stalled(LONG);
        if (strcmp(how, "stall-unmap") == 0) {
          while (*(volatile uint8_t *)(memory + LONG - 64) != 2) sched_yield();
          usleep(100 * 1000);
          CHECK(munmap(memory + LONG, LONG) == 0);
        }
        for (;;) pause();
      }
      if (sends) send_for_ever();
      if (!once) write_for_ever();
      if (order) send_in_order();
      if (atomics) add_beside_writes();
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
    if (atomics || stalls) {
      int status;
      if (stalls) outlive(child, wires[0], strcmp(how, "stall-source") != 0);
      else CHECK(waitpid(child, &status, 0) == child && status == 0);
      return 0;
    }
    if (sends) lose_sender(child, &seed);
    else waited += interrupt(child, how, &seed);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (address != NULL) break;
    CHECK(ibv_destroy_qp(other) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    context = NULL;
    CHECK(ibv_close_device(beside) == 0);
    munmap(memory, 2 * BYTES + 4096);
    close(wires[0]);
    close(wires[1]);
  }
  puts(sends ? "the receiver does not fail" : "nothing is written later");
  fprintf(stderr, "%d of %d had to wait\n", waited, rounds);
  return 0;
}
