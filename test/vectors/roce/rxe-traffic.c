/*
 * Has one RoCE device send to another, for a recording.
 *
 * usage: rxe-traffic DEVICE DEVICE GID_INDEX [CASE]
 *
 *   opcodes   a packet of every opcode of RC, UC and UD
 *   rnr       a Send that has to wait for its receive, twice
 *   refused   requests that the responder refuses, each on a connection of its own
 *   stream    many requests of all kinds at once, both directions of data
 *
 * Prints a line for each completion. The recording is judged, not this output.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFER_BYTES 8192
#define QKEY 0x11111111

struct side {
  struct ibv_context *context;
  struct ibv_pd *pd;
  struct ibv_cq *cq;
  struct ibv_mr *mr;
  union ibv_gid gid;
  uint8_t *buffer;
};

static int gid_index, rnr_retry = 1;

static void check(int ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static struct side open_side(const char *name) {
  struct side side = {0};
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  check(list != NULL, "ibv_get_device_list");
  for (int i = 0; i < count; i++)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) side.context = ibv_open_device(list[i]);
  check(side.context != NULL, name);
  side.pd = ibv_alloc_pd(side.context);
  check(side.pd != NULL, "ibv_alloc_pd");
  side.cq = ibv_create_cq(side.context, 256, NULL, NULL, 0);
  check(side.cq != NULL, "ibv_create_cq");
  side.buffer = aligned_alloc(4096, BUFFER_BYTES);
  for (int i = 0; i < BUFFER_BYTES; i++) side.buffer[i] = (uint8_t)(i * 7 + 1);
  side.mr = ibv_reg_mr(side.pd, side.buffer, BUFFER_BYTES,
                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                           IBV_ACCESS_REMOTE_ATOMIC);
  check(side.mr != NULL, "ibv_reg_mr");
  check(ibv_query_gid(side.context, 1, gid_index, &side.gid) == 0, "ibv_query_gid");
  return side;
}

static struct ibv_qp *create_qp(struct side *side, enum ibv_qp_type type) {
  struct ibv_qp_init_attr init = {
      .send_cq = side->cq,
      .recv_cq = side->cq,
      .qp_type = type,
      .cap = {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1},
  };
  struct ibv_qp *qp = ibv_create_qp(side->pd, &init);
  check(qp != NULL, "ibv_create_qp");
  return qp;
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
  errno = ibv_modify_qp(qp, attr, mask);
  check(errno == 0, "ibv_modify_qp");
}

static void connect_qp(struct ibv_qp *qp, struct ibv_qp *peer, struct side *to, uint32_t psn,
                       uint32_t peer_psn) {
  enum ibv_qp_type type = qp->qp_type;
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
  init.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  modify(qp, &init,
         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
             (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
  struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_256,
                            .dest_qp_num = peer->qp_num,
                            .rq_psn = peer_psn,
                            .max_dest_rd_atomic = 4,
                            .min_rnr_timer = 14};
  rtr.ah_attr.is_global = 1;
  rtr.ah_attr.port_num = 1;
  rtr.ah_attr.grh.dgid = to->gid;
  rtr.ah_attr.grh.sgid_index = gid_index;
  rtr.ah_attr.grh.hop_limit = 33;
  rtr.ah_attr.grh.traffic_class = 0x28;
  rtr.ah_attr.grh.flow_label = 0x54321;
  int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  modify(qp, &rtr,
         IBV_QP_STATE | (type == IBV_QPT_UD ? 0 : connected) |
             (type == IBV_QPT_RC ? reliable : 0));
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .sq_psn = psn,
                            .timeout = 17,
                            .retry_cnt = 7,
                            .rnr_retry = rnr_retry,
                            .max_rd_atomic = 4};
  modify(qp, &rts,
         IBV_QP_STATE | IBV_QP_SQ_PSN |
             (type == IBV_QPT_RC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_MAX_QP_RD_ATOMIC
                                 : 0));
}

static void post_receives(struct side *side, struct ibv_qp *qp, int count) {
  for (int i = 0; i < count; i++) {
    struct ibv_sge sge = {(uintptr_t)side->buffer + 4096, 2048, side->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = 1000 + i, .sg_list = &sge, .num_sge = 1}, *bad;
    errno = ibv_post_recv(qp, &wr, &bad);
    check(errno == 0, "ibv_post_recv");
  }
}

static void drain(const char *what, struct side *side, int count, int millis) {
  struct timespec pause = {0, 1000000};
  for (int waited = 0; waited < millis && count > 0; waited++) {
    struct ibv_wc wc;
    while (count > 0 && ibv_poll_cq(side->cq, 1, &wc) > 0) {
      printf("%s: wr %lu status %d opcode %d bytes %u\n", what, wc.wr_id, wc.status, wc.opcode,
             wc.byte_len);
      count--;
    }
    nanosleep(&pause, NULL);
  }
}

static void post(struct side *from, struct side *to, struct ibv_qp *qp, struct ibv_send_wr *wr,
                 uint32_t length) {
  struct ibv_send_wr *bad;
  struct ibv_sge sge = {(uintptr_t)from->buffer, length, from->mr->lkey};
  wr->sg_list = &sge;
  wr->num_sge = length == 0 ? 0 : 1;
  wr->send_flags |= IBV_SEND_SIGNALED;
  if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr->wr.atomic.remote_addr = (uintptr_t)to->buffer + 64;
    if (wr->wr.atomic.rkey == 0) wr->wr.atomic.rkey = to->mr->rkey;
  } else if (qp->qp_type != IBV_QPT_UD) {
    wr->wr.rdma.remote_addr = (uintptr_t)to->buffer + 128;
    if (wr->wr.rdma.rkey == 0) wr->wr.rdma.rkey = to->mr->rkey;
  }
  errno = ibv_post_send(qp, wr, &bad);
  check(errno == 0, "ibv_post_send");
  drain("sender", from, 1, 3000);
}

static void pair(struct side *a, struct side *b, enum ibv_qp_type type, struct ibv_qp **x,
                 struct ibv_qp **y) {
  static uint32_t psn = 0xfffff0;
  *x = create_qp(a, type);
  *y = create_qp(b, type);
  connect_qp(*x, *y, b, psn, 0x123456);
  connect_qp(*y, *x, a, 0x123456, psn);
}

#define WR(...) (&(struct ibv_send_wr){__VA_ARGS__})

static void sends_and_writes(struct side *a, struct side *b, struct ibv_qp *x, struct ibv_qp *y) {
  const uint32_t lengths[] = {599, 5, 0, 300};
  post_receives(b, y, 12);
  for (int i = 0; i < 4; i++) {
    post(a, b, x, WR(.opcode = IBV_WR_SEND, .send_flags = i & 1 ? IBV_SEND_SOLICITED : 0),
         lengths[i]);
    post(a, b, x, WR(.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(0xcafe0000 + i)),
         lengths[i]);
    post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE), lengths[i]);
    post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(0xbeef0000 + i)),
         lengths[i]);
  }
  drain("receiver", b, 12, 500);
}

/* Posts a request without waiting for its completion. */
static void start(struct side *from, struct side *to, struct ibv_qp *qp, struct ibv_send_wr *wr,
                  uint32_t offset, uint32_t length) {
  struct ibv_send_wr *bad;
  struct ibv_sge sge = {(uintptr_t)from->buffer + offset, length, from->mr->lkey};
  wr->sg_list = &sge;
  wr->num_sge = 1;
  wr->send_flags |= IBV_SEND_SIGNALED;
  if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr->wr.atomic.remote_addr = (uintptr_t)to->buffer + 64;
    wr->wr.atomic.rkey = to->mr->rkey;
  } else {
    wr->wr.rdma.remote_addr = (uintptr_t)to->buffer + 128 + offset;
    wr->wr.rdma.rkey = to->mr->rkey;
  }
  errno = ibv_post_send(qp, wr, &bad);
  check(errno == 0, "ibv_post_send");
}

static void every_opcode(struct side *a, struct side *b) {
  struct ibv_qp *x, *y;

  pair(a, b, IBV_QPT_RC, &x, &y);
  sends_and_writes(a, b, x, y);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_READ), 599);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_READ), 11);
  post(a, b, x,
       WR(.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .wr.atomic.compare_add = 0x0102030405060708,
          .wr.atomic.swap = 0x1112131415161718),
       8);
  post(a, b, x,
       WR(.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic.compare_add = 0xfffffffffffffff0), 8);
  /* RNR NAKs, then a NAK for a key that does not exist. */
  post(a, b, x, WR(.opcode = IBV_WR_SEND), 20);
  pair(a, b, IBV_QPT_RC, &x, &y);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE, .wr.rdma.rkey = 0xdead00), 16);
  /* Send with Invalidate of a region's key fails at the responder; its packets are what counts. */
  for (int i = 0; i < 2; i++) {
    pair(a, b, IBV_QPT_RC, &x, &y);
    post_receives(b, y, 1);
    post(a, b, x, WR(.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = 0xabcd01),
         i == 0 ? 10 : 300);
  }

  pair(a, b, IBV_QPT_UC, &x, &y);
  sends_and_writes(a, b, x, y);

  pair(a, b, IBV_QPT_UD, &x, &y);
  post_receives(b, y, 4);
  struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
  to.grh.dgid = b->gid;
  to.grh.sgid_index = gid_index;
  to.grh.hop_limit = 7;
  struct ibv_ah *ah = ibv_create_ah(a->pd, &to);
  check(ah != NULL, "ibv_create_ah");
  post(a, b, x,
       WR(.opcode = IBV_WR_SEND, .wr.ud = {.ah = ah, .remote_qpn = y->qp_num, .remote_qkey = QKEY}),
       33);
  post(a, b, x,
       WR(.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(0xfeed0001),
          .wr.ud = {.ah = ah, .remote_qpn = y->qp_num, .remote_qkey = QKEY}),
       1000);
  drain("receiver", b, 2, 500);
}

static void receiver_not_ready(struct side *a, struct side *b) {
  const struct timespec pause = {0, 60000000};
  struct ibv_qp *x, *y;
  rnr_retry = 7; /* For ever. */
  pair(a, b, IBV_QPT_RC, &x, &y);
  for (int i = 0; i < 2; i++) {
    start(a, b, x, WR(.opcode = IBV_WR_SEND), 0, i == 0 ? 20 : 700);
    nanosleep(&pause, NULL);
    post_receives(b, y, 1);
    drain("sender", a, 1, 3000);
    drain("receiver", b, 1, 500);
  }
}

static void refused(struct side *a, struct side *b) {
  const uint32_t unknown = 0xdead00;
  struct ibv_qp *x, *y;
  pair(a, b, IBV_QPT_RC, &x, &y);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE, .wr.rdma.rkey = unknown), 600);
  pair(a, b, IBV_QPT_RC, &x, &y);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_READ, .wr.rdma.rkey = unknown), 600);
  pair(a, b, IBV_QPT_RC, &x, &y);
  post(a, b, x, WR(.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic.rkey = unknown), 8);
  /* A Write before it is carried out. */
  pair(a, b, IBV_QPT_RC, &x, &y);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE), 300);
  post(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE, .wr.rdma.rkey = unknown), 16);
  /* Longer than the receive. */
  pair(a, b, IBV_QPT_RC, &x, &y);
  post_receives(b, y, 1);
  post(a, b, x, WR(.opcode = IBV_WR_SEND), 2100);
}

static void stream(struct side *a, struct side *b) {
  struct ibv_qp *x, *y;
  pair(a, b, IBV_QPT_RC, &x, &y);
  post_receives(b, y, 30);
  int posted = 0;
  for (int i = 0; i < 4; i++) {
    start(a, b, x, WR(.opcode = IBV_WR_SEND), 0, 900);
    start(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE), 1000, 1500);
    start(a, b, x, WR(.opcode = IBV_WR_RDMA_READ), 3000, 700);
    start(a, b, x, WR(.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .wr.atomic.compare_add = 3), 8, 8);
    start(a, b, x, WR(.opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(i)), 0, 30);
    start(a, b, x,
          WR(.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .wr.atomic = {.compare_add = 1, .swap = 2}), 8,
          8);
    start(a, b, x, WR(.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(i)), 1000, 260);
    posted += 7;
    drain("sender", a, 4, 500);
    posted -= 4;
  }
  drain("sender", a, posted, 20000);
  drain("receiver", b, 12, 500);
}

int main(int argc, char **argv) {
  const char *wanted = argc == 5 ? argv[4] : "opcodes";
  if (argc != 4 && argc != 5) {
    fprintf(stderr, "usage: rxe-traffic DEVICE DEVICE GID_INDEX [CASE]\n");
    return 2;
  }
  gid_index = atoi(argv[3]);
  struct side a = open_side(argv[1]), b = open_side(argv[2]);
  if (strcmp(wanted, "rnr") == 0) {
    receiver_not_ready(&a, &b);
  } else if (strcmp(wanted, "refused") == 0) {
    refused(&a, &b);
  } else if (strcmp(wanted, "stream") == 0) {
    stream(&a, &b);
  } else {
    every_opcode(&a, &b);
  }
  return 0;
}
