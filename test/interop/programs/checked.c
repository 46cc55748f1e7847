/*
 * A program without a fault, for checkers: a queue pair sends a message to another one of the same RoCE
 * device, whose receiver decides by the bytes that arrived. All memory is from malloc.
 *
 * usage: checked DEVICE [FAULT]
 *
 * FAULT is `overrun`, which reads a byte beyond the message's memory, or `leak`, which forgets it.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GID_INDEX 1
#define BYTES 64

static void check(int good, const char *what) {
  if (good) return;
  perror(what);
  exit(1);
}

static struct ibv_context *open_device(const char *name) {
  int count;
  struct ibv_device **list = ibv_get_device_list(&count);
  check(list != NULL, "ibv_get_device_list");
  struct ibv_context *context = NULL;
  for (int index = 0; index < count; index++)
    if (strcmp(ibv_get_device_name(list[index]), name) == 0) context = ibv_open_device(list[index]);
  ibv_free_device_list(list);
  check(context != NULL, name);
  return context;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1,
  };
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  check(qp != NULL, "ibv_create_qp");
  return qp;
}

static void connect_qp(struct ibv_qp *qp, const struct ibv_qp *peer, const union ibv_gid *gid) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  struct ibv_qp_attr ready = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer->qp_num,
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .grh = {.dgid = *gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
  };
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7};
  int first = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  int second = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  int third = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
              IBV_QP_MAX_QP_RD_ATOMIC;
  check(ibv_modify_qp(qp, &init, first) == 0, "INIT");
  check(ibv_modify_qp(qp, &ready, second) == 0, "RTR");
  check(ibv_modify_qp(qp, &send, third) == 0, "RTS");
}

static struct ibv_mr *allocate(struct ibv_pd *pd) {
  char *memory = malloc(BYTES);
  check(memory != NULL, "malloc");
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
  check(mr != NULL, "ibv_reg_mr");
  return mr;
}

static void transfer(struct ibv_qp *from, struct ibv_mr *out, struct ibv_qp *to, struct ibv_mr *in) {
  struct ibv_sge source = {.addr = (uintptr_t)out->addr, .length = BYTES, .lkey = out->lkey};
  struct ibv_sge target = {.addr = (uintptr_t)in->addr, .length = BYTES, .lkey = in->lkey};
  struct ibv_recv_wr receive = {.sg_list = &target, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  check(ibv_post_recv(to, &receive, &bad_receive) == 0, "ibv_post_recv");
  check(ibv_post_send(from, &send, &bad_send) == 0, "ibv_post_send");
  for (int done = 0; done < 2;) {
    struct ibv_wc wc;
    int count = ibv_poll_cq(from->send_cq, 1, &wc);
    check(count >= 0, "ibv_poll_cq");
    if (count == 0) continue;
    check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
    done++;
  }
}

int main(int count, char **words) {
  const char *fault = count > 2 ? words[2] : "";
  struct ibv_context *context = open_device(count > 1 ? words[1] : "roce0");
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  union ibv_gid gid;
  check(pd != NULL && cq != NULL, "objects");
  check(ibv_query_gid(context, 1, GID_INDEX, &gid) == 0, "ibv_query_gid");
  struct ibv_qp *near = create_qp(pd, cq), *far = create_qp(pd, cq);
  connect_qp(near, far, &gid);
  connect_qp(far, near, &gid);
  struct ibv_mr *out = allocate(pd), *in = allocate(pd);
  char *sent = out->addr, *received = in->addr;
  memset(sent, 'x', BYTES);
  transfer(near, out, far, in);
  int wrong = 0;
  for (int index = 0; index < BYTES; index++)
    if (received[index] != 'x') wrong++;
  if (strcmp(fault, "overrun") == 0 && ((volatile char *)received)[BYTES] == 'x') wrong++;
  printf("%d bytes are wrong\n", wrong);
  ibv_destroy_qp(near);
  ibv_destroy_qp(far);
  ibv_dereg_mr(out);
  ibv_dereg_mr(in);
  free(sent);
  if (strcmp(fault, "leak") != 0) free(received);
  received = NULL;
  in = NULL;
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(context);
  return wrong != 0;
}
