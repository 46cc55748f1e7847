/*
 * Posts around the moments at which the daemon stops polling a send queue: doorbells DEVICE
 * GID_INDEX BURSTS. A queue pair writes to itself in bursts, with random pauses between and within
 * them; each burst must complete before the next. Ends with 1 if one does not, and early on a slow
 * machine.
 */
#include "program.h"

#define DEPTH 64
#define BURST_MAX 24
#define PAUSE_MAX_NS 60000
#define STALL_MAX_NS (5 * SECOND_NS)
#define RUN_MAX_NS (15 * SECOND_NS)

static uint32_t seed = 1;

static uint32_t below(uint32_t limit) { return next_random(&seed) % limit; }

int main(int count, char **words) {
  CHECK(count == 4);
  struct ibv_context *context = open_device(words[1]);
  static uint64_t memory[2] = {1, 0};
  struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  struct ibv_mr *mr = MADE(ibv_reg_mr(pd, memory, sizeof memory, access));
  struct ibv_cq *cq = MADE(ibv_create_cq(context, DEPTH, NULL, NULL, 0));
  struct ibv_qp *qp = create_qp(pd, plain_init(cq, DEPTH));
  connect_qp(qp, qp->qp_num, atoi(words[2]), IBV_ACCESS_REMOTE_WRITE);

  struct ibv_sge sge = piece(mr, memory, 8);
  struct ibv_send_wr work = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_RDMA_WRITE,
                             .send_flags = IBV_SEND_SIGNALED,
                             .wr.rdma = {.remote_addr = (uintptr_t)&memory[1], .rkey = mr->rkey}};
  uint64_t posted = 0, completed = 0;
  int64_t end = now_ns() + RUN_MAX_NS;
  for (int bursts = 0; bursts < atoi(words[3]) && now_ns() < end; bursts++) {
    /* One, as in an exchange of messages, or enough that the daemon polls the queue. */
    uint32_t requests = below(2) == 0 ? 1 : 1 + below(BURST_MAX);
    uint32_t pauses = below(4);
    for (; requests > 0; requests--) {
      struct ibv_send_wr *bad;
      work.wr_id = posted++;
      CHECK(ibv_post_send(qp, &work, &bad) == 0);
      if (pauses == 0) spin(below(PAUSE_MAX_NS));
    }
    int64_t limit = now_ns() + STALL_MAX_NS;
    while (completed < posted) {
      struct ibv_wc done;
      int found = ibv_poll_cq(cq, 1, &done);
      CHECK(found >= 0);
      if (found == 0) {
        CHECK(now_ns() < limit);
        continue;
      }
      CHECK(done.status == IBV_WC_SUCCESS);
      CHECK(done.wr_id == completed++);
    }
    if (pauses != 1) spin(below(PAUSE_MAX_NS));
  }
  CHECK(memory[1] == 1);
  printf("all completed\n");
  return 0;
}
