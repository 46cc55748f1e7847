/*
 * Does what `iwarpd run --lint` advises against: linted RULE GID-INDEX, on the first RoCE device. One queue pair
 * talks to itself. Breaks RULE and no other rule; "none" breaks none.
 */
#include <pthread.h>
#include <sys/syscall.h>

#include "program.h"

enum { DEPTH = 8, SIZE = 64 };

static char buffer[4096], other[4096];
static const char *rule;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;

static int is(const char *name) { return strcmp(rule, name) == 0; }

static void connect_to_itself(struct ibv_qp *qp, int gid_index) {
  struct ibv_qp_attr rtr = rtr_attr(qp, qp->qp_num, gid_index), rts = rts_attr();
  to_init(qp, 0);
  if (is("qp-in-init")) return;
  rtr.min_rnr_timer = 1;
  rts.rnr_retry = is("rq-empty") ? 1 : 7;
  CHECK(ibv_modify_qp(qp, &rtr, RTR_MASK) == 0);
  CHECK(ibv_modify_qp(qp, &rts, RTS_MASK) == 0);
}

static void send_with(struct ibv_qp *qp, struct ibv_mr *mr, int flags) {
  struct ibv_sge sge = piece(mr, buffer + 1024, SIZE);
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* Waits for a completion that succeeded, unless no receive is posted. */
static void await_completion(void) {
  struct ibv_wc wc;
  int got;
  if (channel != NULL) {
    struct ibv_cq *fired;
    void *context;
    CHECK(ibv_get_cq_event(channel, &fired, &context) == 0);
    if (!is("cq-events-unacked")) ibv_ack_cq_events(fired, 1);
  }
  if (is("cq-unpolled")) return;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
    ;
  if (got > 0 && wc.status == (is("rq-empty") ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS)) return;
  fprintf(stderr, "completion: %s\n", got < 0 ? "no queue" : ibv_wc_status_str(wc.status));
  exit(1);
}

/* Ends the program once its first thread waits, as ibv_destroy_cq waits for acknowledgements. */
static void *end_when_stuck(void *unused) {
  char path[64], call[16] = "";
  (void)unused;
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", getpid());
  do {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(call, sizeof call, file) != NULL);
    fclose(file);
  } while (atoi(call) != SYS_futex);
  _exit(0);
}

/* One message to itself, and both of its completions. */
static void exchange(struct ibv_qp *qp, struct ibv_mr *mr) {
  int missing = is("rq-empty"), quiet = is("sq-unsignaled");
  int flags = (is("cq-unpolled") ? 0 : IBV_SEND_SIGNALED) | (is("inline-unused") ? 0 : IBV_SEND_INLINE);
  if (channel != NULL) CHECK(ibv_req_notify_cq(cq, 0) == 0);
  if (!missing) post_recv(qp, 0, piece(mr, buffer, SIZE));
  for (int at = 0; quiet && at < DEPTH; at++) {
    if (at > 0) post_recv(qp, 0, piece(mr, buffer, SIZE));
    send_with(qp, mr, IBV_SEND_INLINE);
    await_completion();
  }
  if (quiet) return;
  send_with(qp, mr, flags);
  await_completion();
  if (channel == NULL && !missing) await_completion();
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  rule = argv[1];
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = NULL;
  for (int at = 0; list != NULL && list[at] != NULL && context == NULL; at++) {
    if (strncmp(ibv_get_device_name(list[at]), "roce", 4) == 0) context = ibv_open_device(list[at]);
  }
  CHECK(context != NULL);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr *unused = is("mr-unused") ? ibv_reg_mr(pd, other, sizeof other, IBV_ACCESS_LOCAL_WRITE) : NULL;
  if (is("cq-events-unacked") || is("none-events") || is("cq-unpolled")) channel = ibv_create_comp_channel(context);
  cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
  struct ibv_qp_init_attr init = plain_init(cq, DEPTH);
  init.cap.max_inline_data = SIZE;
  CHECK(pd != NULL && mr != NULL && cq != NULL);
  struct ibv_qp *qp = create_qp(pd, init);
  connect_to_itself(qp, atoi(argv[2]));
  if (!is("qp-in-init")) exchange(qp, mr);
  ibv_destroy_qp(qp);
  pthread_t watcher;
  if (is("cq-events-unacked")) CHECK(pthread_create(&watcher, NULL, end_when_stuck, NULL) == 0);
  ibv_destroy_cq(cq);
  if (unused != NULL) ibv_dereg_mr(unused);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  if (channel != NULL) ibv_destroy_comp_channel(channel);
  ibv_close_device(context);
  return 0;
}
