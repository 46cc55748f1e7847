/* A command that the program wrote to a device file, on its way to the daemon and back. */
#ifndef IWARPD_COMMAND_H
#define IWARPD_COMMAND_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "descriptor-table.h"

/* Octets at the start of a command that can be changed on the way: descriptor numbers lie there. */
#define COMMAND_COPY_MAX 64

struct command {
  /* The file's descriptor that the command was written to, and what it stands for. */
  int fd;
  struct endpoint *endpoint;
  const uint8_t *octets;
  size_t length;
  /* What follows the octets in the request: memory that the command points to. */
  struct iovec inlined;
  /* Where the response goes, and how much of it there is room for. */
  uint8_t *response;
  size_t response_room;
  /* What the descriptors become that the response tells of. */
  enum endpoint_kind event_kind;
  /* A changed copy of the first octets, when the command names a descriptor. */
  uint8_t copy[COMMAND_COPY_MAX];
  size_t copy_length;
  /* Looks at the response of a command that succeeded, before the next one begins. May be NULL. */
  void (*completed)(const struct command *command, const uint8_t *response, size_t length);
};

/* Executes the command. Returns 0, or a negative errno. */
int command_run(struct command *command);

/* Replaces the u32 at `offset` of the command by `value` on its way. The offset is below
 * COMMAND_COPY_MAX - 4 and within the command. */
void command_replace(struct command *command, size_t offset, uint32_t value);

/* True when the octets can be read that are looked at here; the system looks at the rest. */
bool command_is_readable(const void *octets, size_t length);

/* Fields of a command. */
uint16_t command_u16(const struct command *command, size_t offset);
uint32_t command_u32(const struct command *command, size_t offset);
uint64_t command_u64(const struct command *command, size_t offset);

#endif
