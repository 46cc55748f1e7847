/*
 * A correct program for checkers: a queue pair sends a message to another one of the same RoCE
 * device, and the receiver branches on the bytes that arrived. All memory is from malloc.
 *
 * usage: checked DEVICE [FAULT]
 *
 * FAULT is `overrun`, which reads a byte past the message's memory, or `leak`, which does not free
 * it.
 */
#include "program.h"

#define GID_INDEX 1
#define BYTES 64

static struct ibv_mr *allocate(struct ibv_pd *pd) {
  return MADE(ibv_reg_mr(pd, MADE(malloc(BYTES)), BYTES, IBV_ACCESS_LOCAL_WRITE));
}

static void transfer(struct ibv_qp *from, struct ibv_mr *out, struct ibv_qp *to, struct ibv_mr *in) {
  post_recv(to, 0, piece(in, in->addr, BYTES));
  CHECK(post_send(from, IBV_WR_SEND, piece(out, out->addr, BYTES), NULL, 0) == 0);
  for (int done = 0; done < 2; done++) good_completion(from->send_cq);
}

int main(int count, char **words) {
  const char *fault = count > 2 ? words[2] : "";
  struct ibv_context *context = open_device(count > 1 ? words[1] : "roce0");
  struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
  struct ibv_cq *cq = MADE(ibv_create_cq(context, 16, NULL, NULL, 0));
  struct ibv_qp *near = create_qp(pd, plain_init(cq, 4)), *far = create_qp(pd, plain_init(cq, 4));
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
