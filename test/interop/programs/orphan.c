/* A verbs program that polls when its daemon ends: argument 1 is the device, 2 a GID index, or -1 for
 * a device whose queue pairs only rdma_cm connects. Work that nothing can complete is outstanding;
 * all of it must complete in error, and nothing may hang. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SENDS 5
#define RECEIVES 3

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      printf("not true: %s\n", #condition);                                                        \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static struct ibv_context *open_named(const char *name) {
  struct ibv_device **devices = ibv_get_device_list(NULL);
  for (int index = 0; devices != NULL && devices[index] != NULL; index++) {
    if (strcmp(ibv_get_device_name(devices[index]), name) == 0) return ibv_open_device(devices[index]);
  }
  return NULL;
}

static struct ibv_qp *make_pair(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_qp_init_attr wanted = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
      .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
  return ibv_create_qp(pd, &wanted);
}

static void connect_to(struct ibv_qp *qp, const struct ibv_qp *peer, union ibv_gid gid, int index) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer->qp_num,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .grh = {.dgid = gid, .sgid_index = (uint8_t)index, .hop_limit = 1}}};
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  /* The peer has no receives; the sends wait for one for ever. */
  attr = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

int main(int argc, char **argv) {
  static char bytes[64];
  CHECK(argc == 3);
  int index = atoi(argv[2]);
  struct ibv_context *context = open_named(argv[1]);
  CHECK(context != NULL);
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_mr *mr = ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
  CHECK(pd != NULL && mr != NULL && cq != NULL);
  struct ibv_qp *qp = make_pair(pd, cq);
  struct ibv_qp *silent = make_pair(pd, cq);
  CHECK(qp != NULL && silent != NULL);
  unsigned sends = 0;
  if (index >= 0) {
    union ibv_gid gid;
    CHECK(ibv_query_gid(context, 1, index, &gid) == 0);
    connect_to(qp, silent, gid, index);
    connect_to(silent, qp, gid, index);
    sends = SENDS;
  }
  struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = sizeof bytes, .lkey = mr->lkey};
  for (unsigned count = 0; count < RECEIVES; count++) {
    struct ibv_recv_wr receive = {.wr_id = 200 + count, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp, &receive, &bad) == 0);
  }
  for (unsigned count = 0; count < sends; count++) {
    struct ibv_send_wr send = {
        .wr_id = 100 + count, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(qp, &send, &bad) == 0);
  }
  printf("ready\n");
  fflush(stdout);
  unsigned sent = 0;
  unsigned received = 0;
  while (sent < sends || received < RECEIVES) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(cq, 1, &wc);
    CHECK(found >= 0);
    if (found == 0) {
      usleep(1000);
      continue;
    }
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.qp_num == qp->qp_num);
    if (wc.wr_id >= 200) CHECK(wc.wr_id == 200 + received++);
    else CHECK(wc.wr_id == 100 + sent++);
  }
  struct ibv_async_event event;
  do {
    CHECK(ibv_get_async_event(context, &event) == 0);
    ibv_ack_async_event(&event);
  } while (event.event_type != IBV_EVENT_DEVICE_FATAL);
  struct ibv_port_attr port;
  CHECK(ibv_query_port(context, 1, &port) != 0);
  ibv_destroy_qp(qp);
  ibv_destroy_qp(silent);
  ibv_destroy_cq(cq);
  ibv_dereg_mr(mr);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  printf("flushed\n");
  return 0;
}
