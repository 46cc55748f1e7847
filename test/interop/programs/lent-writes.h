/* Shared by programs of this folder: two processes with queue pairs, whose long messages their agents copy. `set_up`
 * connects those of a RoCE device. The program's main file defines _GNU_SOURCE. */
#ifndef LENT_WRITES_H
#define LENT_WRITES_H

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "../../../native-bridge/preload/protocol.h"
#include "program.h"

#define BYTES (1u << 20)
#define ACCESS \
  (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define LONG 65536
#define GID_INDEX 1
#define RECEIVES 64

struct end {
  uint32_t qpn, other;
  uint32_t rkey;
  uint64_t address;
};

static struct ibv_context *context, *beside;
/* The other queue pair may have a domain of its own. */
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *other;
/* Two halves of `BYTES`, then a page for short messages. */
static uint8_t *memory;
static struct ibv_mr *region;
static struct end peer;

/* Opens the device, unless `context` is known, and registers `memory`. */
static inline void register_memory(const char *device, bool apart) {
  /* The first connection of the process to the daemon does not stay. */
  struct ibv_context *first = open_device(device);
  if (context == NULL) context = open_device(device);
  beside = open_device(device);
  CHECK(ibv_close_device(first) == 0);
  pd = MADE(ibv_alloc_pd(context));
  other_pd = apart ? MADE(ibv_alloc_pd(context)) : pd;
  cq = MADE(ibv_create_cq(context, 256, NULL, NULL, 0));
  memory = mmap(NULL, 2 * BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  memset(memory, 0, 2 * BYTES + 4096);
  region = MADE(ibv_reg_mr(pd, memory, 2 * BYTES + 4096, ACCESS));
}

static inline void exchange_ends(int wire) {
  struct end own = {.qpn = qp->qp_num,
                    .other = other->qp_num,
                    .rkey = region->rkey,
                    .address = (uintptr_t)memory};
  CHECK(write(wire, &own, sizeof own) == sizeof own);
  CHECK(read(wire, &peer, sizeof peer) == sizeof peer);
}

/* Waits until the peer has posted its receives, too. */
static inline void await_peer(int wire, bool receives) {
  char ready = 0;
  for (int at = 0; receives && at < RECEIVES; at++)
    post_recv(qp, at, piece(region, memory + at % 16 * LONG, LONG));
  CHECK(write(wire, &ready, 1) == 1 && read(wire, &ready, 1) == 1);
}

static inline void set_up(const char *device, int wire, bool receives, bool apart) {
  register_memory(device, apart);
  qp = create_qp(pd, plain_init(cq, RECEIVES));
  other = create_qp(other_pd, plain_init(cq, 32));
  exchange_ends(wire);
  connect_qp(qp, peer.qpn, GID_INDEX, ACCESS);
  connect_qp(other, peer.other, GID_INDEX, ACCESS);
  await_peer(wire, receives);
}

/* The orders to the agent of this process; NULL without an agent. */
static inline volatile struct copy_ring *orders(void) {
  static char maps[1 << 20];
  FILE *file = MADE(fopen("/proc/self/maps", "r"));
  size_t length = fread(maps, 1, sizeof maps - 1, file);
  fclose(file);
  maps[length] = '\0';
  char *line = strstr(maps, "iwarpd-copies");
  if (line == NULL) return NULL;
  while (line > maps && line[-1] != '\n') line--;
  return (volatile struct copy_ring *)strtoull(line, NULL, 16);
}

static inline bool is_served(void) {
  volatile struct copy_ring *ring = orders();
  return ring != NULL && ring->served == 1;
}

/* Orders that the agent has not begun. */
static inline int orders_waiting(void) {
  volatile struct copy_ring *ring = orders();
  int waiting = 0;
  for (unsigned at = 0; at < COPY_ORDERS; at++) waiting += ring->orders[at].state == COPY_POSTED;
  return waiting;
}

static inline void post(enum ibv_wr_opcode opcode, uint32_t offset, uint32_t length, bool signalled) {
  struct ibv_sge sge = piece(region, memory + offset, length);
  struct ibv_send_wr wr = {.opcode = opcode,
                           .send_flags = signalled ? IBV_SEND_SIGNALED : 0,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .wr.rdma = {.remote_addr = peer.address + offset, .rkey = peer.rkey}},
                     *bad;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

/* A short Write, a long one and a short one, posted at once: all of one burst. */
static inline void post_chain(uint32_t offset, uint32_t length) {
  const uint32_t starts[] = {offset, offset + 64, 2 * BYTES};
  const uint32_t lengths[] = {64, length - 64, sizeof(uint32_t)};
  struct ibv_sge sges[3];
  struct ibv_send_wr requests[3], *bad;
  for (int at = 0; at < 3; at++) {
    sges[at] = piece(region, memory + starts[at], lengths[at]);
    requests[at] = (struct ibv_send_wr){
        .next = at < 2 ? &requests[at + 1] : NULL,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = at == 2 ? IBV_SEND_SIGNALED : 0,
        .sg_list = &sges[at],
        .num_sge = 1,
        .wr.rdma = {.remote_addr = peer.address + starts[at], .rkey = peer.rkey}};
  }
  CHECK(ibv_post_send(qp, requests, &bad) == 0);
}

/* The number of the newest message, after its data. */
static inline volatile uint32_t *flag(void) { return (volatile uint32_t *)(memory + 2 * BYTES); }

/* Accesses to this part of the memory wait until the descriptor that it returns resolves them. */
static inline int stall(uint8_t *part, size_t length) {
  struct uffdio_api api = {.api = UFFD_API};
  struct uffdio_register range = {.range = {.start = (uintptr_t)part, .len = length},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
  int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
  CHECK(fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0);
  CHECK(madvise(part, length, MADV_DONTNEED) == 0);
  CHECK(ioctl(fd, UFFDIO_REGISTER, &range) == 0);
  return fd;
}

/* Waits for an access to stalled memory. Returns its address. */
static inline uint8_t *await_fault(int fd) {
  struct uffd_msg event;
  CHECK(read(fd, &event, sizeof event) == sizeof event && event.event == UFFD_EVENT_PAGEFAULT);
  return (uint8_t *)(uintptr_t)event.arg.pagefault.address;
}

/* Accesses to a long part of stalled memory continue. */
static inline void resolve(int fd, uint8_t *part) {
  struct uffdio_zeropage zeros = {.range = {.start = (uintptr_t)part, .len = LONG}};
  CHECK(ioctl(fd, UFFDIO_ZEROPAGE, &zeros) == 0 || errno == EEXIST);
  CHECK(ioctl(fd, UFFDIO_WAKE, &zeros.range) == 0);
}

/* The first Write of the chain is copied, the second waits: stalled memory begins at `start`. */
static inline void post_to_stalled(uint32_t start) {
  while (!is_served()) usleep(1000);
  memory[start - 64] = 2;
  post_chain(start - 64, LONG + 64);
}

#endif
