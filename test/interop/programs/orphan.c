/* A verbs program that polls when its daemon ends: argument 1 is the device, 2 a GID index, or -1 for
 * a device whose queue pairs only rdma_cm connects. Work that nothing can complete is outstanding;
 * all of it must complete in error, and nothing may hang. */
#include "program.h"

#define SENDS 5
#define RECEIVES 3

int main(int argc, char **argv) {
  static char bytes[64];
  CHECK(argc == 3);
  int index = atoi(argv[2]);
  struct ibv_context *context = open_device(argv[1]);
  struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
  struct ibv_mr *mr = MADE(ibv_reg_mr(pd, bytes, sizeof bytes, IBV_ACCESS_LOCAL_WRITE));
  struct ibv_cq *cq = MADE(ibv_create_cq(context, 64, NULL, NULL, 0));
  struct ibv_qp_init_attr init = plain_init(cq, 16);
  init.sq_sig_all = 1;
  struct ibv_qp *qp = create_qp(pd, init);
  struct ibv_qp *silent = create_qp(pd, init);
  unsigned sends = 0;
  if (index >= 0) {
    /* The peer has no receives; the sends wait for one forever. */
    connect_qp(qp, silent->qp_num, index, 0);
    connect_qp(silent, qp->qp_num, index, 0);
    sends = SENDS;
  }
  struct ibv_sge sge = piece(mr, bytes, sizeof bytes);
  for (unsigned count = 0; count < RECEIVES; count++) post_recv(qp, 200 + count, sge);
  for (unsigned count = 0; count < sends; count++) {
    struct ibv_send_wr send = {
        .wr_id = 100 + count, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(qp, &send, &bad) == 0);
  }
  printf("ready\n");
  fflush(stdout);
  unsigned sent = 0, received = 0;
  while (sent < sends || received < RECEIVES) {
    struct ibv_wc wc = next_completion(cq);
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
