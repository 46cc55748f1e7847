/*
 * A program without a fault, for checkers: a queue pair sends a message to another one of the same RoCE
 * device, whose receiver decides by the bytes that arrived. All memory is from malloc.
 *
 * usage: checked DEVICE [FAULT]
 *
 * FAULT is `overrun`, which reads a byte beyond the message's memory, or `leak`, which forgets it.
 */
#include "program.h"

#define GID_INDEX 1
#define BYTES 64

static struct ibv_mr *allocate(struct ibv_pd *pd) {
  char *memory = malloc(BYTES);
  CHECK(memory != NULL);
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL);
  return mr;
}

static void transfer(struct ibv_qp *from, struct ibv_mr *out, struct ibv_qp *to, struct ibv_mr *in) {
  struct ibv_sge source = {.addr = (uintptr_t)out->addr, .length = BYTES, .lkey = out->lkey};
  struct ibv_sge target = {.addr = (uintptr_t)in->addr, .length = BYTES, .lkey = in->lkey};
  struct ibv_recv_wr receive = {.sg_list = &target, .num_sge = 1}, *bad_receive;
  struct ibv_send_wr send = {.sg_list = &source, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_send;
  CHECK(ibv_post_recv(to, &receive, &bad_receive) == 0);
  CHECK(ibv_post_send(from, &send, &bad_send) == 0);
  for (int done = 0; done < 2;) {
    struct ibv_wc wc;
    int count = ibv_poll_cq(from->send_cq, 1, &wc);
    CHECK(count >= 0);
    if (count == 0) continue;
    CHECK(wc.status == IBV_WC_SUCCESS);
    done++;
  }
}

int main(int count, char **words) {
  const char *fault = count > 2 ? words[2] : "";
  struct ibv_context *context = open_device(count > 1 ? words[1] : "roce0");
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  CHECK(pd != NULL && cq != NULL);
  struct ibv_qp_init_attr init = plain_init(cq, 4);
  init.sq_sig_all = 1;
  struct ibv_qp *near = create_qp(pd, init), *far = create_qp(pd, init);
  connect_qp(near, far->qp_num, GID_INDEX, 0);
  connect_qp(far, near->qp_num, GID_INDEX, 0);
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
