/* The shim's own system calls. They bypass libc's names, so other preloaded libraries do not see
 * the shim's descriptors, and none is a cancellation point. They set errno as libc does. */
#ifndef IWARPD_RAW_CALL_H
#define IWARPD_RAW_CALL_H

#include <errno.h>
#include <linux/futex.h>
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

/* Waits for `events` on one descriptor; a negative time waits forever. */
static inline int raw_poll(int fd, short events, int timeout_ms) {
  struct pollfd entry = {.fd = fd, .events = events};
  struct timespec limit = {.tv_sec = timeout_ms / 1000,
                           .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  return (int)syscall(SYS_ppoll, &entry, 1, timeout_ms < 0 ? NULL : &limit, NULL, 8);
}

/* Waits for several descriptors. */
static inline int raw_poll_all(struct pollfd *entries, unsigned count, int timeout_ms) {
  struct timespec limit = {.tv_sec = timeout_ms / 1000,
                           .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  return (int)syscall(SYS_ppoll, entries, count, &limit, NULL, 8);
}

static inline int raw_setsockopt(int fd, int level, int option, const void *value,
                                 socklen_t length) {
  return (int)syscall(SYS_setsockopt, fd, level, option, value, length);
}

#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer must see allocations and frees; otherwise a reused address looks like one that
 * two threads use at once. It must not see the descriptors, because it does not see them close,
 * either. */
static inline void *raw_mmap(void *address, size_t length, int protection, int flags, int fd,
                             off_t offset) {
  int anonymous = (flags & MAP_FIXED) | MAP_PRIVATE | MAP_ANONYMOUS;
  void *place = mmap(address, length, protection, anonymous, -1, 0);
  if (fd < 0 || place == MAP_FAILED) return place;
  return (void *)syscall(SYS_mmap, place, length, protection, flags | MAP_FIXED, fd, offset);
}

static inline int raw_munmap(void *address, size_t length) { return munmap(address, length); }
#else
static inline void *raw_mmap(void *address, size_t length, int protection, int flags, int fd,
                             off_t offset) {
  return (void *)syscall(SYS_mmap, address, length, protection, flags, fd, offset);
}

static inline int raw_munmap(void *address, size_t length) {
  return (int)syscall(SYS_munmap, address, length);
}
#endif

/* Maps a part of the file of rings. NULL if there is no room for it, or if the file ends before it:
 * an access would raise SIGBUS. */
static inline void *raw_map_rings(int rings, uint64_t offset, uint64_t length) {
  struct stat status;
  if (length == 0 || raw_fstat(rings, &status) != 0 || status.st_size < 0) return NULL;
  uint64_t size = (uint64_t)status.st_size;
  if (length > size || offset > size - length) return NULL;
  void *memory =
      raw_mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, rings, (off_t)offset);
  return memory == MAP_FAILED ? NULL : memory;
}

/* True for bytes in the page of the caller's own frame, which needs no check. Most commands and
 * responses are on the stack, right above. */
static inline bool lies_on_own_page(uintptr_t first, uintptr_t last) {
  char here;
  uintptr_t page = (uintptr_t)&here / 4096;
  return first / 4096 == page && last / 4096 == page;
}

/* True if `length` bytes of the program's memory can be read, unless the program unmaps them
 * meanwhile. Uses a system call that reads a word, compares it, and wakes no thread. */
static inline bool memory_gives(const void *source, size_t length) {
  uintptr_t first = (uintptr_t)source;
  uintptr_t last = first + length - 1;
  if (length == 0) return true;
  if (source == NULL || last < first) return false;
  if (lies_on_own_page(first, last)) return true;
  int saved = errno;
  bool faulted = false;
  uintptr_t at = first / sizeof(uint32_t) * sizeof(uint32_t);
  for (;;) {
    long result = syscall(SYS_futex, at, FUTEX_CMP_REQUEUE_PRIVATE, 0, NULL, at, 0);
    faulted = result != 0 && errno == EFAULT;
    if (faulted || at / 4096 == last / 4096) break;
    at = at / 4096 * 4096 + 4096;
  }
  errno = saved;
  return !faulted;
}

/* True if `length` bytes, at least four, can be written to the program's memory: the next write
 * cannot fault unless the program unmaps the memory meanwhile. Uses a system call that writes four
 * bytes into each page. */
static inline bool memory_takes(void *target, size_t length) {
  uintptr_t first = (uintptr_t)target;
  uintptr_t last = first + length - sizeof(uint32_t);
  /* For NULL, the system call would write nothing. */
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

/* Zeroed memory for the shim, which never calls the program's allocator; NULL if there is none. */
static inline void *raw_allocate(size_t length) {
  void *memory = raw_mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

#endif
