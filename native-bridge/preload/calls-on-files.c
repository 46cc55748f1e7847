/* The libc calls that act on an open device file or event descriptor. */
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "cm-file.h"
#include "descriptor-table.h"
#include "device-file.h"
#include "device-node.h"
#include "event-file.h"
#include "interpose.h"
#include "netlink.h"
#include "uverbs-file.h"

static ssize_t refused(int error) {
  errno = error;
  return -1;
}

/* The kind of a descriptor, without taking a reference. */
static bool kind_of(int fd, enum endpoint_kind *kind) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return false;
  *kind = endpoint->kind;
  endpoint_put(endpoint);
  return true;
}

static NOINLINE ssize_t write_special(int fd, const void *buffer, size_t length) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return REAL(write)(fd, buffer, length);
  enum endpoint_kind kind = endpoint->kind;
  ssize_t result = -1;
  bool inherited = kind == ENDPOINT_CM && endpoint->file->inherited;
  if (kind == ENDPOINT_UVERBS) result = uverbs_write(fd, endpoint, buffer, length);
  if (kind == ENDPOINT_NETLINK) result = netlink_send(endpoint, buffer, length);
  endpoint_put(endpoint);
  switch (kind) {
    case ENDPOINT_UVERBS:
    case ENDPOINT_NETLINK:
      return result;
    case ENDPOINT_CM:
      if (inherited) return refused(EACCES);
      /* May wait for an event and be cancelled meanwhile, so hold nothing. */
      return cm_write(fd, buffer, length);
    case ENDPOINT_COMPLETION:
    case ENDPOINT_ASYNC:
      return refused(EINVAL);
    case ENDPOINT_HIDDEN:
      return refused(EBADF);
    case ENDPOINT_FOREIGN:
      break;
  }
  return refused(EACCES);
}

EXPORT ssize_t write(int fd, const void *buffer, size_t length) {
  if (likely(!descriptor_is_marked(fd))) return REAL(write)(fd, buffer, length);
  return write_special(fd, buffer, length);
}

EXPORT ssize_t __write(int fd, const void *buffer, size_t length) {
  return write(fd, buffer, length);
}

static ssize_t read_netlink(int fd, void *buffer, size_t length) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return refused(EBADF);
  ssize_t result = endpoint->kind == ENDPOINT_NETLINK
                       ? netlink_receive(endpoint, buffer, length, 0, NULL, NULL)
                       : refused(EBADF);
  endpoint_put(endpoint);
  return result;
}

static NOINLINE ssize_t read_special(int fd, void *buffer, size_t length) {
  enum endpoint_kind kind;
  if (!kind_of(fd, &kind)) return REAL(read)(fd, buffer, length);
  switch (kind) {
    case ENDPOINT_COMPLETION:
    case ENDPOINT_ASYNC:
      return event_read(fd, buffer, length);
    case ENDPOINT_NETLINK:
      return read_netlink(fd, buffer, length);
    case ENDPOINT_UVERBS:
    case ENDPOINT_CM:
      return refused(EINVAL);
    case ENDPOINT_HIDDEN:
      return refused(EBADF);
    case ENDPOINT_FOREIGN:
      break;
  }
  return refused(EIO);
}

EXPORT ssize_t read(int fd, void *buffer, size_t length) {
  if (likely(!descriptor_is_marked(fd))) return REAL(read)(fd, buffer, length);
  return read_special(fd, buffer, length);
}

EXPORT ssize_t __read(int fd, void *buffer, size_t length) { return read(fd, buffer, length); }

EXPORT ssize_t __read_chk(int fd, void *buffer, size_t length, size_t buffer_bytes) {
  /* libc aborts a program that would overrun its buffer. */
  if (likely(!descriptor_is_marked(fd)) || length > buffer_bytes) {
    return REAL(__read_chk)(fd, buffer, length, buffer_bytes);
  }
  return read_special(fd, buffer, length);
}

/* Requests that the kernel accepts on any descriptor. Our devices have no others: ENOTTY makes
 * libibverbs write its commands instead. */
static bool ioctl_is_general(unsigned long request) {
  return request == FIOCLEX || request == FIONCLEX || request == FIONBIO || request == FIOASYNC;
}

EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  enum endpoint_kind kind;
  if (likely(!descriptor_is_marked(fd)) || !kind_of(fd, &kind) || ioctl_is_general(request) ||
      kind == ENDPOINT_NETLINK || kind == ENDPOINT_FOREIGN) {
    return REAL(ioctl)(fd, request, argument);
  }
  errno = kind == ENDPOINT_HIDDEN ? EBADF : ENOTTY;
  return -1;
}

/* Fills in the status of a device file. False for event descriptors, which report what they are. */
static NOINLINE bool fstat_special(int fd, struct stat *status) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return false;
  dev_t number = endpoint->device_number;
  endpoint_put(endpoint);
  if (number == 0) return false;
  device_node_stat(number, status);
  return true;
}

#define FSTAT(name, type)                                                                          \
  EXPORT int name(int fd, type *status) {                                                          \
    if (likely(!descriptor_is_marked(fd)) || !fstat_special(fd, (struct stat *)status)) {          \
      return REAL(name)(fd, status);                                                               \
    }                                                                                              \
    return 0;                                                                                      \
  }
FSTAT(fstat, struct stat)
FSTAT(fstat64, struct stat64)

#define FSTAT_VERSIONED(name, type)                                                                \
  EXPORT int name(int version, int fd, type *status) {                                             \
    if (likely(!descriptor_is_marked(fd)) || !fstat_special(fd, (struct stat *)status)) {          \
      return REAL(name)(version, fd, status);                                                      \
    }                                                                                              \
    return 0;                                                                                      \
  }
FSTAT_VERSIONED(__fxstat, struct stat)
FSTAT_VERSIONED(__fxstat64, struct stat64)
