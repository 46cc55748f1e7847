/* One command and its reply on the command connection of a file. */
#ifndef IWARPD_EXCHANGE_H
#define IWARPD_EXCHANGE_H

#include <stdint.h>
#include <sys/uio.h>

#include "device-file.h"
#include "protocol.h"

/* Pieces of a request's payload at most. */
#define EXCHANGE_PIECES_MAX 10

struct exchange {
  /* The request. `pieces` leaves [0] free for the head. */
  enum operation operation;
  uint64_t argument;
  struct iovec pieces[1 + EXCHANGE_PIECES_MAX];
  int piece_count;
  size_t payload_bytes;

  /* The reply; what it points to is valid until `exchange_end`. */
  int32_t status;
  uint32_t flags;
  const uint8_t *response;
  uint32_t response_bytes;
  const uint8_t *descriptors;
  uint32_t descriptor_count;
  const uint8_t *purged;
  uint32_t purged_count;
  /* The descriptor that came along, which is the caller's to close; -1: none. */
  int descriptor;

  int cancel_state;
};

/* An exchange without payload. */
void exchange_init(struct exchange *exchange, enum operation operation, uint64_t argument);

/* Appends to the payload. */
void exchange_add(struct exchange *exchange, const void *octets, size_t length);

/* Sends the request and waits for the reply; no cancellation point, and signals are let pass.
 * `status` is negative when it failed: the daemon's errno, -EIO once the daemon is gone, -EFAULT
 * for a payload that cannot be read. Whatever it is, `exchange_end` has to follow. */
void exchange_run(struct device_file *file, struct exchange *exchange);

/* Lets the next command of the file begin. */
void exchange_end(struct device_file *file, struct exchange *exchange);

/* Sends a command that is not answered. False when it has to be sent as an ordinary one. */
bool exchange_send_one_way(struct device_file *file, enum operation operation, uint64_t argument);

#endif
