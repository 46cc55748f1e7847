/* See event-file.h. */
#include "event-file.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "event-ring.h"
#include "exchange.h"
#include "interpose.h"
#include "raw-call.h"

#define COMPLETION_RECORD_BYTES 8
#define ASYNC_RECORD_BYTES 16
/* IBV_EVENT_DEVICE_FATAL, at byte 8 of the record. */
#define EVENT_DEVICE_FATAL 8
#define EVENT_TYPE_OFFSET 8

/* How long to wait for the byte of an emptied queue. The daemon writes it before the reply, so it
 * is late only if the daemon's socket was full. */
#define BYTE_WAIT_MS 20
/* Attempts on an empty queue before pausing between them. */
#define EAGER_ATTEMPTS 3
#define BACK_OFF_NS 500000

int event_open(enum endpoint_kind kind, const uint8_t *token, const struct endpoint *device,
               int device_fd) {
  struct welcome welcome;
  int fd = exchange_connect(device->file, ROLE_EVENT, token, &welcome);
  if (fd < 0) return fd;
  struct endpoint_traits traits = {
      .kind = kind, .file = device->file, .queue_number = welcome.number};
  if (kind == ENDPOINT_COMPLETION) traits.event_ring = event_ring_map(device_fd, welcome.place);
  return endpoint_publish(fd, &traits);
}

int event_wait(int fd) {
  /* Peeking at the byte blocks exactly as a read does: it honours O_NONBLOCK at this moment,
   * SA_RESTART and cancellation. */
  char byte;
  return (int)REAL(recv)(fd, &byte, 1, MSG_PEEK);
}

void event_back_off(unsigned attempt) {
  if (attempt < EAGER_ATTEMPTS) return;
  const struct timespec pause = {.tv_nsec = BACK_OFF_NS};
  nanosleep(&pause, NULL);
}

bool event_take_byte(int fd) {
  int saved = errno;
  char byte;
  ssize_t taken = raw_recv(fd, &byte, 1, MSG_DONTWAIT);
  if (taken < 0 && errno == EAGAIN && raw_poll(fd, POLLIN, BYTE_WAIT_MS) == 1) {
    taken = raw_recv(fd, &byte, 1, MSG_DONTWAIT);
  }
  errno = saved;
  return taken >= 0;
}

bool event_take_last_byte(int fd, const struct endpoint *endpoint) {
  bool taken = event_take_byte(fd);
  struct event_ring *ring = endpoint->event_ring;
  while (ring != NULL && event_ring_take_late(ring)) {
    if (event_take_byte(fd)) continue;
    event_ring_add_late(ring);
    break;
  }
  return taken;
}

/* The daemon is gone: the asynchronous descriptor reports it, once. */
static ssize_t read_after_end(struct endpoint *endpoint, void *buffer) {
  if (endpoint->kind != ENDPOINT_ASYNC || atomic_exchange(&endpoint->end_reported, true))
    return -EIO;
  uint32_t type = EVENT_DEVICE_FATAL;
  if (!memory_takes(buffer, ASYNC_RECORD_BYTES)) return -EFAULT;
  memset(buffer, 0, ASYNC_RECORD_BYTES);
  memcpy((uint8_t *)buffer + EVENT_TYPE_OFFSET, &type, sizeof type);
  return ASYNC_RECORD_BYTES;
}

/* Requests one record. Returns its length, -EAGAIN if there is none, or another negative errno. */
static ssize_t pop_record(int fd, struct endpoint *endpoint, void *buffer, size_t record_bytes) {
  struct exchange exchange;
  exchange_init(&exchange, OP_POP, endpoint->queue_number);
  exchange_run(endpoint->file, &exchange);
  ssize_t result = exchange.status;
  bool take_byte = (exchange.flags & REPLY_TAKE_BYTE) != 0;
  if (result >= 0) {
    result = exchange.response_bytes == record_bytes ? (ssize_t)record_bytes : -EIO;
    if (result > 0 && !memory_takes(buffer, record_bytes)) result = -EFAULT;
    if (result > 0) memcpy(buffer, exchange.response, record_bytes);
  }
  bool ended = atomic_load(&endpoint->file->state) == CONNECTION_DEAD;
  exchange_end(endpoint->file, &exchange);
  if (take_byte) event_take_last_byte(fd, endpoint);
  return result == -EIO && ended ? read_after_end(endpoint, buffer) : result;
}

/* Takes one record from the ring; returns as above. `waiting`: the descriptor holds a byte. */
static ssize_t take_record(int fd, struct endpoint *endpoint, void *buffer, bool waiting) {
  struct event_ring *ring = endpoint->event_ring;
  uint64_t record;
  if (!memory_takes(buffer, sizeof record)) return -EFAULT;
  enum event_take taken = event_ring_take(ring, &record);
  if (taken == EVENT_NONE && waiting) {
    /* The record of this byte is gone, unless another reader is about to take the byte. */
    if (event_ring_take_late(ring) && !event_take_byte(fd)) event_ring_add_late(ring);
    return -EAGAIN;
  }
  if (taken == EVENT_NONE || taken == EVENT_ASK) {
    return pop_record(fd, endpoint, buffer, sizeof record);
  }
  memcpy(buffer, &record, sizeof record);
  if (taken == EVENT_TAKEN_LAST) {
    if (!event_take_last_byte(fd, endpoint)) event_ring_add_late(ring);
  } else if (event_ring_take_late(ring) && !event_take_byte(fd)) {
    event_ring_add_late(ring);
  }
  return sizeof record;
}

ssize_t event_read(int fd, void *buffer, size_t length) {
  int saved = errno;
  for (unsigned attempt = 0;; attempt++) {
    int waiting = event_wait(fd);
    if (waiting < 0) return -1;
    struct endpoint *endpoint = endpoint_get(fd);
    bool completion = endpoint != NULL && endpoint->kind == ENDPOINT_COMPLETION;
    bool readable = completion || (endpoint != NULL && endpoint->kind == ENDPOINT_ASYNC);
    size_t record_bytes = completion ? COMPLETION_RECORD_BYTES : ASYNC_RECORD_BYTES;
    ssize_t result = -EBADF;
    if (readable) {
      bool shown = endpoint->event_ring != NULL;
      if (length < record_bytes) result = -EINVAL;
      else if (shown) result = take_record(fd, endpoint, buffer, waiting > 0);
      else result = pop_record(fd, endpoint, buffer, record_bytes);
    }
    if (endpoint != NULL) endpoint_put(endpoint);
    if (result >= 0) {
      errno = saved;
      return result;
    }
    int flags = result == -EAGAIN ? raw_fcntl(fd, F_GETFL, 0) : O_NONBLOCK;
    if (flags < 0 || (flags & O_NONBLOCK) != 0) {
      errno = (int)-result;
      return -1;
    }
    event_back_off(attempt);
  }
}
