/*
 * One rank of a ring of processes that add up their arrays, with the calls of NCCL's IB transport in
 * their order: libibverbs loaded by dlopen, queue pairs on all RoCE devices connected over TCP, a
 * FIFO of clear-to-send records that the receiver writes into the sender's memory, data as Writes
 * that end with immediate data, and a flush by a Read on a queue pair that is connected to itself.
 *
 * usage: ib-transport RANK RANKS ADDRESS PORT ROUNDS PARTS
 *
 * Rank 0 listens at ADDRESS and PORT (0: any, which it prints) for the others. It ends after ROUNDS,
 * or after the round in which any rank gets SIGUSR1. Each message is received in PARTS of a tag
 * each. Variables have NCCL's names and meanings; NCCL_IB_QPS_PER_CONNECTION is 2 by default.
 *
 * A rank that sees an error says so, closes its sockets and ends with status 1, so its neighbours do.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "ib-devices.h"

#define QPS_MAX 16
#define SLOTS 256
#define PARTS_MAX 8
#define CHUNK_BYTES_MAX (1u << 20)
#define IN_FLIGHT_MAX 8
/* Pieces for the queue pairs are multiples of this. */
#define PIECE_BYTES 128u
/* With adaptive routing, immediate data follow longer messages in a Write of their own. */
#define ROUTED_BYTES 8192u
#define FLUSH_WR_ID 0x1000u
#define DATA_ACCESS \
  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
   IBV_ACCESS_REMOTE_ATOMIC)
#define FIFO_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* A record of the FIFO: the receiver allows the sender to write a part of a message. */
struct clear_to_send {
  _Alignas(32) uint64_t addr;
  uint64_t size;
  uint32_t rkeys[DEVICES_MAX];
  uint32_t parts;
  uint32_t tag;
  uint64_t number;
};

/* Written by the sender of a message of several parts, at its end. */
struct record {
  uint32_t sizes[PARTS_MAX];
  uint8_t completions[128];
};

/* A message under way. */
struct request {
  uint32_t sizes[PARTS_MAX];
  uint32_t parts;
  uint8_t *data[PARTS_MAX];
  /* Completions that it waits for, on each device. */
  int events[DEVICES_MAX];
};

/* Either end sends one to the other over TCP. */
struct introduction {
  struct {
    uint32_t qpn, device;
    struct ibv_ece ece;
    int has_ece;
  } qps[QPS_MAX];
  struct {
    union ibv_gid gid;
    uint32_t rkey;
    enum ibv_mtu mtu;
  } devices[DEVICES_MAX];
  uint64_t addr;
};

/* A connection, to the next rank or from the previous one. */
struct connection {
  int peer, socket;
  bool sends;
  struct ibv_cq *cqs[DEVICES_MAX];
  struct ibv_qp *qps[QPS_MAX];
  struct ibv_mr *fifo_mrs[DEVICES_MAX], *record_mrs[DEVICES_MAX];
  struct introduction remote;
  /* Messages so far, and the latest ones. */
  uint64_t head;
  struct request requests[SLOTS];
  atomic_int fatal;
  /* Written by the receiver; at its end, where it writes them from. */
  struct clear_to_send fifo[SLOTS][PARTS_MAX];
  /* Written by the sender; at its end, where it writes them from. */
  struct record records[SLOTS];
  /* At the receiver, for flushes. */
  struct ibv_qp *flush_qps[DEVICES_MAX];
  struct ibv_mr *flush_mrs[DEVICES_MAX];
  int flush_target;
  struct request flush;
};

static int rank, ranks, qp_count, parts;
static int qps_per_device, timeout, retry_count, inline_data, adaptive_routing, split_on_qps;
static struct connection next = {.sends = true, .socket = -1}, previous = {.socket = -1};
static uint32_t *data, *scratch;
static volatile sig_atomic_t told;

static void on_signal(int number) { told = number; }

static int setting(const char *name, int otherwise) {
  const char *value = getenv(name);
  return value == NULL ? otherwise : atoi(value);
}

/* Ending */

static void close_connection(struct connection *connection) {
  for (int index = 0; index < qp_count; index++) {
    if (connection->qps[index] != NULL) CHECK(verbs.destroy_qp(connection->qps[index]) == 0);
  }
  for (int at = 0; at < device_count; at++) {
    if (connection->flush_qps[at] != NULL) CHECK(verbs.destroy_qp(connection->flush_qps[at]) == 0);
    if (connection->flush_mrs[at] != NULL) CHECK(verbs.dereg_mr(connection->flush_mrs[at]) == 0);
    if (connection->fifo_mrs[at] != NULL) CHECK(verbs.dereg_mr(connection->fifo_mrs[at]) == 0);
    if (connection->record_mrs[at] != NULL) CHECK(verbs.dereg_mr(connection->record_mrs[at]) == 0);
    if (connection->cqs[at] != NULL) CHECK(verbs.destroy_cq(connection->cqs[at]) == 0);
  }
}

/* As NCCL, it leaves the contexts open, on which its threads wait for events. */
static _Noreturn void end(int status) {
  close(next.socket);
  close(previous.socket);
  for (int at = 0; at < device_count; at++) {
    if (devices[at].data_mr != NULL) CHECK(verbs.dereg_mr(devices[at].data_mr) == 0);
    if (devices[at].scratch_mr != NULL) CHECK(verbs.dereg_mr(devices[at].scratch_mr) == 0);
  }
  close_connection(&next);
  close_connection(&previous);
  for (int at = 0; at < device_count; at++) {
    if (devices[at].pd != NULL) CHECK(verbs.dealloc_pd(devices[at].pd) == 0);
  }
  say(status == 0 ? "ends" : "aborts");
  exit(status);
}

static _Noreturn void lose(const struct connection *connection) {
  say("rank %d has gone", connection->peer);
  end(1);
}

/* TCP */

static void send_bytes(const struct connection *to, const void *bytes, size_t length) {
  if (send(to->socket, bytes, length, MSG_NOSIGNAL) != (ssize_t)length) lose(to);
}

static void receive_bytes(const struct connection *from, void *bytes, size_t length) {
  if (recv(from->socket, bytes, length, MSG_WAITALL) != (ssize_t)length) lose(from);
}

static struct sockaddr_in own_address(int fd) {
  struct sockaddr_in address;
  socklen_t length = sizeof address;
  CHECK(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
  return address;
}

static int listen_at(struct sockaddr_in address) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(listen(fd, ranks) == 0);
  return fd;
}

static int connect_to(struct sockaddr_in address) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
  return fd;
}

/* Where a rank accepts the previous one. */
struct place {
  int rank;
  struct sockaddr_in address;
};

/* Rank 0 collects the places of all ranks, and sends each rank that of the next. Then the ring connects. */
static void join_ring(const char *host, uint16_t port) {
  struct sockaddr_in root = {.sin_family = AF_INET, .sin_port = htons(port)}, own, after;
  CHECK(inet_pton(AF_INET, host, &root.sin_addr) == 1);
  if (rank == 0) {
    int listener = listen_at(root), callers[ranks];
    struct place places[ranks];
    say("listens at port %d", ntohs(own_address(listener).sin_port));
    own = root;
    own.sin_port = 0;
    previous.socket = listen_at(own);
    places[0] = (struct place){0, own_address(previous.socket)};
    for (int count = 1; count < ranks; count++) {
      int fd = accept(listener, NULL, NULL);
      struct place place;
      CHECK(recv(fd, &place, sizeof place, MSG_WAITALL) == sizeof place);
      places[place.rank] = place;
      callers[place.rank] = fd;
    }
    for (int to = 1; to < ranks; to++) {
      CHECK(send(callers[to], &places[(to + 1) % ranks].address, sizeof after, 0) == sizeof after);
      close(callers[to]);
    }
    close(listener);
    after = places[1].address;
  } else {
    int fd = connect_to(root);
    own = own_address(fd);
    own.sin_port = 0;
    previous.socket = listen_at(own);
    struct place place = {rank, own_address(previous.socket)};
    CHECK(send(fd, &place, sizeof place, 0) == sizeof place);
    CHECK(recv(fd, &after, sizeof after, MSG_WAITALL) == sizeof after);
    close(fd);
  }
  int listener = previous.socket;
  next.socket = connect_to(after);
  previous.socket = accept(listener, NULL, NULL);
  CHECK(previous.socket >= 0);
  close(listener);
}

/* Memory */

static void register_data(void) {
  size_t length = (size_t)ranks * CHUNK_BYTES_MAX;
  data = MADE(aligned_alloc(4096, length));
  scratch = MADE(aligned_alloc(4096, CHUNK_BYTES_MAX));
  for (int at = 0; at < device_count; at++) {
    struct device *device = &devices[at];
    device->data_mr = MADE(verbs.reg_mr_iova2(device->pd, data, length, (uintptr_t)data,
                                              DATA_ACCESS | IBV_ACCESS_RELAXED_ORDERING));
    device->scratch_mr = MADE(verbs.reg_mr(device->pd, scratch, CHUNK_BYTES_MAX, DATA_ACCESS));
  }
}

static const struct ibv_mr *region_of(const struct device *device, const uint8_t *bytes) {
  bool in_scratch = bytes >= (uint8_t *)scratch && bytes < (uint8_t *)scratch + CHUNK_BYTES_MAX;
  return in_scratch ? device->scratch_mr : device->data_mr;
}

/* Connections */

static int device_of(int qp_index) { return qp_index % device_count; }

static struct ibv_qp *make_qp(struct connection *connection, int device, uint32_t sends,
                              uint32_t receives, unsigned access) {
  struct ibv_qp_init_attr init = {
      .qp_context = &connection->fatal,
      .send_cq = connection->cqs[device],
      .recv_cq = connection->cqs[device],
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = sends,
              .max_recv_wr = receives,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = inline_data ? sizeof(struct clear_to_send) : 0}};
  struct ibv_qp *qp = MADE(verbs.create_qp(devices[device].pd, &init));
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access};
  CHECK(verbs.modify_qp(qp, &attr, INIT_MASK) == 0);
  return qp;
}

static void ready_qp(struct ibv_qp *qp, const struct device *device, enum ibv_mtu mtu,
                     uint32_t peer, const union ibv_gid *gid) {
  struct ibv_qp_attr rtr = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = mtu < device->port.active_mtu ? mtu : device->port.active_mtu,
      .dest_qp_num = peer,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {
          .is_global = 1,
          .port_num = 1,
          .grh = {.dgid = *gid, .sgid_index = (uint8_t)device->gid_index, .hop_limit = 255},
      }};
  struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
                            .timeout = (uint8_t)timeout,
                            .retry_cnt = (uint8_t)retry_count,
                            .rnr_retry = 7,
                            .max_rd_atomic = 1};
  CHECK(verbs.modify_qp(qp, &rtr, RTR_MASK) == 0);
  CHECK(verbs.modify_qp(qp, &rts, RTS_MASK) == 0);
}

static void make_queues(struct connection *connection, int entries) {
  for (int at = 0; at < device_count; at++) {
    struct device *device = &devices[at];
    if (device->pd == NULL) device->pd = MADE(verbs.alloc_pd(device->context));
    connection->cqs[at] =
        MADE(verbs.create_cq(device->context, entries, &connection->fatal, NULL, 0));
  }
}

static void register_queues(struct connection *connection) {
  for (int at = 0; at < device_count; at++) {
    struct ibv_pd *pd = devices[at].pd;
    connection->fifo_mrs[at] =
        MADE(verbs.reg_mr(pd, connection->fifo, sizeof connection->fifo, FIFO_ACCESS));
    connection->record_mrs[at] =
        MADE(verbs.reg_mr(pd, connection->records, sizeof connection->records, FIFO_ACCESS));
  }
}

static void introduce(const struct connection *connection, struct introduction own) {
  own.addr = connection->sends ? (uintptr_t)connection->fifo : (uintptr_t)connection->records;
  for (int at = 0; at < device_count; at++) {
    own.devices[at].gid = devices[at].gid;
    own.devices[at].mtu = devices[at].port.active_mtu;
    own.devices[at].rkey =
        connection->sends ? connection->fifo_mrs[at]->rkey : connection->record_mrs[at]->rkey;
  }
  send_bytes(connection, &own, sizeof own);
}

/* Enhanced connection establishment, which a device may lack. */
static bool has_ece(int error) {
  CHECK(error == 0 || error == EOPNOTSUPP);
  return error == 0;
}

/* The sender's queue pairs, up to INIT. */
static void prepare_sender(void) {
  struct introduction own = {0};
  make_queues(&next, SLOTS * qps_per_device);
  for (int index = 0; index < qp_count; index++) {
    struct ibv_qp *qp = make_qp(&next, device_of(index), 2 * SLOTS, 0, IBV_ACCESS_REMOTE_WRITE);
    next.qps[index] = qp;
    own.qps[index].qpn = qp->qp_num;
    own.qps[index].device = device_of(index);
    own.qps[index].has_ece = has_ece(verbs.query_ece(qp, &own.qps[index].ece));
  }
  register_queues(&next);
  introduce(&next, own);
}

static void make_flush(int at) {
  struct device *device = &devices[at];
  struct ibv_qp *qp =
      make_qp(&previous, at, SLOTS, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  ready_qp(qp, device, device->port.active_mtu, qp->qp_num, &device->gid);
  previous.flush_qps[at] = qp;
  previous.flush_mrs[at] = MADE(verbs.reg_mr(device->pd, &previous.flush_target,
                                             sizeof previous.flush_target, IBV_ACCESS_LOCAL_WRITE));
}

/* The receiver's queue pairs, up to RTS. */
static void answer_sender(void) {
  struct introduction own = {0}, *remote = &previous.remote;
  receive_bytes(&previous, remote, sizeof *remote);
  make_queues(&previous, 2 * SLOTS * qps_per_device);
  for (int index = 0; index < qp_count; index++) {
    int at = device_of(index), far = remote->qps[index].device;
    struct ibv_qp *qp =
        make_qp(&previous, at, 2 * SLOTS, SLOTS,
                IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ);
    previous.qps[index] = qp;
    own.qps[index].qpn = qp->qp_num;
    own.qps[index].device = at;
    bool ece = remote->qps[index].has_ece && has_ece(verbs.set_ece(qp, &remote->qps[index].ece));
    ready_qp(qp, &devices[at], remote->devices[far].mtu, remote->qps[index].qpn,
             &remote->devices[far].gid);
    if (ece) own.qps[index].has_ece = has_ece(verbs.query_ece(qp, &own.qps[index].ece));
  }
  for (int at = 0; at < device_count; at++) make_flush(at);
  register_queues(&previous);
  introduce(&previous, own);
}

static void finish_sender(void) {
  struct introduction *remote = &next.remote;
  receive_bytes(&next, remote, sizeof *remote);
  for (int index = 0; index < qp_count; index++) {
    int far = remote->qps[index].device;
    struct ibv_qp *qp = next.qps[index];
    if (remote->qps[index].has_ece) CHECK(has_ece(verbs.set_ece(qp, &remote->qps[index].ece)));
    ready_qp(qp, &devices[device_of(index)], remote->devices[far].mtu, remote->qps[index].qpn,
             &remote->devices[far].gid);
  }
}

/* Exchanges a number with both neighbours. */
static void meet(int value) {
  int theirs;
  send_bytes(&next, &value, sizeof value);
  send_bytes(&previous, &value, sizeof value);
  receive_bytes(&previous, &theirs, sizeof theirs);
  CHECK(theirs == value);
  receive_bytes(&next, &theirs, sizeof theirs);
  CHECK(theirs == value);
}

static void connect_ring(void) {
  meet(qp_count);
  prepare_sender();
  answer_sender();
  finish_sender();
  meet(1);
}

/* Messages */

static int qps_per_message(void) { return split_on_qps ? qp_count : device_count; }

static int qp_index(uint64_t number, int at) {
  return (int)((number * (uint64_t)qps_per_message() + (uint64_t)at) % (uint64_t)qp_count);
}

/* A new request, which waits for a completion of each of its queue pairs. */
static struct request *new_request(struct connection *connection) {
  struct request *request = &connection->requests[connection->head % SLOTS];
  for (int at = 0; at < device_count; at++) CHECK(request->events[at] == 0);
  request->parts = 0;
  for (int at = 0; at < qps_per_message(); at++) {
    request->events[device_of(qp_index(connection->head, at))]++;
  }
  return request;
}

/* Posts a receive on each queue pair of the next message, and sends the sender the place to write to. */
static struct request *receive(uint8_t *const *bytes, const uint32_t *sizes) {
  int slot = (int)(previous.head % SLOTS);
  struct request *request = new_request(&previous);
  for (int at = 0; at < qps_per_message(); at++) {
    struct ibv_recv_wr wr = {.wr_id = (uint64_t)slot}, *bad;
    CHECK(ibv_post_recv(previous.qps[qp_index(previous.head, at)], &wr, &bad) == 0);
  }
  memset(previous.records[slot].sizes, 0, sizeof previous.records[slot].sizes);
  struct clear_to_send *row = previous.fifo[slot];
  for (int part = 0; part < parts; part++) {
    request->data[part] = bytes[part];
    request->sizes[part] = 0;
    row[part] = (struct clear_to_send){.addr = (uintptr_t)bytes[part],
                                       .size = sizes[part],
                                       .parts = (uint32_t)parts,
                                       .tag = (uint32_t)part,
                                       .number = previous.head + 1};
    for (int at = 0; at < device_count; at++) {
      row[part].rkeys[at] = region_of(&devices[at], bytes[part])->rkey;
    }
  }
  request->parts = (uint32_t)parts;
  int at = (int)(previous.head % (uint64_t)device_count);
  struct ibv_sge sge = piece(previous.fifo_mrs[at], row, (size_t)parts * sizeof *row);
  struct ibv_send_wr wr = {
      .opcode = IBV_WR_RDMA_WRITE,
      .send_flags = inline_data ? IBV_SEND_INLINE : 0,
      .sg_list = &sge,
      .num_sge = 1,
      .wr.rdma = {.remote_addr = previous.remote.addr + (uint64_t)slot * sizeof previous.fifo[0],
                  .rkey = previous.remote.devices[at].rkey}},
                     *bad;
  /* Once in a while, so that the send queue empties. */
  if (slot == at) {
    wr.send_flags |= IBV_SEND_SIGNALED;
    wr.wr_id = (uint64_t)slot;
  }
  CHECK(ibv_post_send(previous.qps[at], &wr, &bad) == 0);
  previous.head++;
  return request;
}

/* Writes all parts of a message, cut into a piece for each queue pair. */
static void post_message(const struct request *request, const struct clear_to_send *row) {
  int slot = (int)(next.head % SLOTS), count = qps_per_message();
  struct ibv_send_wr wrs[PARTS_MAX + 1] = {0}, *last = &wrs[parts - 1], *bad;
  struct ibv_sge sges[PARTS_MAX], records;
  uint32_t lengths[PARTS_MAX], sent[PARTS_MAX] = {0};
  uint64_t wr_id = 0;
  for (int part = 0; part < parts; part++) {
    uint32_t share = (request->sizes[part] + (uint32_t)count - 1) / (uint32_t)count;
    lengths[part] = (share + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
    wr_id += (uint64_t)slot << (part * 8);
    wrs[part] = (struct ibv_send_wr){.wr_id = wr_id,
                                     .next = &wrs[part + 1],
                                     .sg_list = &sges[part],
                                     .opcode = IBV_WR_RDMA_WRITE};
  }
  if (parts > 1 || (adaptive_routing && request->sizes[0] > ROUTED_BYTES)) last++;
  last->wr_id = wr_id;
  last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last->imm_data = htobe32(request->sizes[0]);
  last->next = NULL;
  last->send_flags = IBV_SEND_SIGNALED;
  for (int index = 0; index < count; index++) {
    int qp = qp_index(next.head, index), at = device_of(qp), far = next.remote.qps[qp].device;
    for (int part = 0; part < parts; part++) {
      uint32_t left = request->sizes[part] - sent[part];
      uint32_t length = left < lengths[part] ? left : lengths[part];
      uint8_t *from = request->data[part] + sent[part];
      sges[part] = piece(region_of(&devices[at], from), from, length);
      wrs[part].num_sge = length == 0 ? 0 : 1;
      wrs[part].wr.rdma.remote_addr = row[part].addr + sent[part];
      wrs[part].wr.rdma.rkey = row[part].rkeys[far];
      sent[part] += length;
    }
    if (parts > 1) {
      const uint32_t *sizes = next.records[slot].sizes;
      records = piece(next.record_mrs[at], sizes, (size_t)parts * sizeof *sizes);
      last->sg_list = &records;
      last->num_sge = 1;
      last->wr.rdma.remote_addr = next.remote.addr + (uint64_t)slot * sizeof(struct record);
      last->wr.rdma.rkey = next.remote.devices[far].rkey;
    }
    CHECK(ibv_post_send(next.qps[qp], wrs, &bad) == 0);
  }
}

/* Sends a message once the receiver has allowed it; NULL before. */
static struct request *send_message(uint8_t *const *bytes, const uint32_t *sizes) {
  int slot = (int)(next.head % SLOTS);
  const volatile struct clear_to_send *row = next.fifo[slot];
  if (row[0].number != next.head + 1) return NULL;
  CHECK(row[0].parts == (uint32_t)parts);
  for (int part = 1; part < parts; part++) {
    while (row[part].number != next.head + 1) continue;
  }
  atomic_thread_fence(memory_order_seq_cst);
  struct request *request = new_request(&next);
  for (int part = 0; part < parts; part++) {
    CHECK(row[part].tag == (uint32_t)part && row[part].addr != 0 && row[part].size == sizes[part]);
    request->data[part] = bytes[part];
    request->sizes[part] = sizes[part];
    next.records[slot].sizes[part] = sizes[part];
  }
  request->parts = (uint32_t)parts;
  post_message(request, next.fifo[slot]);
  next.head++;
  return request;
}

/* Reads a byte of what has arrived, over each device, so that all of it is in memory. */
static void start_flush(const struct request *received) {
  const uint8_t *bytes = received->data[received->parts - 1];
  for (int at = 0; at < device_count; at++) {
    struct ibv_sge sge = piece(previous.flush_mrs[at], &previous.flush_target, 1);
    struct ibv_send_wr wr = {.wr_id = FLUSH_WR_ID,
                             .opcode = IBV_WR_RDMA_READ,
                             .send_flags = IBV_SEND_SIGNALED,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .wr.rdma = {.remote_addr = (uintptr_t)bytes,
                                         .rkey = region_of(&devices[at], bytes)->rkey}},
                       *bad;
    CHECK(ibv_post_send(previous.flush_qps[at], &wr, &bad) == 0);
    previous.flush.events[at]++;
  }
}

static bool is_done(const struct request *request) {
  for (int at = 0; at < device_count; at++) {
    if (request->events[at] != 0) return false;
  }
  return true;
}

static void complete(struct connection *connection, const struct ibv_wc *wc, int at) {
  if (wc->status != IBV_WC_SUCCESS) {
    say("completion on %s: %s (%d), vendor_err %u, %s rank %d", name_of(&devices[at]),
        verbs.wc_status_str(wc->status), wc->status, wc->vendor_err,
        connection->sends ? "to" : "from", connection->peer);
    end(1);
  }
  struct request *request = &connection->requests[wc->wr_id & 0xff];
  if (!connection->sends) {
    /* Of a clear-to-send record, which completes before its message does. */
    if (wc->opcode == IBV_WC_RDMA_WRITE) return;
    if (wc->opcode == IBV_WC_RDMA_READ) {
      CHECK(wc->wr_id == FLUSH_WR_ID);
      request = &connection->flush;
    } else {
      CHECK(wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM && (wc->wc_flags & IBV_WC_WITH_IMM) != 0);
      if (request->parts == 1) request->sizes[0] = be32toh(wc->imm_data);
    }
  } else {
    CHECK(wc->opcode == IBV_WC_RDMA_WRITE);
  }
  CHECK(request->events[at] > 0);
  request->events[at]--;
}

static void check_fatal(void) {
  bool fatal = next.fatal > 0 || previous.fatal > 0;
  for (int at = 0; at < device_count; at++) fatal = fatal || devices[at].fatal > 0;
  if (!fatal) return;
  say("fatal error");
  end(1);
}

/* Whether something completed. */
static bool poll_connection(struct connection *connection) {
  bool found = false;
  for (int at = 0; at < device_count; at++) {
    struct ibv_wc wcs[4];
    int count = ibv_poll_cq(connection->cqs[at], 4, wcs);
    CHECK(count >= 0);
    for (int index = 0; index < count; index++) complete(connection, &wcs[index], at);
    if (count > 0) found = true;
  }
  return found;
}

/* Looks for completions and fatal events; without any, waits a little, or until a neighbour ends. */
static void progress(void) {
  check_fatal();
  bool sent = poll_connection(&next);
  if (poll_connection(&previous) || sent) return;
  struct pollfd sockets[] = {{.fd = next.socket, .events = POLLRDHUP},
                             {.fd = previous.socket, .events = POLLRDHUP}};
  struct timespec nap = {.tv_nsec = 100000};
  if (ppoll(sockets, 2, &nap, NULL) <= 0) return;
  lose(sockets[0].revents != 0 ? &next : &previous);
}

/* The sum */

/* Cuts the slice at `offset` into parts. */
static void cut(uint32_t *base, uint32_t offset, uint32_t length, uint8_t **bytes,
                uint32_t *sizes) {
  uint32_t share = length / (uint32_t)parts / sizeof *base * sizeof *base;
  for (int part = 0; part < parts; part++) {
    bytes[part] = (uint8_t *)base + offset + (uint32_t)part * share;
    sizes[part] = part == parts - 1 ? length - (uint32_t)part * share : share;
  }
}

static void check_sizes(const struct request *request, const uint32_t *sizes) {
  const struct record *record = &previous.records[request - previous.requests];
  const uint32_t *found = request->parts > 1 ? record->sizes : request->sizes;
  for (int part = 0; part < parts; part++) CHECK(found[part] == sizes[part]);
}

/* Sends `length` bytes to the next rank, and receives as many from the previous one, in slices. */
static void step(uint32_t *from, uint32_t *to, uint32_t length, uint32_t slice) {
  struct request *sends[IN_FLIGHT_MAX] = {0}, *receives[IN_FLIGHT_MAX] = {0};
  uint32_t count = length / slice, posted = 0, received = 0, begun = 0, sent = 0;
  uint8_t *bytes[PARTS_MAX];
  uint32_t sizes[PARTS_MAX];
  while (received < count || sent < count) {
    while (posted < count && posted - received < IN_FLIGHT_MAX) {
      cut(to, posted * slice, slice, bytes, sizes);
      receives[posted++ % IN_FLIGHT_MAX] = receive(bytes, sizes);
    }
    while (begun < count && begun - sent < IN_FLIGHT_MAX) {
      cut(from, begun * slice, slice, bytes, sizes);
      struct request *request = send_message(bytes, sizes);
      if (request == NULL) break;
      sends[begun++ % IN_FLIGHT_MAX] = request;
    }
    progress();
    while (sent < begun && is_done(sends[sent % IN_FLIGHT_MAX])) sent++;
    while (received < posted && is_done(receives[received % IN_FLIGHT_MAX])) {
      const struct request *request = receives[received % IN_FLIGHT_MAX];
      cut(to, received * slice, slice, bytes, sizes);
      check_sizes(request, sizes);
      start_flush(request);
      while (!is_done(&previous.flush)) progress();
      received++;
    }
  }
}

static uint32_t *chunk(int index, uint32_t length) {
  return data + (size_t)((index + 2 * ranks) % ranks) * (length / sizeof *data);
}

/* Adds up the arrays of all ranks, each of `ranks` chunks of `length` bytes. */
static void all_reduce(uint32_t length, uint32_t slice) {
  for (int at = 0; at < ranks - 1; at++) {
    uint32_t *sum = chunk(rank - at - 1, length);
    step(chunk(rank - at, length), scratch, length, slice);
    for (size_t index = 0; index < length / sizeof *sum; index++) sum[index] += scratch[index];
  }
  for (int at = 0; at < ranks - 1; at++) {
    step(chunk(rank + 1 - at, length), chunk(rank - at, length), length, slice);
  }
}

static void reduce_and_check(uint32_t length, uint32_t slice, uint32_t seed) {
  uint32_t count = (uint32_t)ranks * (length / sizeof *data), all = 0;
  for (int other = 0; other < ranks; other++) all += (uint32_t)other + 1;
  for (uint32_t at = 0; at < count; at++) {
    data[at] = (at * 2654435761u + seed) * ((uint32_t)rank + 1);
  }
  all_reduce(length, slice);
  for (uint32_t at = 0; at < count; at++) {
    uint32_t expected = (at * 2654435761u + seed) * all;
    if (data[at] == expected) continue;
    say("element %u of %u is %#x, not %#x", at, count, data[at], expected);
    end(1);
  }
}

/* Whether a rank was told to end: all of them find the same. */
static bool any_told(void) {
  uint32_t length = 8, votes = told != 0;
  for (uint32_t at = 0; at < (uint32_t)ranks * length / sizeof *data; at++) data[at] = votes;
  all_reduce(length, length);
  return data[0] != 0;
}

static void run_rounds(int rounds) {
  static const struct {
    uint32_t length, slice;
  } messages[] = {{8, 8}, {1000, 1000}, {65544, 65544}, {1u << 19, 1u << 19}, {1u << 20, 1u << 17}};
  uint32_t count = sizeof messages / sizeof *messages;
  int round = 0;
  do {
    round++;
    for (uint32_t at = 0; at < count; at++) {
      reduce_and_check(messages[at].length, messages[at].slice, (uint32_t)round * 97 + at);
    }
    if (round == 1) say("round 1 is right");
    /* Later rounds are short. */
    count = 3;
  } while (!any_told() && round != rounds);
  say("%d rounds are right", round);
}

int main(int argc, char **words) {
  static char name[32];
  if (argc != 7) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  rank = atoi(words[1]);
  ranks = atoi(words[2]);
  parts = atoi(words[6]);
  snprintf(name, sizeof name, "rank %d", rank);
  title = name;
  next.peer = (rank + 1) % ranks;
  previous.peer = (rank + ranks - 1) % ranks;
  qps_per_device = setting("NCCL_IB_QPS_PER_CONNECTION", 2);
  timeout = setting("NCCL_IB_TIMEOUT", 20);
  retry_count = setting("NCCL_IB_RETRY_CNT", 7);
  inline_data = setting("NCCL_IB_USE_INLINE", 0);
  adaptive_routing = setting("NCCL_IB_ADAPTIVE_ROUTING", 0);
  split_on_qps = setting("NCCL_IB_SPLIT_DATA_ON_QPS", 0);
  signal(SIGUSR1, on_signal);
  load_verbs();
  open_devices();
  qp_count = device_count * qps_per_device;
  CHECK(qp_count <= QPS_MAX);
  join_ring(words[3], (uint16_t)atoi(words[4]));
  connect_ring();
  register_data();
  run_rounds(atoi(words[5]));
  meet(2);
  end(0);
}
