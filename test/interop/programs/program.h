/* Shared by the programs of this folder: checks, and the steps from a device to a connected
 * queue pair. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS INT64_C(1000000000)

#define CHECK(holds) \
  do { \
    if (!(holds)) fail(__LINE__, #holds); \
  } while (0)

/* The object that a call makes. */
#define MADE(call) \
  ({ \
    __typeof__(call) made_ = (call); \
    if (made_ == NULL) fail(__LINE__, #call); \
    made_; \
  })

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define RTR_MASK \
  (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK \
  (IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
   IBV_QP_MAX_QP_RD_ATOMIC)

/* The case under way. */
static const char *title = "opening";

static inline _Noreturn void fail(int line, const char *text) {
  printf("%s: line %d: not %s (%s)\n", title, line, text, strerror(errno));
  fflush(stdout);
  _exit(1);
}

static inline struct ibv_context *open_device(const char *name) {
  struct ibv_device **list = ibv_get_device_list(NULL);
  struct ibv_context *context = NULL;
  for (int at = 0; list != NULL && list[at] != NULL; at++) {
    if (strcmp(ibv_get_device_name(list[at]), name) == 0) context = ibv_open_device(list[at]);
  }
  CHECK(context != NULL);
  ibv_free_device_list(list);
  return context;
}

/* A reliable queue pair on one completion queue, with queues of `depth`. */
static inline struct ibv_qp_init_attr plain_init(struct ibv_cq *cq, uint32_t depth) {
  return (struct ibv_qp_init_attr){
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1}};
}

static inline struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr init) {
  return MADE(ibv_create_qp(pd, &init));
}

static inline void to_init(struct ibv_qp *qp, unsigned access) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
  CHECK(ibv_modify_qp(qp, &attr, INIT_MASK) == 0);
}

static inline void to_state(struct ibv_qp *qp, enum ibv_qp_state state) {
  struct ibv_qp_attr attr = {.qp_state = state};
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
}

/* Ready to receive from a queue pair of the same device. */
static inline struct ibv_qp_attr rtr_attr(struct ibv_qp *qp, uint32_t peer, int gid_index) {
  struct ibv_qp_attr attr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {
          .is_global = 1,
          .port_num = 1,
          .grh = {.sgid_index = (uint8_t)gid_index, .hop_limit = 64},
      }};
  CHECK(ibv_query_gid(qp->context, 1, gid_index, &attr.ah_attr.grh.dgid) == 0);
  return attr;
}

static inline struct ibv_qp_attr rts_attr(void) {
  return (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
}

static inline void connect_qp(struct ibv_qp *qp, uint32_t peer, int gid_index, unsigned access) {
  struct ibv_qp_attr rtr = rtr_attr(qp, peer, gid_index), rts = rts_attr();
  to_init(qp, access);
  CHECK(ibv_modify_qp(qp, &rtr, RTR_MASK) == 0);
  CHECK(ibv_modify_qp(qp, &rts, RTS_MASK) == 0);
}

static inline struct ibv_sge piece(const struct ibv_mr *mr, const void *at, size_t length) {
  return (struct ibv_sge){.addr = (uintptr_t)at, .length = (uint32_t)length, .lkey = mr->lkey};
}

static inline void post_recv(struct ibv_qp *qp, uint64_t wr_id, struct ibv_sge sge) {
  struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1}, *bad;
  CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}

/* Posts a signalled request of one piece; an RDMA request accesses the memory at `remote`. */
static inline int post_send(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge sge,
                            const void *remote, uint32_t rkey) {
  struct ibv_send_wr wr = {.opcode = opcode,
                           .send_flags = IBV_SEND_SIGNALED,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .wr.rdma = {.remote_addr = (uintptr_t)remote, .rkey = rkey}},
                     *bad;
  return ibv_post_send(qp, &wr, &bad);
}

static inline struct ibv_wc next_completion(struct ibv_cq *cq) {
  struct ibv_wc wc;
  for (int tries = 0;; tries++) {
    int count = ibv_poll_cq(cq, 1, &wc);
    CHECK(count >= 0);
    if (count == 1) return wc;
    CHECK(tries < 60000);
    usleep(1000);
  }
}

static inline struct ibv_wc good_completion(struct ibv_cq *cq) {
  struct ibv_wc wc = next_completion(cq);
  if (wc.status != IBV_WC_SUCCESS) printf("%s: %s\n", title, ibv_wc_status_str(wc.status));
  CHECK(wc.status == IBV_WC_SUCCESS);
  return wc;
}

static inline uint32_t next_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

static inline void fill_random(uint8_t *bytes, size_t length, uint32_t *seed) {
  for (size_t at = 0; at < length; at++) bytes[at] = (uint8_t)(next_random(seed) >> 16);
}

static inline int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static inline void spin(int64_t duration_ns) {
  for (int64_t end = now_ns() + duration_ns; now_ns() < end;) continue;
}

#endif
