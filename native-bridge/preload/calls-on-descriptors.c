/* The libc calls that close and duplicate descriptors, so that the table follows them. */
#include <errno.h>
#include <stdarg.h>

#include "descriptor-table.h"
#include "hidden-descriptor.h"
#include "interpose.h"
#include "raw-call.h"
#include "registry.h"

/* The kind of `fd`. False for an ordinary descriptor, and in a child that shares its parent's
 * memory: what it closes stays open in the parent. */
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
  /* Remove it first: as soon as it is closed, another thread may get the number. */
  descriptor_remove(fd);
  return REAL(close)(fd);
}

EXPORT int close(int fd) {
  if (likely(!descriptor_is_marked(fd))) return REAL(close)(fd);
  return close_special(fd);
}

EXPORT int __close(int fd) { return close(fd); }

/* Gives the duplicate the original's endpoint. */
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

/* True when a call that is about to replace `target` by `fd` concerns this process's table. */
static bool will_replace(int fd, int target) {
  if (fd == target || atomic_load(&table_process) == 0 || process_is_foreign()) return false;
  return raw_fcntl(fd, F_GETFD, 0) >= 0;
}

static int replaced(int fd, int target, int result) {
  result = follow(fd, result);
  descriptor_vacated(target);
  return result;
}

EXPORT int dup2(int fd, int target) {
  if (!will_replace(fd, target)) return REAL(dup2)(fd, target);
  descriptor_vacate(target);
  return replaced(fd, target, REAL(dup2)(fd, target));
}

EXPORT int dup3(int fd, int target, int flags) {
  if ((flags & ~O_CLOEXEC) != 0 || !will_replace(fd, target)) return REAL(dup3)(fd, target, flags);
  descriptor_vacate(target);
  return replaced(fd, target, REAL(dup3)(fd, target, flags));
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

static int close_some(unsigned first, unsigned last, int flags) {
  return REAL(close_range)(first, last, flags);
}

EXPORT int close_range(unsigned first, unsigned last, int flags) {
  bool closes = (flags & ~CLOSE_RANGE_UNSHARE) == 0 && first <= last;
  if (!closes || atomic_load(&table_process) == 0 || process_is_foreign()) {
    return REAL(close_range)(first, last, flags);
  }
  return descriptors_close_around(first, last, flags, close_some);
}

EXPORT void closefrom(int first) {
  unsigned start = first < 0 ? 0 : (unsigned)first;
  if (atomic_load(&table_process) == 0 || process_is_foreign() || close_range(start, ~0u, 0) != 0) {
    REAL(closefrom)(first);
  }
}
