/* See command.h. */
#include "command.h"

#include <errno.h>
#include <string.h>

#include "event-file.h"
#include "exchange.h"
#include "memory-agent.h"
#include "raw-call.h"

/* State for use after the exchange: descriptors are opened once others may use the connection. */
struct after_reply {
  struct reply_descriptor descriptors[REPLY_DESCRIPTORS_MAX];
  uint32_t descriptor_count;
  uint32_t purged[REPLY_PURGED_MAX];
  uint32_t purged_count;
  size_t response_bytes;
  bool take_byte;
};

int command_parse(struct command *command, const void *bytes, size_t length, size_t length_max) {
  size_t read = length < sizeof command->request ? length : sizeof command->request;
  if (length < sizeof command->request.header || length > length_max) return -EINVAL;
  if (!memory_gives(bytes, read)) return -EFAULT;
  *command =
      (struct command){.bytes = bytes, .length = length, .event_kind = ENDPOINT_COMPLETION};
  memcpy(&command->request, bytes, read);
  return 0;
}

/* Sends the command once. Returns the status. */
static int exchange_once(struct command *command, struct after_reply *after, uint32_t *flags) {
  struct device_file *file = command->endpoint->file;
  struct exchange exchange;
  exchange_init(&exchange, OP_WRITE, 0);
  size_t changed = command->changed ? sizeof command->request : 0;
  if (changed > command->length) changed = command->length;
  if (changed > 0) exchange_add(&exchange, &command->request, changed);
  exchange_add(&exchange, command->bytes + changed, command->length - changed);
  if (command->inlined.iov_len > 0) {
    exchange_add(&exchange, command->inlined.iov_base, command->inlined.iov_len);
  }
  exchange_run(file, &exchange);
  int status = exchange.status;
  *flags = exchange.flags;
  after->take_byte = (exchange.flags & REPLY_TAKE_BYTE) != 0;
  after->purged_count = exchange.purged_count;
  if (exchange.purged_count > 0) {
    memcpy(after->purged, exchange.purged, exchange.purged_count * sizeof(uint32_t));
  }
  if (status >= 0) {
    size_t length = exchange.response_bytes;
    if (length > command->response_room) length = command->response_room;
    /* As in the kernel, the command's effect is not undone. */
    if (length > 0 && !memory_takes(command->response, length)) status = -EFAULT;
    else if (length > 0) memcpy(command->response, exchange.response, length);
    after->response_bytes = length;
    after->descriptor_count = status < 0 ? 0 : exchange.descriptor_count;
    if (after->descriptor_count > 0) {
      memcpy(after->descriptors, exchange.descriptors,
             exchange.descriptor_count * sizeof(struct reply_descriptor));
    }
    if (command->completed != NULL) {
      command->completed(command, exchange.response, exchange.response_bytes);
    }
  }
  exchange_end(file, &exchange);
  return status;
}

static void take_bytes(const struct command *command, const struct after_reply *after) {
  if (after->take_byte) event_take_byte(command->fd);
  for (uint32_t index = 0; index < after->purged_count; index++) {
    struct endpoint *endpoint;
    int fd = descriptor_of_queue(after->purged[index], &endpoint);
    if (fd < 0) continue;
    event_take_last_byte(fd, endpoint);
    endpoint_put(endpoint);
  }
}

/* Opens the descriptors of the response and writes their numbers into it. */
static int open_descriptors(const struct command *command, const struct after_reply *after) {
  int opened[REPLY_DESCRIPTORS_MAX];
  for (uint32_t index = 0; index < after->descriptor_count; index++) {
    const struct reply_descriptor *descriptor = &after->descriptors[index];
    int fd = -EIO;
    if (after->response_bytes >= sizeof(uint32_t) &&
        descriptor->offset <= after->response_bytes - sizeof(uint32_t)) {
      fd = event_open(command->event_kind, descriptor->token, command->endpoint, command->fd);
    }
    if (fd < 0) {
      while (index > 0) {
        int unused = opened[--index];
        descriptor_remove(unused);
        raw_close(unused);
      }
      return fd;
    }
    opened[index] = fd;
    memcpy(command->response + descriptor->offset, &fd, sizeof(uint32_t));
  }
  return 0;
}

int command_run(struct command *command) {
  struct after_reply after = {.descriptor_count = 0};
  uint32_t flags;
  int status = exchange_once(command, &after, &flags);
  if ((flags & REPLY_START_AGENT) != 0) {
    int error = memory_agent_start(command->endpoint->file, false);
    if (error != 0) return error;
    status = exchange_once(command, &after, &flags);
    /* The agent cannot reach this memory, either. */
    if ((flags & REPLY_START_AGENT) != 0) return -EFAULT;
  }
  if ((flags & REPLY_OFFER_AGENT) != 0) memory_agent_start(command->endpoint->file, true);
  take_bytes(command, &after);
  if (status < 0) return status;
  return open_descriptors(command, &after);
}
