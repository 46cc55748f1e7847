/*
 * The most frequent mistakes of verbs programs, each as one step: mistakes ROCE-DEVICE IWARP-DEVICE ADDRESS. Prints
 * "step: errno name" for each; the reasons come on standard error with IWARPD_EXPLAIN=1. Ends with 1 if a
 * step succeeds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sys/mman.h>

#include "program.h"

static struct ibv_context *roce;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char buffer[4096];
static int wrong;

static void report(const char *step, int error) {
  if (error < 0) error = errno;
  printf("%s: %s\n", step, error == 0 ? "succeeds" : strerrorname_np(error));
  fflush(stdout);
  if (error == 0) wrong = 1;
}

static void report_pointer(const char *step, const void *object) {
  int error = errno;
  report(step, object == NULL ? error : 0);
}

static struct ibv_qp_init_attr sizes(enum ibv_qp_type type) {
  struct ibv_qp_init_attr init = plain_init(cq, 4);
  init.qp_type = type;
  return init;
}

static int try_init(struct ibv_qp *qp, int mask) {
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11};
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);
}

/* Moves a queue pair to RTR, connected to itself, with one wrong field. */
#define REPORT_RTR(step, qp, field, value) \
  do { \
    struct ibv_qp_attr rtr_ = rtr_attr(qp, qp->qp_num, 0); \
    rtr_.field = value; \
    report(step, ibv_modify_qp(qp, &rtr_, RTR_MASK)); \
  } while (0)

static void paths(void) {
  struct ibv_qp *qp = create_qp(pd, sizes(IBV_QPT_RC));
  report("no IBV_QP_ACCESS_FLAGS", try_init(qp, IBV_QP_PKEY_INDEX | IBV_QP_PORT));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 0};
  report("port_num 0", ibv_modify_qp(qp, &attr, IBV_QP_STATE | INIT_MASK));
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS};
  report("RESET to RTS", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  try_init(qp, INIT_MASK);
  REPORT_RTR("is_global 0", qp, ah_attr.is_global, 0);
  REPORT_RTR("sgid_index 200", qp, ah_attr.grh.sgid_index, 200);
  REPORT_RTR("dgid not exchanged", qp, ah_attr.grh.dgid, (union ibv_gid){{0}});
  REPORT_RTR("sgid_index of the other family", qp, ah_attr.grh.sgid_index, 1);
  REPORT_RTR("path_mtu in bytes", qp, path_mtu, (enum ibv_mtu)1024);
  REPORT_RTR("path_mtu 1500", qp, path_mtu, (enum ibv_mtu)1500);
  REPORT_RTR("ah_attr.port_num 0", qp, ah_attr.port_num, 0);
  attr = rtr_attr(qp, qp->qp_num, 0);
  report("no IBV_QP_DEST_QPN", ibv_modify_qp(qp, &attr, RTR_MASK & ~IBV_QP_DEST_QPN));
  ibv_modify_qp(qp, &attr, RTR_MASK);
  attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 40, .retry_cnt = 7};
  report("timeout 40", ibv_modify_qp(qp, &attr, RTS_MASK));
  ibv_destroy_qp(qp);
}

static void memory(void) {
  report_pointer("remote write without local write",
                 ibv_reg_mr(pd, buffer, sizeof buffer, IBV_ACCESS_REMOTE_WRITE));
  static const char constant[] = "a string literal lies in pages that cannot be written";
  report_pointer("read-only memory",
                 ibv_reg_mr(pd, (void *)constant, sizeof constant, IBV_ACCESS_LOCAL_WRITE));
  report_pointer("length 0", ibv_reg_mr(pd, buffer, 0, IBV_ACCESS_LOCAL_WRITE));
}

static void queues(const char *iwarp_name) {
  report_pointer("cqe too large", ibv_create_cq(roce, 1 << 30, NULL, NULL, 0));
  report_pointer("comp_vector", ibv_create_cq(roce, 4, NULL, NULL, roce->num_comp_vectors));
  struct ibv_qp_init_attr init = sizes(IBV_QPT_RC);
  init.cap.max_send_sge = 1000;
  report_pointer("max_send_sge 1000", ibv_create_qp(pd, &init));
  struct ibv_qp *qp = create_qp(pd, sizes(IBV_QPT_RC));
  struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
  report("post in RESET", ibv_post_send(qp, &wr, &bad));
  report("destroy the CQ first", ibv_destroy_cq(cq));
  report("deallocate the PD first", ibv_dealloc_pd(pd));
  union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 1}};
  report("multicast on RC", ibv_attach_mcast(qp, &group, 0));
  ibv_destroy_qp(qp);
  qp = create_qp(pd, sizes(IBV_QPT_UD));
  report("UD without Q_Key", try_init(qp, IBV_QP_PKEY_INDEX | IBV_QP_PORT));
  ibv_destroy_qp(qp);
  struct ibv_ah_attr vector = {.port_num = 1};
  report_pointer("address handle without GRH", ibv_create_ah(pd, &vector));
  struct ibv_context *iwarp = open_device(iwarp_name);
  struct ibv_pd *domain = ibv_alloc_pd(iwarp);
  struct ibv_cq *queue = ibv_create_cq(iwarp, 4, NULL, NULL, 0);
  init = sizes(IBV_QPT_UD);
  init.send_cq = init.recv_cq = queue;
  report_pointer("UD on iWARP", ibv_create_qp(domain, &init));
  init.qp_type = IBV_QPT_RC;
  qp = ibv_create_qp(domain, &init);
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};
  report("iWARP without rdma_cm", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  ibv_destroy_qp(qp);
  ibv_destroy_cq(queue);
  ibv_dealloc_pd(domain);
  ibv_close_device(iwarp);
}

static void connections(const char *own) {
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *id, *other;
  struct sockaddr_in address = {.sin_family = AF_INET};
  rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
  rdma_create_id(channel, &other, NULL, RDMA_PS_TCP);
  inet_pton(AF_INET, "203.0.113.1", &address.sin_addr);
  report("bind to a foreign address", rdma_bind_addr(id, (struct sockaddr *)&address));
  inet_pton(AF_INET, own, &address.sin_addr);
  rdma_bind_addr(id, (struct sockaddr *)&address);
  rdma_listen(id, 1);
  report("listen twice", rdma_listen(id, 1));
  address.sin_port = rdma_get_src_port(id);
  report("bind to a port in use", rdma_bind_addr(other, (struct sockaddr *)&address));
  rdma_destroy_id(other);
  rdma_destroy_id(id);
  rdma_destroy_event_channel(channel);
}

int main(int count, char **words) {
  if (count != 4) return 2;
  roce = open_device(words[1]);
  pd = ibv_alloc_pd(roce);
  cq = ibv_create_cq(roce, 16, NULL, NULL, 0);
  if (pd == NULL || cq == NULL) return 2;
  paths();
  memory();
  queues(words[2]);
  connections(words[3]);
  ibv_destroy_cq(cq);
  ibv_dealloc_pd(pd);
  ibv_close_device(roce);
  return wrong;
}
