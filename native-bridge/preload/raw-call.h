/* System calls of the shim itself. They bypass libc's names, so that no other preloaded library
 * sees the shim's own descriptors, and none of them is a cancellation point. They set errno as
 * libc's do. */
#ifndef IWARPD_RAW_CALL_H
#define IWARPD_RAW_CALL_H

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline int raw_close(int fd) { return (int)syscall(SYS_close, fd); }

static inline int raw_fstat(int fd, struct stat *status) {
  return (int)syscall(SYS_fstat, fd, status);
}

static inline int raw_fcntl(int fd, int command, long argument) {
  return (int)syscall(SYS_fcntl, fd, command, argument);
}

static inline ssize_t raw_sendmsg(int fd, const struct msghdr *message, int flags) {
  return syscall(SYS_sendmsg, fd, message, flags);
}

static inline ssize_t raw_recvmsg(int fd, struct msghdr *message, int flags) {
  return syscall(SYS_recvmsg, fd, message, flags);
}

static inline ssize_t raw_recv(int fd, void *target, size_t length, int flags) {
  return syscall(SYS_recvfrom, fd, target, length, flags, NULL, NULL);
}

/* Waits for `events` on one descriptor; a negative time waits for ever. */
static inline int raw_poll(int fd, short events, int timeout_ms) {
  struct pollfd entry = {.fd = fd, .events = events};
  struct timespec limit = {.tv_sec = timeout_ms / 1000,
                           .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  return (int)syscall(SYS_ppoll, &entry, 1, timeout_ms < 0 ? NULL : &limit, NULL, 8);
}

/* Waits for several descriptors, for ever. */
static inline int raw_poll_all(struct pollfd *entries, unsigned count) {
  return (int)syscall(SYS_ppoll, entries, count, NULL, NULL, 8);
}

static inline int raw_setsockopt(int fd, int level, int option, const void *value,
                                 socklen_t length) {
  return (int)syscall(SYS_setsockopt, fd, level, option, value, length);
}

static inline void *raw_mmap(void *address, size_t length, int protection, int flags, int fd,
                             off_t offset) {
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

static inline int raw_munmap(void *address, size_t length) {
  return (int)syscall(SYS_munmap, address, length);
}

/* True for octets in the page that the caller's own frame begins in, which needs no asking. Most
 * commands and responses lie on the stack, right above. */
static inline bool lies_on_own_page(uintptr_t first, uintptr_t last) {
  char here;
  uintptr_t page = (uintptr_t)&here / 4096;
  return first / 4096 == page && last / 4096 == page;
}

/* True when `length` octets of the program's memory can be read, unless it takes the memory away
 * meanwhile. The system is asked by a call that reads a signal set of eight octets before it refuses
 * to do something unheard of with it. */
static inline bool memory_gives(const void *source, size_t length) {
  uintptr_t first = (uintptr_t)source;
  uintptr_t last = first + length - 1;
  if (length == 0) return true;
  /* No set at all is what the call takes NULL for. */
  if (first < sizeof(uint64_t) || last < first) return false;
  if (lies_on_own_page(first, last)) return true;
  int saved = errno;
  bool faulted = false;
  uintptr_t at = first / sizeof(uint64_t) * sizeof(uint64_t);
  for (;;) {
    faulted = syscall(SYS_rt_sigprocmask, -1, at, NULL, sizeof(uint64_t)) != 0 && errno == EFAULT;
    if (faulted || at / 4096 == last / 4096) break;
    at = at / 4096 * 4096 + 4096;
  }
  errno = saved;
  return !faulted;
}

/* True when the program's memory takes `length` octets, at least four: what is written there next
 * cannot fault, unless the program takes the memory away meanwhile. The system is asked, which does
 * by writing four octets into each page. */
static inline bool memory_takes(void *target, size_t length) {
  uintptr_t first = (uintptr_t)target;
  uintptr_t last = first + length - sizeof(uint32_t);
  /* To write nothing is what the call does for NULL. */
  if (target == NULL || length < sizeof(uint32_t) || last < first) return false;
  if (lies_on_own_page(first, first + length - 1)) return true;
  int saved = errno;
  bool faulted = false;
  for (uintptr_t at = first; !faulted; at = at / 4096 * 4096 + 4096) {
    if (at > last) at = last;
    faulted = syscall(SYS_getcpu, at, NULL, NULL) != 0 && errno == EFAULT;
    if (at == last) break;
  }
  errno = saved;
  return !faulted;
}

/* Zeroed memory of the shim's own, so that the program's allocator is never entered; NULL when
 * there is none. */
static inline void *raw_allocate(size_t length) {
  void *memory = raw_mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

#endif
