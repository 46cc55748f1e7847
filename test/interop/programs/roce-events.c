/*
 * Raises every asynchronous event of a RoCE device by the cause that it has on hardware, with both
 * ends in one process: roce-events DEVICE GID_INDEX. It prints a line for each case with the events
 * that its queue pairs and queues got, and ends with 1 when something else is wrong. The last case
 * waits for two events of the port, after a line that says so.
 */
#include <poll.h>

#include "program.h"

#define MEMORY_BYTES 4096
#define DEPTH 16
#define SECONDS_MAX 20
/* Time without an event after which a case has all of them. */
#define QUIET_MS 150

static struct ibv_context *context;
static int gid_index;

/* One end. */
struct end {
  struct ibv_pd *pd;
  struct ibv_cq *send_cq;
  struct ibv_cq *recv_cq;
  struct ibv_srq *srq;
  struct ibv_mr *mr;
  uint8_t *memory;
  struct ibv_qp *qp;
};

static struct end ends[2];
static bool shared;
/* Rights that queue pairs grant to their peers. */
static unsigned granted = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
static int send_cqe = 2 * DEPTH;
static int recv_cqe = 2 * DEPTH;

static void to_rtr(struct end *end, const struct end *peer) {
  struct ibv_qp_attr attr = rtr_attr(end->qp, peer->qp->qp_num, gid_index);
  attr.rq_psn = 7;
  CHECK(ibv_modify_qp(end->qp, &attr, RTR_MASK) == 0);
}

static void to_rts(struct end *end) {
  struct ibv_qp_attr attr = rts_attr();
  attr.sq_psn = 7;
  CHECK(ibv_modify_qp(end->qp, &attr, RTS_MASK) == 0);
}

static void open_end(struct end *end) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  end->pd = MADE(ibv_alloc_pd(context));
  end->memory = MADE(calloc(1, MEMORY_BYTES));
  end->mr = MADE(ibv_reg_mr(end->pd, end->memory, MEMORY_BYTES, access));
  end->send_cq = MADE(ibv_create_cq(context, send_cqe, NULL, NULL, 0));
  end->recv_cq = MADE(ibv_create_cq(context, recv_cqe, NULL, NULL, 0));
  end->srq = NULL;
  if (shared) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    end->srq = MADE(ibv_create_srq(end->pd, &init));
  }
  struct ibv_qp_init_attr init = plain_init(end->send_cq, 64);
  init.recv_cq = end->recv_cq;
  init.srq = end->srq;
  end->qp = create_qp(end->pd, init);
}

static void open_ends(const char *named, bool connected) {
  title = named;
  for (int side = 0; side < 2; side++) open_end(&ends[side]);
  for (int side = 0; side < 2; side++) to_init(ends[side].qp, granted);
  for (int side = 0; side < 2; side++) to_rtr(&ends[side], &ends[!side]);
  for (int side = 0; side < 2 && connected; side++) to_rts(&ends[side]);
}

static void close_ends(void) {
  for (int side = 0; side < 2; side++) {
    struct end *end = &ends[side];
    CHECK(ibv_destroy_qp(end->qp) == 0);
    if (end->srq != NULL) CHECK(ibv_destroy_srq(end->srq) == 0);
    CHECK(ibv_destroy_cq(end->send_cq) == 0);
    CHECK(ibv_destroy_cq(end->recv_cq) == 0);
    CHECK(ibv_dereg_mr(end->mr) == 0);
    CHECK(ibv_dealloc_pd(end->pd) == 0);
    free(end->memory);
  }
  shared = false;
  send_cqe = recv_cqe = 2 * DEPTH;
}

static void post_receives(struct end *end, int count, uint32_t length) {
  for (int at = 0; at < count; at++) {
    struct ibv_sge sge = piece(end->mr, end->memory, length);
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    CHECK((end->srq != NULL ? ibv_post_srq_recv(end->srq, &wr, &bad)
                            : ibv_post_recv(end->qp, &wr, &bad)) == 0);
  }
}

/* A request of the first end to the second one. */
static void request(enum ibv_wr_opcode opcode, uint32_t rkey) {
  struct ibv_sge sge = piece(ends[0].mr, ends[0].memory, 64);
  CHECK(post_send(ends[0].qp, opcode, sge, ends[1].memory, rkey) == 0);
}

static void send_all(int count) {
  for (int at = 0; at < count; at++) request(IBV_WR_SEND, 0);
}

static void expect(struct ibv_cq *cq, enum ibv_wc_status status, int count) {
  for (int at = 0; at < count; at++) {
    enum ibv_wc_status seen = next_completion(cq).status;
    if (seen != status) printf("%s: status %s\n", title, ibv_wc_status_str(seen));
    CHECK(seen == status);
  }
}

static const char *owner(const struct ibv_async_event *event) {
  for (int side = 0; side < 2; side++) {
    const struct end *end = &ends[side];
    switch (event->event_type) {
      case IBV_EVENT_CQ_ERR:
        if (event->element.cq == end->send_cq) return side == 0 ? "A.send" : "B.send";
        if (event->element.cq == end->recv_cq) return side == 0 ? "A.recv" : "B.recv";
        break;
      case IBV_EVENT_SRQ_LIMIT_REACHED:
        if (event->element.srq == end->srq) return side == 0 ? "A" : "B";
        break;
      case IBV_EVENT_PORT_ACTIVE:
      case IBV_EVENT_PORT_ERR:
      case IBV_EVENT_GID_CHANGE:
        CHECK(event->element.port_num == 1);
        return "port 1";
      default:
        if (event->element.qp == end->qp) return side == 0 ? "A" : "B";
    }
  }
  return "no queue pair";
}

static bool next_event(int timeout_ms) {
  struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
  int count = poll(&ready, 1, timeout_ms);
  CHECK(count >= 0);
  if (count == 0) return false;
  struct ibv_async_event event;
  CHECK(ibv_get_async_event(context, &event) == 0);
  printf("%s: %s, %s\n", title, ibv_event_type_str(event.event_type), owner(&event));
  fflush(stdout);
  ibv_ack_async_event(&event);
  return true;
}

/* Waits for `count` events, and takes all further ones. */
static void events(int count) {
  for (int at = 0; at < count; at++) CHECK(next_event(SECONDS_MAX * 1000));
  while (next_event(QUIET_MS)) continue;
}

static void communication(void) {
  open_ends("COMM_EST", false);
  to_rts(&ends[0]);
  post_receives(&ends[1], 2, 64);
  send_all(2);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 2);
  events(1);
  close_ends();
}

static struct ibv_qp_attr queried(struct ibv_qp *qp) {
  struct ibv_qp_attr attr;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
  return attr;
}

static void drained(void) {
  open_ends("SQ_DRAINED, idle", true);
  to_state(ends[0].qp, IBV_QPS_SQD);
  events(1);
  close_ends();
  open_ends("SQ_DRAINED, not yet", true);
  /* Not waited for: it stays in flight. */
  send_all(1);
  usleep(20000);
  to_state(ends[0].qp, IBV_QPS_SQD);
  struct ibv_qp_attr attr = queried(ends[0].qp);
  CHECK(attr.qp_state == IBV_QPS_SQD && attr.sq_draining == 1);
  events(0);
  title = "SQ_DRAINED, then";
  post_receives(&ends[1], 1, 64);
  events(1);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 1);
  attr = queried(ends[0].qp);
  CHECK(attr.qp_state == IBV_QPS_SQD && attr.sq_draining == 0);
  close_ends();
}

static void last_receive(void) {
  shared = true;
  open_ends("LAST_WQE_REACHED", true);
  to_state(ends[1].qp, IBV_QPS_ERR);
  events(1);
  close_ends();
}

static void refuse(const char *named, enum ibv_wr_opcode opcode, uint32_t wrong,
                   enum ibv_wc_status status) {
  open_ends(named, true);
  request(opcode, ends[1].mr->rkey ^ wrong);
  expect(ends[0].send_cq, status, 1);
  events(1);
  close_ends();
}

static void refused(void) {
  refuse("ACCESS_ERR", IBV_WR_RDMA_WRITE, 1, IBV_WC_REM_ACCESS_ERR);
  refuse("ACCESS_ERR, no right", IBV_WR_RDMA_READ, 0, IBV_WC_REM_ACCESS_ERR);
  granted = IBV_ACCESS_REMOTE_READ;
  refuse("REQ_ERR", IBV_WR_RDMA_WRITE, 0, IBV_WC_REM_INV_REQ_ERR);
}

static void limit(void) {
  struct ibv_srq_attr attr = {.srq_limit = 6};
  shared = true;
  open_ends("SRQ_LIMIT", true);
  post_receives(&ends[1], 8, 64);
  CHECK(ibv_modify_srq(ends[1].srq, &attr, IBV_SRQ_LIMIT) == 0);
  send_all(2);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 2);
  events(0);
  CHECK(ibv_query_srq(ends[1].srq, &attr) == 0 && attr.srq_limit == 6);
  title = "SRQ_LIMIT, one below";
  send_all(3);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 3);
  events(1);
  CHECK(ibv_query_srq(ends[1].srq, &attr) == 0 && attr.srq_limit == 0);
  title = "SRQ_LIMIT, armed again";
  attr.srq_limit = 3;
  CHECK(ibv_modify_srq(ends[1].srq, &attr, IBV_SRQ_LIMIT) == 0);
  send_all(1);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 1);
  events(1);
  close_ends();
}

static void overrun(void) {
  send_cqe = 1;
  open_ends("CQ_ERR, send queue", true);
  int room = ends[0].send_cq->cqe;
  post_receives(&ends[1], room + 3, 64);
  send_all(room + 3);
  expect(ends[1].recv_cq, IBV_WC_SUCCESS, room + 3);
  /* Three completions are lost, each with its event, and the queue pair still works. */
  events(3);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, room);
  CHECK(queried(ends[0].qp).qp_state == IBV_QPS_RTS);
  post_receives(&ends[1], 1, 64);
  send_all(1);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, 1);
  events(0);
  close_ends();
  recv_cqe = 1;
  open_ends("CQ_ERR, receive queue", true);
  room = ends[1].recv_cq->cqe;
  post_receives(&ends[1], room + 1, 64);
  send_all(room);
  expect(ends[0].send_cq, IBV_WC_SUCCESS, room);
  send_all(1);
  events(1);
  CHECK(queried(ends[1].qp).qp_state == IBV_QPS_ERR);
  close_ends();
}

static void port(void) {
  struct ibv_port_attr attr;
  title = "port";
  printf("port: waits\n");
  fflush(stdout);
  for (int count = 0; count < 2; count++) {
    CHECK(next_event(SECONDS_MAX * 1000));
    CHECK(ibv_query_port(context, 1, &attr) == 0);
    printf("port: %s\n", ibv_port_state_str(attr.state));
    fflush(stdout);
  }
}

int main(int count, char **words) {
  CHECK(count == 3);
  context = open_device(words[1]);
  gid_index = atoi(words[2]);
  communication();
  drained();
  last_receive();
  refused();
  limit();
  overrun();
  port();
  CHECK(ibv_close_device(context) == 0);
  return 0;
}
