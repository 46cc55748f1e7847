/*
 * What `iwarpd run --lint` advises against: linted RULE GID-INDEX, on the first RoCE device. One queue pair
 * talks to itself. Does all that RULE is about, and all else as it should be; RULE "none" does nothing wrong.
 */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH = 8, SIZE = 64 };

static char buffer[4096], other[4096];
static const char *rule;
static struct ibv_cq *cq;
static struct ibv_comp_channel *channel;

static int is(const char *name) { return strcmp(rule, name) == 0; }

static void check(int failed, const char *what) {
  if (!failed) return;
  perror(what);
  exit(1);
}

static void connect_to_itself(struct ibv_context *context, struct ibv_qp *qp, int gid_index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  check(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
  if (is("qp-in-init")) return;
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = qp->qp_num,
                              .max_dest_rd_atomic = 1,
                              .min_rnr_timer = 1,
                              .ah_attr = {.is_global = 1, .port_num = 1}};
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.grh.sgid_index = gid_index;
  check(ibv_query_gid(context, 1, gid_index, &attr.ah_attr.grh.dgid), "gid");
  check(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "RTR");
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = is("rq-empty") ? 1 : 7, .max_rd_atomic = 1};
  check(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC),
        "RTS");
}

static void post_receive(struct ibv_qp *qp, struct ibv_mr *mr) {
  struct ibv_sge sge = {(uintptr_t)buffer, SIZE, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  check(ibv_post_recv(qp, &wr, &bad), "post receive");
}

static void post_send(struct ibv_qp *qp, struct ibv_mr *mr, int flags) {
  struct ibv_sge sge = {(uintptr_t)buffer + 1024, SIZE, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
  check(ibv_post_send(qp, &wr, &bad), "post send");
}

/* Waits for a completion that succeeded, unless no receive is posted. */
static void await_completion(void) {
  struct ibv_wc wc;
  int got;
  if (channel != NULL) {
    struct ibv_cq *fired;
    void *context;
    check(ibv_get_cq_event(channel, &fired, &context), "event");
    if (!is("cq-events-unacked")) ibv_ack_cq_events(fired, 1);
  }
  if (is("cq-unpolled")) return;
  while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
    ;
  if (got > 0 && wc.status == (is("rq-empty") ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_SUCCESS)) return;
  fprintf(stderr, "completion: %s\n", got < 0 ? "no queue" : ibv_wc_status_str(wc.status));
  exit(1);
}

/* Ends the program once its first thread waits for another, as ibv_destroy_cq does for acknowledgements. */
static void *end_when_stuck(void *unused) {
  char path[64], call[16] = "";
  (void)unused;
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", getpid());
  do {
    FILE *file = fopen(path, "r");
    check(file == NULL || fgets(call, sizeof call, file) == NULL, path);
    fclose(file);
  } while (atoi(call) != SYS_futex);
  _exit(0);
}

/* One message to itself, and both of its completions. */
static void exchange(struct ibv_qp *qp, struct ibv_mr *mr) {
  int missing = is("rq-empty"), quiet = is("sq-unsignaled");
  int flags = (is("cq-unpolled") ? 0 : IBV_SEND_SIGNALED) | (is("inline-unused") ? 0 : IBV_SEND_INLINE);
  if (channel != NULL) check(ibv_req_notify_cq(cq, 0), "arm");
  if (!missing) post_receive(qp, mr);
  for (int at = 0; quiet && at < DEPTH; at++) {
    if (at > 0) post_receive(qp, mr);
    post_send(qp, mr, IBV_SEND_INLINE);
    await_completion();
  }
  if (quiet) return;
  post_send(qp, mr, flags);
  await_completion();
  if (channel == NULL && !missing) await_completion();
}

int main(int argc, char **argv) {
  check(argc != 3, "usage: linted RULE GID-INDEX");
  rule = argv[1];
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = NULL;
  for (int at = 0; list != NULL && list[at] != NULL && context == NULL; at++) {
    if (strncmp(ibv_get_device_name(list[at]), "roce", 4) == 0) context = ibv_open_device(list[at]);
  }
  check(context == NULL, "device");
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_mr *mr = ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_mr *unused = is("mr-unused") ? ibv_reg_mr(pd, other, sizeof other, IBV_ACCESS_LOCAL_WRITE) : NULL;
  if (is("cq-events-unacked") || is("none-events") || is("cq-unpolled")) channel = ibv_create_comp_channel(context);
  cq = ibv_create_cq(context, 4 * DEPTH, NULL, channel, 0);
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {DEPTH, DEPTH, 1, 1, SIZE},
  };
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  check(pd == NULL || mr == NULL || cq == NULL || qp == NULL, "objects");
  connect_to_itself(context, qp, atoi(argv[2]));
  if (!is("qp-in-init")) exchange(qp, mr);
  ibv_destroy_qp(qp);
  pthread_t watcher;
  if (is("cq-events-unacked")) check(pthread_create(&watcher, NULL, end_when_stuck, NULL), "thread");
  ibv_destroy_cq(cq);
  if (unused != NULL) ibv_dereg_mr(unused);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  if (channel != NULL) ibv_destroy_comp_channel(channel);
  ibv_close_device(context);
  return 0;
}
