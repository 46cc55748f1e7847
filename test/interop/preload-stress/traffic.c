/* Connections inside this process: messages travel to the daemon's device and back, verified. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stress.h"

#define MESSAGE_BYTES 3000
#define DEPTH 4
#define CONVERSATIONS_MAX 16

struct side {
  struct rdma_cm_id *id;
  struct rdma_event_channel *events;
  struct ibv_comp_channel *completions;
  struct ibv_cq *cq;
  struct ibv_mr *mr;
  /* DEPTH receives, then one send. */
  uint8_t *memory;
  unsigned unacknowledged;
  bool by_events;
};

atomic_int listening_port;
static atomic_int conversations;

static void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* Waits in short steps, because the end of the program raises no event. False at the end. */
static bool readable(int fd, bool listens) {
  int64_t limit = now_ms() + WAIT_LIMIT_MS;
  for (;;) {
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    if (listens && closing) return false;
    if (poll(&entry, 1, 50) > 0) return true;
    REQUIRE(listens || now_ms() < limit);
  }
}

/* The next event of a connection's channel, acknowledged: its type, or -1. */
static int next_event(struct side *side) {
  struct rdma_cm_event *event;
  while (readable(side->events->fd, false)) {
    if (rdma_get_cm_event(side->events, &event) == 0) {
      int type = (int)event->event;
      rdma_ack_cm_event(event);
      return type;
    }
    if (errno != EAGAIN) return -1;
  }
  return -1;
}

static struct ibv_sge piece(struct side *side, unsigned index) {
  return (struct ibv_sge){.addr = (uintptr_t)side->memory + index * MESSAGE_BYTES,
                          .length = MESSAGE_BYTES,
                          .lkey = side->mr->lkey};
}

static bool post_receive(struct side *side, unsigned index) {
  struct ibv_sge sge = piece(side, index);
  struct ibv_recv_wr wr = {.wr_id = index, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr *bad;
  return EXPECT(ibv_post_recv(side->id->qp, &wr, &bad) == 0);
}

static bool equip(struct side *side, struct chance *chance) {
  side->by_events = below(chance, 2) == 0;
  side->memory = malloc((DEPTH + 1) * MESSAGE_BYTES);
  side->completions = ibv_create_comp_channel(side->id->verbs);
  if (!EXPECT(side->completions != NULL)) return false;
  set_nonblocking(side->completions->fd);
  side->cq = ibv_create_cq(side->id->verbs, 2 * DEPTH, NULL, side->completions, 0);
  if (!EXPECT(side->cq != NULL)) return false;
  struct ibv_qp_init_attr attributes = {
      .send_cq = side->cq,
      .recv_cq = side->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1};
  if (!EXPECT(rdma_create_qp(side->id, NULL, &attributes) == 0)) return false;
  side->mr = ibv_reg_mr(side->id->qp->pd, side->memory, (DEPTH + 1) * MESSAGE_BYTES,
                        IBV_ACCESS_LOCAL_WRITE);
  if (!EXPECT(side->mr != NULL)) return false;
  for (unsigned index = 0; index < DEPTH; index++) {
    if (!post_receive(side, index)) return false;
  }
  return true;
}

/* Frees everything, even after the daemon's death. */
static void strip(struct side *side) {
  if (side->mr != NULL) EXPECT(ibv_dereg_mr(side->mr) == 0);
  if (side->id != NULL && side->id->qp != NULL) rdma_destroy_qp(side->id);
  if (side->unacknowledged > 0) ibv_ack_cq_events(side->cq, side->unacknowledged);
  if (side->cq != NULL) EXPECT(ibv_destroy_cq(side->cq) == 0);
  if (side->completions != NULL) EXPECT(ibv_destroy_comp_channel(side->completions) == 0);
  if (side->id != NULL) EXPECT(rdma_destroy_id(side->id) == 0);
  if (side->events != NULL) rdma_destroy_event_channel(side->events);
  free(side->memory);
}

/* Takes a completion, by polling or by event. False if none will arrive. */
static bool complete(struct side *side, struct ibv_wc *wc) {
  int64_t limit = now_ms() + WAIT_LIMIT_MS;
  for (;;) {
    if (side->by_events && !EXPECT(ibv_req_notify_cq(side->cq, 0) == 0)) return false;
    int found = ibv_poll_cq(side->cq, 1, wc);
    if (found != 0) return EXPECT(found == 1 && wc->status == IBV_WC_SUCCESS);
    REQUIRE(now_ms() < limit);
    if (!side->by_events) continue;
    struct pollfd entry = {.fd = side->completions->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    if (poll(&entry, 1, 50) <= 0) continue;
    if (ibv_get_cq_event(side->completions, &cq, &context) == 0) side->unacknowledged++;
    else if (!EXPECT(errno == EAGAIN)) return false;
  }
}

static void fill(uint8_t *bytes, unsigned seed) {
  for (unsigned index = 0; index < MESSAGE_BYTES; index++) bytes[index] = (uint8_t)(seed + index);
}

static bool send_message(struct side *side, const uint8_t *bytes) {
  struct ibv_sge sge = piece(side, DEPTH);
  struct ibv_send_wr wr = {.wr_id = DEPTH, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
  struct ibv_send_wr *bad;
  memcpy(side->memory + DEPTH * MESSAGE_BYTES, bytes, MESSAGE_BYTES);
  return EXPECT(ibv_post_send(side->id->qp, &wr, &bad) == 0);
}

/* Sends, and takes the answer, before or after the completion of the send. */
static bool exchange(struct side *side, unsigned seed) {
  uint8_t expected[MESSAGE_BYTES];
  fill(expected, seed);
  if (!send_message(side, expected)) return false;
  bool sent = false;
  bool answered = false;
  while (!sent || !answered) {
    struct ibv_wc wc;
    if (!complete(side, &wc)) return false;
    if (wc.wr_id == DEPTH) {
      sent = true;
      continue;
    }
    answered = true;
    REQUIRE(memcmp(side->memory + wc.wr_id * MESSAGE_BYTES, expected, MESSAGE_BYTES) == 0);
    if (!post_receive(side, (unsigned)wc.wr_id)) return false;
  }
  tally.messages++;
  return true;
}

static bool resolve(struct side *side) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)listening_port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
  side->events = rdma_create_event_channel();
  if (!EXPECT(side->events != NULL)) return false;
  set_nonblocking(side->events->fd);
  if (!EXPECT(rdma_create_id(side->events, &side->id, NULL, RDMA_PS_TCP) == 0)) return false;
  if (!EXPECT(rdma_resolve_addr(side->id, NULL, (struct sockaddr *)&address, 2000) == 0))
    return false;
  if (!EXPECT(next_event(side) == RDMA_CM_EVENT_ADDR_RESOLVED)) return false;
  if (!EXPECT(rdma_resolve_route(side->id, 2000) == 0)) return false;
  return EXPECT(next_event(side) == RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static void converse_once(struct chance *chance) {
  struct side side = {.id = NULL};
  struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
  if (resolve(&side) && equip(&side, chance) && EXPECT(rdma_connect(side.id, &parameters) == 0) &&
      EXPECT(next_event(&side) == RDMA_CM_EVENT_ESTABLISHED)) {
    unsigned rounds = 1 + below(chance, 20);
    for (unsigned round = 0; round < rounds && exchange(&side, below(chance, 256)); round++) {
    }
    /* Now and then the id is destroyed without a disconnect. */
    if (below(chance, 3) > 0 && EXPECT(rdma_disconnect(side.id) == 0)) {
      EXPECT(next_event(&side) == RDMA_CM_EVENT_DISCONNECTED);
    }
    tally.connections++;
  }
  strip(&side);
}

void *converse(void *argument) {
  while (!stopping) converse_once(argument);
  return NULL;
}

struct answerer {
  struct side side;
  struct chance chance;
};

/* Returns every message until the other end is gone. */
static void *answer(void *argument) {
  struct answerer *self = argument;
  struct side *side = &self->side;
  struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1};
  if (equip(side, &self->chance) && EXPECT(rdma_accept(side->id, &parameters) == 0)) {
    int64_t limit = now_ms() + WAIT_LIMIT_MS;
    bool connected = true;
    while (connected) {
      struct ibv_wc wc;
      struct rdma_cm_event *event;
      int found = ibv_poll_cq(side->cq, 1, &wc);
      if (found == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id < DEPTH) {
        uint8_t message[MESSAGE_BYTES];
        memcpy(message, side->memory + wc.wr_id * MESSAGE_BYTES, MESSAGE_BYTES);
        /* The other end may already be gone; events report that. */
        struct ibv_sge sge = piece(side, DEPTH);
        struct ibv_send_wr send = {
            .wr_id = DEPTH, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
        struct ibv_send_wr *bad;
        if (!post_receive(side, (unsigned)wc.wr_id)) break;
        memcpy(side->memory + DEPTH * MESSAGE_BYTES, message, MESSAGE_BYTES);
        ibv_post_send(side->id->qp, &send, &bad);
      }
      if (found != 0) continue;
      if (rdma_get_cm_event(side->events, &event) == 0) {
        connected = event->event == RDMA_CM_EVENT_ESTABLISHED;
        rdma_ack_cm_event(event);
      } else {
        connected = EXPECT(errno == EAGAIN);
      }
      REQUIRE(now_ms() < limit);
      usleep(200);
    }
  }
  strip(side);
  free(self);
  conversations--;
  return NULL;
}

/* Passes a request to a new thread with its own channel. */
static void admit(struct rdma_cm_id *id, struct chance *chance) {
  struct answerer *self = calloc(1, sizeof *self);
  pthread_t thread;
  self->side.id = id;
  self->chance = chance_of(below(chance, 1u << 30), 0);
  self->side.events = rdma_create_event_channel();
  bool handed = EXPECT(self->side.events != NULL) &&
                EXPECT(rdma_migrate_id(id, self->side.events) == 0);
  if (handed) {
    set_nonblocking(self->side.events->fd);
    conversations++;
    REQUIRE(pthread_create(&thread, NULL, answer, self) == 0);
    pthread_detach(thread);
    return;
  }
  strip(&self->side);
  free(self);
}

static void take_request(struct rdma_event_channel *events, struct chance *chance) {
  struct rdma_cm_event *event;
  if (rdma_get_cm_event(events, &event) != 0) {
    EXPECT(errno == EAGAIN);
    return;
  }
  bool request = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
  struct rdma_cm_id *id = event->id;
  rdma_ack_cm_event(event);
  if (request) admit(id, chance);
  else failed(__FILE__, __LINE__, "a request or nothing");
}

void *serve(void *argument) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  struct rdma_event_channel *events = rdma_create_event_channel();
  struct rdma_cm_id *id = NULL;
  if (!EXPECT(events != NULL)) return NULL;
  set_nonblocking(events->fd);
  if (EXPECT(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0) &&
      EXPECT(rdma_bind_addr(id, (struct sockaddr *)&address) == 0) &&
      EXPECT(rdma_listen(id, CONVERSATIONS_MAX) == 0)) {
    listening_port = ntohs(rdma_get_src_port(id));
    while (readable(events->fd, true)) take_request(events, argument);
  }
  /* All connected ends have finished, or know that the daemon is gone. */
  int64_t limit = now_ms() + WAIT_LIMIT_MS;
  while (conversations > 0) {
    REQUIRE(now_ms() < limit);
    usleep(1000);
  }
  if (id != NULL) EXPECT(rdma_destroy_id(id) == 0);
  rdma_destroy_event_channel(events);
  return NULL;
}
