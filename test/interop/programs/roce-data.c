/*
 * The shapes of perftest's transfers, with all data verified, both ends in one process on one
 * device: roce-data DEVICE GID_INDEX. It prints a line for each shape and ends with 1 at the first
 * byte, length or status that is wrong.
 */
#include <endian.h>
#include <poll.h>

#include "program.h"

#define MEMORY_BYTES (24u << 20)
#define GRH_BYTES 40u
#define PAIRS_MAX 4
#define DEPTH 64
#define SECONDS_MAX 20

/* One end: memory, queues, queue pairs. */
struct end {
  struct ibv_pd *pd;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_srq *srq;
  struct ibv_mr *mr;
  uint8_t *memory;
  struct ibv_qp *qps[PAIRS_MAX];
  struct ibv_ah *ah;
};

struct options {
  enum ibv_qp_type type;
  int pairs;
  bool srq;
  bool events;
  enum ibv_mtu mtu;
};

static struct ibv_context *context;
static int gid_index;
static uint32_t seed = 1;

static void fill(uint8_t *bytes, size_t length) { fill_random(bytes, length, &seed); }

static struct end *open_end(const struct options *options) {
  struct end *end = MADE(calloc(1, sizeof *end));
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC;
  end->pd = MADE(ibv_alloc_pd(context));
  end->memory = memset(MADE(aligned_alloc(4096, MEMORY_BYTES)), 0, MEMORY_BYTES);
  end->mr = MADE(ibv_reg_mr(end->pd, end->memory, MEMORY_BYTES, access));
  if (options->events) end->channel = MADE(ibv_create_comp_channel(context));
  end->cq = MADE(ibv_create_cq(context, 4 * DEPTH * PAIRS_MAX, NULL, end->channel, 0));
  if (options->events) CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
  if (options->srq) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH * PAIRS_MAX, .max_sge = 1}};
    end->srq = MADE(ibv_create_srq(end->pd, &init));
  }
  for (int index = 0; index < options->pairs; index++) {
    struct ibv_qp_init_attr init = plain_init(end->cq, DEPTH);
    init.srq = end->srq;
    init.cap.max_send_sge = 3;
    init.cap.max_recv_sge = 2;
    init.cap.max_inline_data = 200;
    init.qp_type = options->type;
    end->qps[index] = create_qp(end->pd, init);
  }
  return end;
}

static void close_end(struct end *end, int pairs) {
  for (int index = 0; index < pairs; index++) CHECK(ibv_destroy_qp(end->qps[index]) == 0);
  if (end->ah != NULL) CHECK(ibv_destroy_ah(end->ah) == 0);
  if (end->srq != NULL) CHECK(ibv_destroy_srq(end->srq) == 0);
  CHECK(ibv_destroy_cq(end->cq) == 0);
  if (end->channel != NULL) CHECK(ibv_destroy_comp_channel(end->channel) == 0);
  CHECK(ibv_dereg_mr(end->mr) == 0);
  CHECK(ibv_dealloc_pd(end->pd) == 0);
  free(end->memory);
  free(end);
}

static void close_ends(struct end *ends[2], int pairs) {
  for (int side = 0; side < 2; side++) close_end(ends[side], pairs);
}

static void connect_pair(struct ibv_qp *qp, uint32_t peer, const struct options *options) {
  bool rc = options->type == IBV_QPT_RC;
  bool ud = options->type == IBV_QPT_UD;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11111111};
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  CHECK(ibv_modify_qp(qp, &attr, mask | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
  attr = rtr_attr(qp, peer, gid_index);
  attr.path_mtu = options->mtu;
  attr.rq_psn = 0xfffff0;
  attr.max_dest_rd_atomic = 4;
  mask = RTR_MASK & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  CHECK(ibv_modify_qp(qp, &attr, rc ? RTR_MASK : ud ? IBV_QP_STATE : mask) == 0);
  attr = rts_attr();
  attr.sq_psn = 0xfffff0;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  CHECK(ibv_modify_qp(qp, &attr, rc ? RTS_MASK : mask) == 0);
}

static void open_ends(struct end *ends[2], const struct options *options) {
  for (int side = 0; side < 2; side++) ends[side] = open_end(options);
  for (int side = 0; side < 2; side++) {
    for (int index = 0; index < options->pairs; index++) {
      connect_pair(ends[side]->qps[index], ends[!side]->qps[index]->qp_num, options);
    }
    if (options->type == IBV_QPT_UD) {
      struct ibv_ah_attr attr = rtr_attr(ends[side]->qps[0], 0, gid_index).ah_attr;
      ends[side]->ah = MADE(ibv_create_ah(ends[side]->pd, &attr));
    }
  }
}

/* The next completion, which must be successful. */
static struct ibv_wc completion(struct end *end) {
  struct ibv_wc wc;
  if (end->channel == NULL) return good_completion(end->cq);
  for (int count; (count = ibv_poll_cq(end->cq, 1, &wc)) != 1;) {
    CHECK(count == 0);
    struct ibv_cq *cq;
    void *tag;
    struct pollfd ready = {.fd = end->channel->fd, .events = POLLIN};
    CHECK(poll(&ready, 1, SECONDS_MAX * 1000) == 1);
    CHECK(ibv_get_cq_event(end->channel, &cq, &tag) == 0);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_req_notify_cq(end->cq, 0) == 0);
  }
  if (wc.status != IBV_WC_SUCCESS) printf("status %s\n", ibv_wc_status_str(wc.status));
  CHECK(wc.status == IBV_WC_SUCCESS);
  return wc;
}

static struct ibv_sge part(const struct end *end, size_t at, size_t length) {
  return piece(end->mr, end->memory + at, length);
}

static void receive(struct end *end, int index, uint64_t id, size_t at, size_t length) {
  struct ibv_sge sge = part(end, at, length);
  struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
  int error = end->srq != NULL ? ibv_post_srq_recv(end->srq, &wr, &bad)
                               : ibv_post_recv(end->qps[index], &wr, &bad);
  CHECK(error == 0);
}

/* A work request with its list of pieces, which it points to. */
struct request {
  struct ibv_send_wr wr;
  struct ibv_sge sges[3];
};

static struct request *request(const struct end *from, const struct end *to, int opcode, size_t at,
                               size_t length, size_t remote) {
  static struct request pool[DEPTH];
  static unsigned next;
  struct request *made = &pool[next++ % DEPTH];
  *made = (struct request){0};
  /* Cut in three, to show that pieces are put together. */
  size_t first = length / 3, second = length / 2 - first;
  made->sges[0] = part(from, at, first);
  made->sges[1] = part(from, at + first, second);
  made->sges[2] = part(from, at + first + second, length - first - second);
  made->wr.sg_list = made->sges;
  made->wr.num_sge = 3;
  made->wr.opcode = (enum ibv_wr_opcode)opcode;
  made->wr.send_flags = IBV_SEND_SIGNALED;
  made->wr.wr.rdma.remote_addr = (uintptr_t)to->memory + remote;
  made->wr.wr.rdma.rkey = to->mr->rkey;
  return made;
}

static void post(struct end *end, int index, struct request *wanted) {
  struct ibv_send_wr *bad;
  CHECK(ibv_post_send(end->qps[index], &wanted->wr, &bad) == 0);
}

static void expect_bytes(const uint8_t *bytes, const uint8_t *expected, size_t length) {
  for (size_t at = 0; at < length; at++) {
    if (bytes[at] == expected[at]) continue;
    printf("%s: byte %zu of %zu is %02x, not %02x\n", title, at, length, bytes[at], expected[at]);
    exit(1);
  }
}

static const size_t LENGTHS[] = {1, 2, 3, 64, 255, 256, 257, 1000, 4096, 4097, 65536, 1000001, 8388609};
#define LENGTH_COUNT (sizeof LENGTHS / sizeof LENGTHS[0])
#define SENT_AT 4096u
#define TAKEN_AT (12u << 20)

/* Writes, Reads and Sends of every length, with and without immediate data, both ways at once. */
static void run_lengths(const struct options *options, size_t longest) {
  struct end *ends[2];
  bool rc = options->type == IBV_QPT_RC;
  bool ud = options->type == IBV_QPT_UD;
  open_ends(ends, options);
  for (unsigned which = 0; which < LENGTH_COUNT && LENGTHS[which] <= longest; which++) {
    size_t length = LENGTHS[which];
    for (int immediate = 0; immediate < 2; immediate++) {
      for (int index = 0; index < options->pairs; index++) {
        for (int side = 0; side < 2; side++) {
          fill(ends[side]->memory + SENT_AT, length);
          memset(ends[side]->memory + TAKEN_AT, 0xa5, length + 64);
          receive(ends[side], index, 100, TAKEN_AT, length + GRH_BYTES);
        }
        for (int side = 0; side < 2; side++) {
          int opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
          struct request *send = request(ends[side], ends[!side], opcode, SENT_AT, length, 0);
          send->wr.wr_id = 7;
          send->wr.imm_data = htobe32(0x1234u + which);
          if (ud) {
            send->wr.wr.ud.ah = ends[side]->ah;
            send->wr.wr.ud.remote_qpn = ends[!side]->qps[index]->qp_num;
            send->wr.wr.ud.remote_qkey = 0x11111111;
          }
          post(ends[side], index, send);
        }
        for (int side = 0; side < 2; side++) {
          for (int count = 0; count < 2; count++) {
            struct ibv_wc wc = completion(ends[side]);
            if (wc.opcode == IBV_WC_SEND) {
              CHECK(wc.wr_id == 7);
              continue;
            }
            CHECK(wc.opcode == IBV_WC_RECV && wc.wr_id == 100);
            CHECK(wc.byte_len == length + (ud ? GRH_BYTES : 0));
            CHECK(((wc.wc_flags & IBV_WC_WITH_IMM) != 0) == (immediate != 0));
            if (immediate) CHECK(be32toh(wc.imm_data) == 0x1234u + which);
            CHECK(wc.qp_num == ends[side]->qps[index]->qp_num);
            if (ud) CHECK(wc.src_qp == ends[!side]->qps[index]->qp_num);
          }
        }
        for (int side = 0; side < 2; side++) {
          const uint8_t *taken = ends[side]->memory + TAKEN_AT + (ud ? GRH_BYTES : 0);
          expect_bytes(taken, ends[!side]->memory + SENT_AT, length);
          CHECK(taken[length] == 0xa5);
        }
        if (ud) continue;
        for (int side = 0; side < 2; side++) {
          fill(ends[side]->memory + SENT_AT, length);
          memset(ends[side]->memory + TAKEN_AT, 0xa5, length + 64);
          if (immediate) receive(ends[side], index, 100, 0, 8);
        }
        for (int side = 0; side < 2; side++) {
          int opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
          struct request *write =
              request(ends[side], ends[!side], opcode, SENT_AT, length, TAKEN_AT);
          write->wr.imm_data = htobe32(0x77u + which);
          post(ends[side], index, write);
        }
        for (int side = 0; side < 2; side++) {
          for (int count = 0; count < 1 + immediate; count++) {
            struct ibv_wc wc = completion(ends[side]);
            if (wc.opcode == IBV_WC_RDMA_WRITE) continue;
            CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == length);
            CHECK(be32toh(wc.imm_data) == 0x77u + which);
          }
        }
        for (int side = 0; side < 2; side++) {
          const uint8_t *taken = ends[side]->memory + TAKEN_AT;
          /* A Write of UC does not notify its target; the data arrives soon. */
          for (int tries = 0; taken[length - 1] == 0xa5 && tries < 1000; tries++) usleep(100);
          expect_bytes(taken, ends[!side]->memory + SENT_AT, length);
          CHECK(taken[length] == 0xa5);
        }
        if (!rc) continue;
        for (int side = 0; side < 2; side++) memset(ends[side]->memory + TAKEN_AT, 0xa5, length);
        for (int side = 0; side < 2; side++) {
          struct request *read =
              request(ends[side], ends[!side], IBV_WR_RDMA_READ, TAKEN_AT, length, SENT_AT);
          post(ends[side], index, read);
        }
        for (int side = 0; side < 2; side++) {
          CHECK(completion(ends[side]).opcode == IBV_WC_RDMA_READ);
          expect_bytes(ends[side]->memory + TAKEN_AT, ends[!side]->memory + SENT_AT, length);
        }
      }
    }
  }
  close_ends(ends, options->pairs);
}

/* A list of work requests in one call, inline and not; only the last is signalled. */
static void run_lists(const struct options *options) {
  struct end *ends[2];
  enum { COUNT = 32, LENGTH = 180 };
  open_ends(ends, options);
  for (int round = 0; round < 20; round++) {
    struct request *list[COUNT];
    uint8_t expected[COUNT][LENGTH];
    for (int at = 0; at < COUNT; at++) {
      receive(ends[1], 0, (uint64_t)at, TAKEN_AT + (size_t)at * 256, LENGTH);
      size_t from = SENT_AT + (size_t)at * 256;
      fill(ends[0]->memory + from, LENGTH);
      memcpy(expected[at], ends[0]->memory + from, LENGTH);
      list[at] = request(ends[0], ends[1], IBV_WR_SEND, from, LENGTH, 0);
      list[at]->wr.send_flags = (at % 2 == 0 ? IBV_SEND_INLINE : 0u);
      if (at > 0) list[at - 1]->wr.next = &list[at]->wr;
    }
    list[COUNT - 1]->wr.send_flags |= IBV_SEND_SIGNALED;
    post(ends[0], 0, list[0]);
    /* The call copied inline data. */
    for (int at = 0; at < COUNT; at += 2) memset(ends[0]->memory + SENT_AT + at * 256, 0, LENGTH);
    CHECK(completion(ends[0]).opcode == IBV_WC_SEND);
    for (int at = 0; at < COUNT; at++) {
      struct ibv_wc wc = completion(ends[1]);
      CHECK(wc.wr_id == (uint64_t)at && wc.byte_len == LENGTH);
      expect_bytes(ends[1]->memory + TAKEN_AT + at * 256, expected[at], LENGTH);
    }
  }
  close_ends(ends, options->pairs);
}

/* Both ends add to one word and exchange another, on all pairs at once. */
static void run_atomics(const struct options *options) {
  struct end *ends[2];
  enum { ROUNDS = 100 };
  open_ends(ends, options);
  volatile uint64_t *words = (volatile uint64_t *)ends[1]->memory;
  uint64_t *results = (uint64_t *)(void *)(ends[0]->memory + SENT_AT);
  uint64_t seen[ROUNDS * PAIRS_MAX] = {0};
  words[0] = 1000;
  words[1] = 0;
  for (int round = 0; round < ROUNDS; round++) {
    for (int index = 0; index < options->pairs; index++) {
      struct request *add = request(ends[0], ends[1], IBV_WR_ATOMIC_FETCH_AND_ADD, SENT_AT, 0, 0);
      add->sges[0] = part(ends[0], SENT_AT + 8u * (unsigned)index, 8);
      add->wr.num_sge = 1;
      add->wr.wr.atomic.remote_addr = (uintptr_t)ends[1]->memory;
      add->wr.wr.atomic.compare_add = 3;
      add->wr.wr.atomic.rkey = ends[1]->mr->rkey;
      post(ends[0], index, add);
    }
    for (int index = 0; index < options->pairs; index++) {
      CHECK(completion(ends[0]).opcode == IBV_WC_FETCH_ADD);
    }
    for (int index = 0; index < options->pairs; index++) {
      uint64_t place = (results[index] - 1000) / 3;
      CHECK((results[index] - 1000) % 3 == 0 && place < (uint64_t)(ROUNDS * options->pairs));
      CHECK(seen[place]++ == 0);
    }
    struct request *swap = request(ends[0], ends[1], IBV_WR_ATOMIC_CMP_AND_SWP, SENT_AT, 0, 0);
    swap->sges[0] = part(ends[0], SENT_AT, 8);
    swap->wr.num_sge = 1;
    swap->wr.wr.atomic.remote_addr = (uintptr_t)ends[1]->memory + 8;
    swap->wr.wr.atomic.rkey = ends[1]->mr->rkey;
    /* Every third comparison fails. */
    uint64_t now = words[1];
    swap->wr.wr.atomic.compare_add = round % 3 == 2 ? now + 1 : now;
    swap->wr.wr.atomic.swap = (uint64_t)round << 40 | 0xabcdefu;
    post(ends[0], 0, swap);
    CHECK(completion(ends[0]).opcode == IBV_WC_COMP_SWAP);
    CHECK(results[0] == now);
    CHECK(words[1] == (round % 3 == 2 ? now : ((uint64_t)round << 40 | 0xabcdefu)));
  }
  CHECK(words[0] == 1000 + 3u * ROUNDS * (unsigned)options->pairs);
  close_ends(ends, options->pairs);
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc != 3) return 2;
  context = open_device(argv[1]);
  gid_index = atoi(argv[2]);
  static const struct {
    const char *name;
    struct options options;
  } shapes[] = {
      {"RC", {IBV_QPT_RC, 1, false, false, IBV_MTU_4096}},
      {"RC, MTU 256", {IBV_QPT_RC, 1, false, false, IBV_MTU_256}},
      {"RC, events", {IBV_QPT_RC, 1, false, true, IBV_MTU_1024}},
      {"RC, four pairs on shared receive queues", {IBV_QPT_RC, 4, true, false, IBV_MTU_2048}},
      {"UC", {IBV_QPT_UC, 1, false, false, IBV_MTU_1024}},
      {"UC, four pairs", {IBV_QPT_UC, 4, false, true, IBV_MTU_4096}},
      {"UD", {IBV_QPT_UD, 1, false, false, IBV_MTU_1024}},
      {"UD, four pairs on shared receive queues", {IBV_QPT_UD, 4, true, true, IBV_MTU_1024}},
  };
  for (unsigned at = 0; at < sizeof shapes / sizeof shapes[0]; at++) {
    const struct options *options = &shapes[at].options;
    bool ud = options->type == IBV_QPT_UD;
    title = shapes[at].name;
    run_lengths(options, ud ? 1024 : at == 0 ? 8388609 : 65536);
    if (!ud) run_lists(options);
    if (options->type == IBV_QPT_RC) run_atomics(options);
    printf("%s: as sent\n", title);
  }
  CHECK(ibv_close_device(context) == 0);
  return 0;
}
