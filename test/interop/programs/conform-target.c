/*
 * The other end of `iwarpd conform`, as `iwarpd conform --serve`, for any device of rdma-core: accepts
 * connections, offers each some memory, and serves adverts of rping.
 *
 *   conform-target ADDRESS PORT     runs until it is killed
 *   cc -o conform-target conform-target.c -lrdmacm -libverbs -lpthread
 *
 * The offer and the adverts are those of daemon/cli/conform/offer.ts and daemon/cli/rping/rping-protocol.ts.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <rdma/rdma_cma.h>
#include <poll.h>
#include <pthread.h>

#include "program.h"

enum {
  REGION_BYTES = 65536,
  PING_BYTES = 65536,
  RECEIVES = 4,
  RECEIVE_BYTES = 1024,
  ADVERT_BYTES = 16,
  OFFER_BYTES = 28,
  SEND_DEPTH = 4,
  DEPTH = 4,
  BACKLOG = 16,
  /** How often a thread checks whether its connection is over. */
  OVER_CHECK_MS = 20,
};

/** Work request numbers; receives have that of their slot. */
enum { READ = 100, WRITE, SEND };

struct connection {
  struct rdma_cm_id *id;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_pd *pd;
  struct ibv_mr *region, *text, *receives;
  unsigned char region_bytes[REGION_BYTES] __attribute__((aligned(8)));
  unsigned char text_bytes[PING_BYTES];
  unsigned char receive_bytes[RECEIVES][RECEIVE_BYTES];
  /** Bytes of the last Read, and whether the next advert is that of the sink. */
  uint32_t size;
  bool has_read;
  volatile bool over;
  pthread_t thread;
};

static void post_receive(struct connection *c, int slot) {
  struct ibv_sge sge = {(uintptr_t)c->receive_bytes[slot], RECEIVE_BYTES, c->receives->lkey};
  struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
  ibv_post_recv(c->id->qp, &wr, &bad);
}

static void post(struct connection *c, int what, enum ibv_wr_opcode opcode, uint32_t size, uint64_t address,
                 uint32_t rkey) {
  struct ibv_sge sge = {(uintptr_t)c->text_bytes, size, c->text->lkey};
  struct ibv_send_wr wr = {
      .wr_id = what, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
  struct ibv_send_wr *bad;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = rkey;
  ibv_post_send(c->id->qp, &wr, &bad);
}

/** Bytes of the text with its NUL. */
static uint32_t text_size(const struct connection *c) {
  uint32_t length = strnlen((const char *)c->text_bytes, c->size);
  return length < c->size ? length + 1 : length;
}

static void handle_advert(struct connection *c, const unsigned char *bytes) {
  uint64_t address;
  uint32_t rkey, size;
  memcpy(&address, bytes, 8);
  memcpy(&rkey, bytes + 8, 4);
  memcpy(&size, bytes + 12, 4);
  if (c->has_read) {
    post(c, WRITE, IBV_WR_RDMA_WRITE, text_size(c), be64toh(address), ntohl(rkey));
  } else if (ntohl(size) <= PING_BYTES) {
    c->size = ntohl(size);
    post(c, READ, IBV_WR_RDMA_READ, c->size, be64toh(address), ntohl(rkey));
  }
  c->has_read = !c->has_read;
}

static void handle(struct connection *c, const struct ibv_wc *wc) {
  if (wc->status != IBV_WC_SUCCESS) return;
  if (wc->wr_id == READ || wc->wr_id == WRITE) {
    /* The go-ahead, whose content has no meaning. */
    post(c, SEND, IBV_WR_SEND, ADVERT_BYTES, 0, 0);
  } else if (wc->wr_id < RECEIVES && wc->byte_len == ADVERT_BYTES && wc->opcode == IBV_WC_RECV) {
    unsigned char advert[ADVERT_BYTES];
    memcpy(advert, c->receive_bytes[wc->wr_id], sizeof advert);
    post_receive(c, wc->wr_id);
    handle_advert(c, advert);
  }
}

/** Handles completions until the connection is over. */
static void *serve(void *argument) {
  struct connection *c = argument;
  struct pollfd channel = {.fd = c->channel->fd, .events = POLLIN};
  struct ibv_cq *cq;
  struct ibv_wc wc;
  void *context;
  while (!c->over) {
    if (poll(&channel, 1, OVER_CHECK_MS) <= 0) continue;
    if (ibv_get_cq_event(c->channel, &cq, &context)) return NULL;
    ibv_ack_cq_events(cq, 1);
    ibv_req_notify_cq(cq, 0);
    while (ibv_poll_cq(cq, 1, &wc) > 0) handle(c, &wc);
  }
  return NULL;
}

static void emit_offer(const struct connection *c, unsigned char *bytes) {
  uint64_t address = htobe64((uintptr_t)c->region_bytes);
  uint32_t rkey = htonl(c->region->rkey), length = htonl(REGION_BYTES), ping = htonl(PING_BYTES);
  memset(bytes, 0, OFFER_BYTES);
  memcpy(bytes, "iwcf", 4);
  bytes[4] = 1;
  bytes[5] = RECEIVES;
  memcpy(bytes + 8, &address, 8);
  memcpy(bytes + 16, &rkey, 4);
  memcpy(bytes + 20, &length, 4);
  memcpy(bytes + 24, &ping, 4);
}

static void accept_request(struct rdma_cm_id *id) {
  const int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  struct connection *c = calloc(1, sizeof *c);
  unsigned char offer[OFFER_BYTES];
  c->id = id;
  id->context = c;
  for (int i = 0; i < REGION_BYTES; i += 1) c->region_bytes[i] = i * 7 + (i >> 8);
  CHECK((c->pd = ibv_alloc_pd(id->verbs)) != NULL);
  CHECK((c->channel = ibv_create_comp_channel(id->verbs)) != NULL);
  CHECK((c->cq = ibv_create_cq(id->verbs, 2 * (RECEIVES + SEND_DEPTH), NULL, c->channel, 0)) != NULL);
  struct ibv_qp_init_attr init = {.send_cq = c->cq, .recv_cq = c->cq, .qp_type = IBV_QPT_RC};
  init.cap = (struct ibv_qp_cap){SEND_DEPTH, RECEIVES, 1, 1, 0};
  CHECK(rdma_create_qp(id, c->pd, &init) == 0);
  c->region = ibv_reg_mr(c->pd, c->region_bytes, REGION_BYTES, rights | IBV_ACCESS_REMOTE_ATOMIC);
  if (c->region == NULL) c->region = ibv_reg_mr(c->pd, c->region_bytes, REGION_BYTES, rights);
  CHECK(c->region != NULL);
  CHECK((c->text = ibv_reg_mr(c->pd, c->text_bytes, PING_BYTES, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  CHECK((c->receives = ibv_reg_mr(c->pd, c->receive_bytes, sizeof c->receive_bytes, IBV_ACCESS_LOCAL_WRITE)) != NULL);
  for (int slot = 0; slot < RECEIVES; slot += 1) post_receive(c, slot);
  CHECK(ibv_req_notify_cq(c->cq, 0) == 0);
  CHECK(pthread_create(&c->thread, NULL, serve, c) == 0);
  emit_offer(c, offer);
  struct rdma_conn_param parameters = {.private_data = offer,
                                       .private_data_len = sizeof offer,
                                       .responder_resources = DEPTH,
                                       .initiator_depth = DEPTH,
                                       .rnr_retry_count = 7};
  /* The tester may have gone. */
  if (rdma_accept(id, &parameters)) perror("rdma_accept");
}

static void end(struct connection *c) {
  c->over = true;
  pthread_join(c->thread, NULL);
  rdma_destroy_qp(c->id);
  ibv_dereg_mr(c->region);
  ibv_dereg_mr(c->text);
  ibv_dereg_mr(c->receives);
  ibv_destroy_cq(c->cq);
  ibv_destroy_comp_channel(c->channel);
  ibv_dealloc_pd(c->pd);
  rdma_destroy_id(c->id);
  free(c);
}

int main(int argc, char **argv) {
  struct rdma_event_channel *channel = rdma_create_event_channel();
  struct rdma_cm_id *listener;
  struct rdma_cm_event *event;
  struct sockaddr_in address = {.sin_family = AF_INET};
  CHECK(argc == 3 && inet_pton(AF_INET, argv[1], &address.sin_addr) == 1);
  address.sin_port = htons(atoi(argv[2]));
  CHECK(channel != NULL);
  CHECK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
  CHECK(rdma_bind_addr(listener, (struct sockaddr *)&address) == 0);
  CHECK(rdma_listen(listener, BACKLOG) == 0);
  printf("ready\n");
  fflush(stdout);
  while (rdma_get_cm_event(channel, &event) == 0) {
    enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      accept_request(id);
    } else if (type != RDMA_CM_EVENT_ESTABLISHED && type != RDMA_CM_EVENT_TIMEWAIT_EXIT && id != listener) {
      if (type == RDMA_CM_EVENT_DISCONNECTED) rdma_disconnect(id);
      end(id->context);
    }
  }
  return 1;
}
