/* One command and its reply on the command connection of a file. */
#ifndef IWARPD_EXCHANGE_H
#define IWARPD_EXCHANGE_H

#include <stdint.h>
#include <sys/uio.h>

#include "device-file.h"
#include "protocol.h"

/* Maximum number of pieces of a request's payload. */
#define EXCHANGE_PIECES_MAX 10

struct exchange {
  /* The request. `pieces` leaves [0] free for the head. */
  enum operation operation;
  uint64_t argument;
  struct iovec pieces[1 + EXCHANGE_PIECES_MAX];
  int piece_count;
  size_t payload_bytes;

  /* The reply; its pointers are valid until `exchange_end`. */
  int32_t status;
  uint32_t flags;
  const uint8_t *response;
  uint32_t response_bytes;
  const uint8_t *descriptors;
  uint32_t descriptor_count;
  const uint8_t *purged;
  uint32_t purged_count;
  /* The descriptor received with the reply, which the caller closes, or a negative errno. */
  int descriptor;

  int cancel_state;
};

/* An exchange without payload. */
void exchange_init(struct exchange *exchange, enum operation operation, uint64_t argument);

/* Appends to the payload. */
void exchange_add(struct exchange *exchange, const void *bytes, size_t length);

/* Sends the request and waits for the reply. Not a cancellation point, and not interrupted by
 * signals. On failure `status` is negative: the daemon's errno, -EIO once the daemon is gone,
 * -EFAULT for an unreadable payload. In any case `exchange_end` must follow. */
void exchange_run(struct device_file *file, struct exchange *exchange);

/* Ends the exchange; the next command of the file may start. */
void exchange_end(struct device_file *file, struct exchange *exchange);

/* Requests a descriptor: the file of rings, or a new connection. Returns it or a negative errno. */
int exchange_descriptor(struct device_file *file, enum operation operation);

/* Connects for an event descriptor or an agent, over the connection of an open file: this process
 * may have changed its user or lost access to the daemon's socket. Returns the socket or a negative
 * errno. */
int exchange_connect(struct device_file *file, enum role role, const uint8_t *token,
                     struct welcome *welcome);

/* In a forked child that is about to give up rights: connects its inherited files while it still
 * may. The kernel lets it use them afterwards. */
void exchange_attach_inherited(void);

/* Sends a command that has no reply. False if it must be sent as an ordinary one. */
bool exchange_send_one_way(struct device_file *file, enum operation operation, uint64_t argument);

#endif
