/* The libc calls that close and duplicate descriptors, so that the table follows them. */
#include <errno.h>
#include <stdarg.h>

#include "descriptor-table.h"
#include "device-file.h"
#include "interpose.h"
#include "raw-call.h"

/* Looks at what `fd` stands for. False for a descriptor of no concern, also in a child that shares
 * its parent's memory: what it closes there, the parent still has. */
static bool look_up(int fd, enum endpoint_kind *kind) {
  if (!descriptor_is_marked(fd)) return false;
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return false;
  *kind = endpoint->kind;
  endpoint_put(endpoint);
  return *kind != ENDPOINT_FOREIGN;
}

static NOINLINE int close_special(int fd) {
  enum endpoint_kind kind;
  if (!look_up(fd, &kind)) return REAL(close)(fd);
  if (kind == ENDPOINT_HIDDEN) {
    errno = EBADF;
    return -1;
  }
  /* Forgotten first: as soon as it is closed, another thread may get the number. */
  descriptor_remove(fd);
  return REAL(close)(fd);
}

EXPORT int close(int fd) {
  if (likely(!descriptor_is_marked(fd))) return REAL(close)(fd);
  return close_special(fd);
}

EXPORT int __close(int fd) { return close(fd); }

/* The duplicate stands for what the original does. */
static int follow(int original, int duplicate) {
  if (duplicate < 0 || !descriptor_is_marked(original)) return duplicate;
  struct endpoint *endpoint = endpoint_get(original);
  if (endpoint == NULL) return duplicate;
  bool ours = endpoint->kind != ENDPOINT_FOREIGN && endpoint->kind != ENDPOINT_HIDDEN;
  bool failed = ours && !descriptor_install(duplicate, endpoint);
  endpoint_put(endpoint);
  if (!failed) return duplicate;
  int error = errno;
  raw_close(duplicate);
  errno = error;
  return -1;
}

EXPORT int dup(int fd) { return follow(fd, REAL(dup)(fd)); }

/* The number `fd` is about to become something else. */
static NOINLINE void vacate(int fd) {
  enum endpoint_kind kind;
  if (!look_up(fd, &kind)) return;
  if (kind == ENDPOINT_HIDDEN) descriptor_move_hidden(fd);
  else descriptor_remove(fd);
}

/* True when a call that replaces `target` by `fd` would do so. */
static bool will_replace(int fd, int target) {
  return fd != target && descriptor_is_marked(target) && raw_fcntl(fd, F_GETFD, 0) >= 0;
}

EXPORT int dup2(int fd, int target) {
  if (will_replace(fd, target)) vacate(target);
  int result = REAL(dup2)(fd, target);
  return fd == target ? result : follow(fd, result);
}

EXPORT int dup3(int fd, int target, int flags) {
  if (will_replace(fd, target) && (flags & ~O_CLOEXEC) == 0) vacate(target);
  return follow(fd, REAL(dup3)(fd, target, flags));
}

#define FCNTL(name)                                                                                \
  EXPORT int name(int fd, int command, ...) {                                                      \
    va_list arguments;                                                                             \
    va_start(arguments, command);                                                                  \
    void *argument = va_arg(arguments, void *);                                                    \
    va_end(arguments);                                                                             \
    int result = REAL(name)(fd, command, argument);                                                \
    bool duplicates = command == F_DUPFD || command == F_DUPFD_CLOEXEC;                            \
    return likely(!duplicates) ? result : follow(fd, result);                                      \
  }
FCNTL(fcntl)
FCNTL(fcntl64)

/* Closes a range except for the shim's own descriptors in it. */
static int close_around_hidden(unsigned first, unsigned last, int flags) {
  int result = 0;
  while (result == 0 && first <= last) {
    int hidden = descriptor_next_hidden(first, last);
    if (hidden < 0) return REAL(close_range)(first, last, flags);
    if ((unsigned)hidden > first) result = REAL(close_range)(first, (unsigned)hidden - 1, flags);
    first = (unsigned)hidden + 1;
  }
  return result;
}

EXPORT int close_range(unsigned first, unsigned last, int flags) {
  bool closes = (flags & ~CLOSE_RANGE_UNSHARE) == 0 && first <= last;
  if (!closes || atomic_load(&table_process) == 0 || process_is_foreign()) {
    return REAL(close_range)(first, last, flags);
  }
  descriptor_remove_range(first, last);
  return close_around_hidden(first, last, flags);
}

EXPORT void closefrom(int first) {
  unsigned start = first < 0 ? 0 : (unsigned)first;
  if (atomic_load(&table_process) == 0 || process_is_foreign() || close_range(start, ~0u, 0) != 0) {
    REAL(closefrom)(first);
  }
}
