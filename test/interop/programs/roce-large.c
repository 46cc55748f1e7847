/*
 * Transfers messages up to the longest, 2^31 bytes, between two queue pairs of one process, and
 * checks that numbers and keys cannot be guessed: roce-large DEVICE. It prints a line for each
 * transfer, and ends with 1 when something is wrong.
 *
 * Memory is one file that repeats itself, so the longest message needs no memory of its size. It
 * repeats after a prime number of pages, so data that lands at a wrong place shows.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "program.h"

#define PERIOD (1021u * 4096u)
#define LONGEST (1ul << 31)
#define SPAN ((LONGEST / PERIOD + 2) * PERIOD)
#define GUESSES 24

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qps[2];

/* Maps SPAN bytes of memory, which repeat after PERIOD bytes. */
static uint8_t *repeated(void) {
  int file = memfd_create("roce-large", MFD_CLOEXEC);
  CHECK(file >= 0 && ftruncate(file, PERIOD) == 0);
  uint8_t *place = mmap(NULL, SPAN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(place != MAP_FAILED);
  for (size_t at = 0; at < SPAN; at += PERIOD) {
    void *part = mmap(place + at, PERIOD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
    CHECK(part == place + at);
  }
  CHECK(close(file) == 0);
  return place;
}

static void connect_pair(enum ibv_mtu mtu) {
  for (int side = 0; side < 2; side++) qps[side] = create_qp(pd, plain_init(cq, 4));
  for (int side = 0; side < 2; side++) {
    struct ibv_qp_attr rtr = rtr_attr(qps[side], qps[!side]->qp_num, 1), rts = rts_attr();
    rtr.path_mtu = mtu;
    rtr.rq_psn = rts.sq_psn = 0xfffff0;
    rtr.max_dest_rd_atomic = rts.max_rd_atomic = 4;
    rts.timeout = 18;
    to_init(qps[side], IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(ibv_modify_qp(qps[side], &rtr, RTR_MASK) == 0);
    CHECK(ibv_modify_qp(qps[side], &rts, RTS_MASK) == 0);
  }
}

/* One message, from `from` to `to`. */
static void transfer(const char *named, enum ibv_wr_opcode opcode, size_t length, struct ibv_mr *from,
                     struct ibv_mr *to) {
  bool send = opcode == IBV_WR_SEND, read = opcode == IBV_WR_RDMA_READ;
  struct ibv_mr *own = read ? to : from, *far = read ? from : to;
  uint8_t *source = from->addr, *target = to->addr;
  uint32_t seed = (uint32_t)length + (uint32_t)opcode;
  title = named;
  fill_random(source, PERIOD, &seed);
  memset(target, 0, PERIOD);
  if (send) post_recv(qps[1], 0, piece(to, target, length));
  CHECK(post_send(qps[0], opcode, piece(own, own->addr, length), far->addr, far->rkey) == 0);
  for (int count = 0; count < 1 + send; count++) {
    struct ibv_wc wc = good_completion(cq);
    if (wc.opcode == IBV_WC_RECV) CHECK(wc.byte_len == (uint32_t)length);
  }
  CHECK(length >= PERIOD && memcmp(source, target, PERIOD) == 0);
  printf("%s: %zu bytes\n", named, length);
}

/* Numbers and keys are not consecutive. */
static void numbers(void) {
  uint32_t qpns[GUESSES], keys[GUESSES];
  struct ibv_qp *made[GUESSES];
  struct ibv_mr *regions[GUESSES];
  static uint8_t memory[4096];
  title = "numbers";
  for (int at = 0; at < GUESSES; at++) {
    made[at] = create_qp(pd, plain_init(cq, 4));
    regions[at] = MADE(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_REMOTE_READ));
    qpns[at] = made[at]->qp_num;
    keys[at] = regions[at]->rkey;
  }
  for (int at = 1; at < GUESSES; at++) {
    CHECK(abs((int)qpns[at] - (int)qpns[at - 1]) > 1);
    CHECK(abs((int)(keys[at] >> 8) - (int)(keys[at - 1] >> 8)) > 1);
    /* Nor are the differences constant. */
    if (at == 1) continue;
    CHECK(qpns[at] - qpns[at - 1] != qpns[at - 1] - qpns[at - 2]);
    CHECK(keys[at] - keys[at - 1] != keys[at - 1] - keys[at - 2]);
  }
  for (int at = 0; at < GUESSES; at++) {
    CHECK(ibv_destroy_qp(made[at]) == 0);
    CHECK(ibv_dereg_mr(regions[at]) == 0);
  }
  printf("numbers: not to be guessed\n");
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  CHECK(count == 2);
  context = open_device(words[1]);
  pd = MADE(ibv_alloc_pd(context));
  cq = MADE(ibv_create_cq(context, 16, NULL, NULL, 0));
  numbers();
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  struct ibv_mr *source = MADE(ibv_reg_mr(pd, repeated(), SPAN, access));
  struct ibv_mr *target = MADE(ibv_reg_mr(pd, repeated(), SPAN, access));
  static const enum ibv_mtu mtus[] = {IBV_MTU_4096, IBV_MTU_256};
  for (unsigned at = 0; at < 2; at++) {
    size_t length = (at == 0 ? 80ul : 40ul) << 20;
    connect_pair(mtus[at]);
    transfer(at == 0 ? "send, 4096" : "send, 256", IBV_WR_SEND, length + 1, source, target);
    transfer(at == 0 ? "write, 4096" : "write, 256", IBV_WR_RDMA_WRITE, length + 2, source, target);
    transfer(at == 0 ? "read, 4096" : "read, 256", IBV_WR_RDMA_READ, length + 3, source, target);
    if (at == 0) transfer("longest", IBV_WR_RDMA_WRITE, LONGEST, source, target);
    for (int side = 0; side < 2; side++) CHECK(ibv_destroy_qp(qps[side]) == 0);
  }
  CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0);
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  return 0;
}
