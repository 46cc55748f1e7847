/* A command that the program wrote to a device file. */
#ifndef IWARPD_COMMAND_H
#define IWARPD_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "descriptor-table.h"
#include "kernel-abi.h"

struct command {
  /* The descriptor that the command was written to, and its endpoint. */
  int fd;
  struct endpoint *endpoint;
  const uint8_t *bytes;
  size_t length;
  /* Its first bytes, zero from `length` on. If `changed`, they are sent instead of the program's
   * bytes: the daemon knows descriptors by other numbers. */
  union kernel_request request;
  bool changed;
  /* The descriptor that MIGRATE_ID named. */
  int source;
  /* Data to append to the request: memory that the command points to. */
  struct iovec inlined;
  /* Where the response goes, and its capacity. */
  uint8_t *response;
  size_t response_room;
  /* The kind of the descriptors in the response. */
  enum endpoint_kind event_kind;
  /* Inspects the response of a successful command, before the next one begins. May be NULL. */
  void (*completed)(const struct command *command, const uint8_t *response, size_t length);
};

/* True if the command is long enough to have this field of its request. */
#define COMMAND_HAS(command, field)                                                                \
  ((command)->length >=                                                                            \
   offsetof(union kernel_request, field) + sizeof((command)->request.field))

/* Reads the program's bytes, once. Returns 0, -EINVAL for a wrong length, or -EFAULT. */
int command_parse(struct command *command, const void *bytes, size_t length, size_t length_max);

/* Executes the command. Returns 0, or a negative errno. */
int command_run(struct command *command);

#endif
