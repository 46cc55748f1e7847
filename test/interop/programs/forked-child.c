/*
 * The rights of a forked child to its parent's objects: forked-child ADDRESS PORT alive|gone|streams|chroot
 *
 * Three processes. A peer listens and prints what it receives. A parent connects to it, opens
 * objects of every kind, and forks; with "gone" it then ends. The child tries each call on what it
 * inherited, with bytes of its own where bytes are sent, and prints the errno of each. A parent
 * that is alive sends once more afterwards. A line "NAME: RESULT" is printed for each step.
 *
 * With "streams" a thread of the parent sends numbers as fast as it can, while the parent forks
 * children that post on the same queue pair. The peer reports when it has all numbers, and prints
 * unexpected ones. With "chroot", the parent changes its root first, so it has no /proc.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <sys/wait.h>

#include "program.h"

#define TEXT_BYTES 32
#define PATIENCE_MS 60000
#define DEPTH 16
#define LAST_TEXT "parent at last"
#define NUMBERS 2000
#define CHILDREN 30
#define WINDOW 8
/* A receive, with its own slot, for every message that the peer may get. */
#define RECEIVES (NUMBERS + DEPTH)
#define MEMORY_BYTES ((RECEIVES * TEXT_BYTES + 4095) / 4096 * 4096)

static void say(const char *name, const char *result) {
  printf("%s: %s\n", name, result);
  fflush(stdout);
}

static void say_errno(const char *name, int error) {
  say(name, error == 0 ? "ok" : strerrorname_np(error < 0 ? -error : error));
}

/* The outcome of an expression that is an errno, or -1 with errno. */
#define TRY(name, expression) \
  do { \
    errno = 0; \
    int result_ = (expression); \
    say_errno(name, result_ == -1 ? errno : result_); \
  } while (0)

/* The outcome of a call that returns an object. */
#define TRY_OBJECT(name, expression) TRY(name, (expression) != NULL ? 0 : -1)

struct end {
  struct rdma_event_channel *events;
  struct rdma_cm_id *id;
  struct ibv_pd *pd;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_mr *mr;
  char *text;
};

static struct sockaddr_in address = {.sin_family = AF_INET};

static void await(int fd) {
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  CHECK(poll(&entry, 1, PATIENCE_MS) == 1);
}

static void expect_event(struct end *end, enum rdma_cm_event_type type) {
  struct rdma_cm_event *event;
  await(end->events->fd);
  CHECK(rdma_get_cm_event(end->events, &event) == 0);
  if (event->event != type) {
    printf("%s (%d)\n", rdma_event_str(event->event), event->status);
    fail(__LINE__, rdma_event_str(type));
  }
  rdma_ack_cm_event(event);
}

static void make_queues(struct end *end, uint32_t receives) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  end->pd = MADE(ibv_alloc_pd(end->id->verbs));
  end->text = memset(MADE(aligned_alloc(4096, MEMORY_BYTES)), 0, MEMORY_BYTES);
  end->mr = MADE(ibv_reg_mr(end->pd, end->text, MEMORY_BYTES, access));
  end->channel = MADE(ibv_create_comp_channel(end->id->verbs));
  end->cq = MADE(ibv_create_cq(end->id->verbs, (int)receives + DEPTH, NULL, end->channel, 0));
  struct ibv_qp_init_attr init = plain_init(end->cq, DEPTH);
  init.cap.max_recv_wr = receives;
  CHECK(rdma_create_qp(end->id, end->pd, &init) == 0);
}

static char *slot_of(struct end *end, uint64_t slot) { return end->text + slot * TEXT_BYTES; }

static int post_text(struct end *end, uint64_t slot, const char *text) {
  strncpy(slot_of(end, slot), text, TEXT_BYTES);
  return post_send(end->id->qp, IBV_WR_SEND, piece(end->mr, slot_of(end, slot), TEXT_BYTES), NULL, 0);
}

static int post_receive(struct end *end, uint64_t slot) {
  struct ibv_sge sge = piece(end->mr, slot_of(end, slot), TEXT_BYTES);
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
  return ibv_post_recv(end->id->qp, &wr, &bad);
}

/* Prints each text that arrives, until the connection ends. */
static void serve(int ready) {
  struct end end = {0};
  struct rdma_cm_id *listener;
  struct rdma_cm_event *event;
  struct ibv_wc wc;
  int numbers = 0;
  end.events = MADE(rdma_create_event_channel());
  CHECK(rdma_create_id(end.events, &listener, NULL, RDMA_PS_TCP) == 0);
  CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
  CHECK(rdma_listen(listener, 1) == 0);
  CHECK(write(ready, "r", 1) == 1);
  close(ready);
  await(end.events->fd);
  CHECK(rdma_get_cm_event(end.events, &event) == 0);
  CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
  end.id = event->id;
  make_queues(&end, RECEIVES);
  for (uint64_t slot = 0; slot < RECEIVES; slot++) CHECK(post_receive(&end, slot) == 0);
  struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
  CHECK(rdma_accept(end.id, &parameters) == 0);
  rdma_ack_cm_event(event);
  for (bool connected = true; connected;) {
    struct pollfd entry = {.fd = end.events->fd, .events = POLLIN};
    if (poll(&entry, 1, 10) == 1) {
      CHECK(rdma_get_cm_event(end.events, &event) == 0);
      connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
      rdma_ack_cm_event(event);
    }
    while (ibv_poll_cq(end.cq, 1, &wc) == 1) {
      if (wc.status != IBV_WC_SUCCESS) continue;
      const char *text = slot_of(&end, wc.wr_id);
      if (*text >= '0' && *text <= '9' && atoi(text) == numbers) {
        if (++numbers == NUMBERS) say("peer got", "all numbers in order");
        continue;
      }
      say("peer got", text);
      if (strcmp(text, LAST_TEXT) == 0) CHECK(rdma_disconnect(end.id) == 0);
    }
  }
  _exit(0);
}

static void connect_end(struct end *end) {
  struct rdma_conn_param parameters = {
      .responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
  end->events = MADE(rdma_create_event_channel());
  CHECK(rdma_create_id(end->events, &end->id, NULL, RDMA_PS_TCP) == 0);
  CHECK(rdma_resolve_addr(end->id, NULL, (struct sockaddr *)&address, 5000) == 0);
  expect_event(end, RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(rdma_resolve_route(end->id, 5000) == 0);
  expect_event(end, RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_queues(end, DEPTH);
  CHECK(rdma_connect(end->id, &parameters) == 0);
  expect_event(end, RDMA_CM_EVENT_ESTABLISHED);
}

static void set_nonblocking(int fd) {
  CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
}

/* Objects that the child may destroy. NULL if the device has none of the kind. */
struct spares {
  struct ibv_pd *pd;
  struct ibv_mr *mr;
  struct ibv_mw *mw;
  struct ibv_ah *ah;
  struct ibv_ah_attr to;
  struct ibv_cq *cq;
  struct ibv_srq *srq;
  struct ibv_qp *qp;
  struct ibv_comp_channel *channel;
  struct rdma_cm_id *id;
  char *memory;
};

static bool is_roce(const struct end *end) {
  return end->id->verbs->device->transport_type == IBV_TRANSPORT_IB;
}

static void make_spares(struct end *end, struct spares *spares) {
  struct ibv_context *verbs = end->id->verbs;
  struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
  spares->memory = MADE(aligned_alloc(4096, 4096));
  spares->pd = MADE(ibv_alloc_pd(verbs));
  spares->mr = MADE(ibv_reg_mr(end->pd, spares->memory, 4096, IBV_ACCESS_LOCAL_WRITE));
  spares->cq = MADE(ibv_create_cq(verbs, 8, NULL, NULL, 0));
  spares->srq = MADE(ibv_create_srq(end->pd, &shared));
  spares->qp = create_qp(end->pd, plain_init(end->cq, 4));
  spares->channel = MADE(ibv_create_comp_channel(verbs));
  CHECK(rdma_create_id(end->events, &spares->id, NULL, RDMA_PS_TCP) == 0);
  if (!is_roce(end)) return;
  spares->to = rtr_attr(spares->qp, 0, 1).ah_attr;
  spares->mw = MADE(ibv_alloc_mw(end->pd, IBV_MW_TYPE_2));
  spares->ah = MADE(ibv_create_ah(end->pd, &spares->to));
}

static void try_queries(struct end *end, struct spares *spares) {
  struct ibv_context *verbs = end->id->verbs;
  struct ibv_device_attr device;
  struct ibv_port_attr port;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
  struct ibv_qp_init_attr init;
  struct ibv_srq_attr srq = {.srq_limit = 1};
  TRY("ibv_query_device", ibv_query_device(verbs, &device));
  TRY("ibv_query_port", ibv_query_port(verbs, 1, &port));
  TRY("ibv_query_qp", ibv_query_qp(end->id->qp, &attr, IBV_QP_STATE, &init));
  TRY("ibv_query_srq", ibv_query_srq(spares->srq, &srq));
  attr.qp_state = IBV_QPS_ERR;
  TRY("ibv_modify_qp", ibv_modify_qp(spares->qp, &attr, IBV_QP_STATE));
  srq.srq_limit = 1;
  TRY("ibv_modify_srq", ibv_modify_srq(spares->srq, &srq, IBV_SRQ_LIMIT));
}

static void try_events(struct end *end) {
  struct ibv_cq *cq;
  struct ibv_wc wc[DEPTH];
  void *context;
  struct ibv_async_event event;
  struct rdma_cm_event *cm_event;
  TRY("ibv_get_cq_event", ibv_get_cq_event(end->channel, &cq, &context));
  int count = ibv_poll_cq(end->cq, DEPTH, wc);
  say("ibv_poll_cq", count == 1 && wc[0].status == IBV_WC_SUCCESS ? "the parent's completion" : "other");
  TRY("ibv_get_async_event", ibv_get_async_event(end->id->verbs, &event));
  TRY("rdma_get_cm_event", rdma_get_cm_event(end->events, &cm_event));
  TRY("ibv_req_notify_cq", ibv_req_notify_cq(end->cq, 0));
}

static void try_creations(struct end *end, struct spares *spares) {
  struct ibv_context *verbs = end->id->verbs;
  struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
  struct ibv_qp_init_attr init = plain_init(end->cq, 4);
  struct rdma_cm_id *id;
  TRY_OBJECT("ibv_alloc_pd", ibv_alloc_pd(verbs));
  TRY_OBJECT("ibv_reg_mr", ibv_reg_mr(end->pd, spares->memory, 4096, IBV_ACCESS_LOCAL_WRITE));
  TRY_OBJECT("ibv_create_comp_channel", ibv_create_comp_channel(verbs));
  TRY_OBJECT("ibv_create_cq", ibv_create_cq(verbs, 8, NULL, NULL, 0));
  TRY_OBJECT("ibv_create_cq with a channel", ibv_create_cq(verbs, 8, NULL, spares->channel, 0));
  TRY_OBJECT("ibv_create_srq", ibv_create_srq(end->pd, &shared));
  TRY_OBJECT("ibv_create_qp", ibv_create_qp(end->pd, &init));
  TRY("rdma_create_id", rdma_create_id(end->events, &id, NULL, RDMA_PS_TCP));
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = address.sin_addr};
  TRY("rdma_bind_addr", rdma_bind_addr(spares->id, (struct sockaddr *)&any));
  if (!is_roce(end)) return;
  TRY_OBJECT("ibv_create_ah", ibv_create_ah(end->pd, &spares->to));
  TRY_OBJECT("ibv_alloc_mw", ibv_alloc_mw(end->pd, IBV_MW_TYPE_2));
  TRY("ibv_resize_cq", ibv_resize_cq(spares->cq, 16));
}

static void try_posts(struct end *end, struct spares *spares) {
  struct ibv_sge sge = piece(spares->mr, spares->memory, 8);
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  TRY("ibv_post_recv", post_receive(end, 8));
  TRY("ibv_post_srq_recv", ibv_post_srq_recv(spares->srq, &wr, &bad));
  TRY("ibv_post_send", post_text(end, 0, "child"));
  TRY("ibv_post_send again", post_text(end, 1, "child again"));
}

static void try_destructions(struct end *end, struct spares *spares) {
  TRY("ibv_destroy_qp", ibv_destroy_qp(spares->qp));
  TRY("ibv_destroy_srq", ibv_destroy_srq(spares->srq));
  TRY("ibv_destroy_cq", ibv_destroy_cq(spares->cq));
  TRY("ibv_dereg_mr", ibv_dereg_mr(spares->mr));
  TRY("ibv_dealloc_pd", ibv_dealloc_pd(spares->pd));
  if (is_roce(end)) {
    TRY("ibv_destroy_ah", ibv_destroy_ah(spares->ah));
    TRY("ibv_dealloc_mw", ibv_dealloc_mw(spares->mw));
  }
  TRY("ibv_destroy_comp_channel", ibv_destroy_comp_channel(spares->channel));
  TRY("rdma_destroy_id", rdma_destroy_id(spares->id));
}

/* A message of the child, from itself to itself. */
static void exchange_again(struct ibv_qp *qp, struct ibv_mr *mr, char *memory) {
  struct ibv_sge from = piece(mr, memory, TEXT_BYTES);
  connect_qp(qp, qp->qp_num, 1, 0);
  strcpy(memory, "child again");
  post_recv(qp, 0, piece(mr, memory + TEXT_BYTES, TEXT_BYTES));
  TRY("again: ibv_post_send", post_send(qp, IBV_WR_SEND, from, NULL, 0));
  good_completion(qp->send_cq);
  good_completion(qp->send_cq);
  say("again: got", memory + TEXT_BYTES);
}

/* A device of the child's own. */
static void try_again(struct end *end) {
  static char memory[4096];
  struct ibv_context *verbs = ibv_open_device(end->id->verbs->device);
  TRY_OBJECT("again: ibv_open_device", verbs);
  if (verbs == NULL) return;
  struct ibv_pd *pd = MADE(ibv_alloc_pd(verbs));
  struct ibv_mr *mr = MADE(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  struct ibv_cq *cq = MADE(ibv_create_cq(verbs, 8, NULL, NULL, 0));
  struct ibv_qp *qp = create_qp(pd, plain_init(cq, 4));
  if (is_roce(end)) exchange_again(qp, mr, memory);
  struct rdma_event_channel *events = MADE(rdma_create_event_channel());
  struct rdma_cm_id *id;
  CHECK(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
  struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = address.sin_addr};
  CHECK(rdma_bind_addr(id, (struct sockaddr *)&any) == 0);
  CHECK(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(events);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  TRY("again: ibv_close_device", ibv_close_device(verbs));
}

static void run_child(struct end *end, struct spares *spares, int parents_end) {
  char byte;
  /* If the parent is to end, waits for that: end of file. */
  if (parents_end >= 0) CHECK(read(parents_end, &byte, 1) == 0);
  try_queries(end, spares);
  try_events(end);
  try_creations(end, spares);
  try_posts(end, spares);
  try_destructions(end, spares);
  try_again(end);
  _exit(0);
}

/* Held while a request is posted and during fork(): a provider's own lock would stay held in a child. */
static pthread_mutex_t posting = PTHREAD_MUTEX_INITIALIZER;

static void *stream(void *argument) {
  struct end *end = argument;
  struct ibv_wc wc;
  int posted = 0, done = 0;
  while (done < NUMBERS) {
    char text[TEXT_BYTES];
    snprintf(text, sizeof text, "%d", posted);
    pthread_mutex_lock(&posting);
    bool posts = posted < NUMBERS && posted - done < WINDOW;
    if (posts) CHECK(post_text(end, (uint64_t)(posted++ % DEPTH), text) == 0);
    pthread_mutex_unlock(&posting);
    while (ibv_poll_cq(end->cq, 1, &wc) == 1) {
      CHECK(wc.status == IBV_WC_SUCCESS);
      done++;
    }
  }
  return NULL;
}

static void run_streaming_parent(bool changes_root) {
  struct end end = {0};
  pthread_t thread;
  connect_end(&end);
  if (changes_root) CHECK(chroot("/sys") == 0 && chdir("/") == 0 && access("/proc", F_OK) != 0);
  CHECK(pthread_create(&thread, NULL, stream, &end) == 0);
  for (int child = 0; child < CHILDREN; child++) {
    int status;
    pthread_mutex_lock(&posting);
    pid_t process = fork();
    if (process == 0) {
      for (int round = 0; round < 2 * DEPTH; round++) post_text(&end, DEPTH, "child");
      _exit(0);
    }
    pthread_mutex_unlock(&posting);
    CHECK(waitpid(process, &status, 0) == process && status == 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(post_text(&end, 0, LAST_TEXT) == 0);
  expect_event(&end, RDMA_CM_EVENT_DISCONNECTED);
  rdma_disconnect(end.id);
  _exit(0);
}

static void run_parent(bool stays, int ended) {
  struct end end = {0};
  struct spares spares = {0};
  int gone[2];
  connect_end(&end);
  CHECK(post_text(&end, 0, "parent") == 0);
  good_completion(end.cq);
  make_spares(&end, &spares);
  CHECK(ibv_req_notify_cq(end.cq, 0) == 0);
  CHECK(post_text(&end, 1, "parent, seen by the child") == 0);
  await(end.channel->fd);
  set_nonblocking(end.channel->fd);
  set_nonblocking(end.events->fd);
  set_nonblocking(end.id->verbs->async_fd);
  CHECK(pipe(gone) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(gone[1]);
    run_child(&end, &spares, stays ? -1 : gone[0]);
  }
  close(ended);
  if (!stays) _exit(0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  int error = post_text(&end, 2, LAST_TEXT);
  say_errno("parent: ibv_post_send", error);
  if (error == 0) expect_event(&end, RDMA_CM_EVENT_DISCONNECTED);
  rdma_disconnect(end.id);
  _exit(0);
}

int main(int count, char **words) {
  if (count != 4) return 2;
  CHECK(inet_pton(AF_INET, words[1], &address.sin_addr) == 1);
  address.sin_port = htons((uint16_t)atoi(words[2]));
  bool stays = strcmp(words[3], "alive") == 0;
  int ready[2], ended[2], status;
  char byte;
  CHECK(pipe(ready) == 0 && pipe(ended) == 0);
  pid_t peer = fork();
  if (peer == 0) {
    close(ended[1]);
    serve(ready[1]);
  }
  close(ready[1]);
  CHECK(read(ready[0], &byte, 1) == 1);
  pid_t parent = fork();
  bool changes_root = strcmp(words[3], "chroot") == 0;
  bool streams = changes_root || strcmp(words[3], "streams") == 0;
  if (parent == 0 && streams) run_streaming_parent(changes_root);
  if (parent == 0) run_parent(stays, ended[1]);
  close(ended[1]);
  CHECK(waitpid(parent, &status, 0) == parent && status == 0);
  /* End of file once the child, which also has the other end, is gone. */
  CHECK(read(ended[0], &byte, 1) == 0);
  CHECK(waitpid(peer, &status, 0) == peer && status == 0);
  return 0;
}
