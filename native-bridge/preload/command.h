/* A command that the program wrote to a device file, on its way to the daemon and back. */
#ifndef IWARPD_COMMAND_H
#define IWARPD_COMMAND_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "descriptor-table.h"

/* Bytes at the start of a command that can be changed before sending: they contain descriptor
 * numbers. */
#define COMMAND_COPY_MAX 64

struct command {
  /* The descriptor that the command was written to, and its endpoint. */
  int fd;
  struct endpoint *endpoint;
  const uint8_t *bytes;
  size_t length;
  /* Data to append to the request: memory that the command points to. */
  struct iovec inlined;
  /* Where the response goes, and its capacity. */
  uint8_t *response;
  size_t response_room;
  /* The kind of the descriptors in the response. */
  enum endpoint_kind event_kind;
  /* A changed copy of the first bytes, when the command names a descriptor. */
  uint8_t copy[COMMAND_COPY_MAX];
  size_t copy_length;
  /* Inspects the response of a successful command, before the next one begins. May be NULL. */
  void (*completed)(const struct command *command, const uint8_t *response, size_t length);
};

/* Executes the command. Returns 0, or a negative errno. */
int command_run(struct command *command);

/* Replaces the u32 at `offset` of the command by `value` before sending. The offset is below
 * COMMAND_COPY_MAX - 4 and within the command. */
void command_replace(struct command *command, size_t offset, uint32_t value);

/* True when the bytes that this library inspects can be read; the system checks the rest. */
bool command_is_readable(const void *bytes, size_t length);

/* Fields of a command. */
uint16_t command_u16(const struct command *command, size_t offset);
uint32_t command_u32(const struct command *command, size_t offset);
uint64_t command_u64(const struct command *command, size_t offset);

#endif
