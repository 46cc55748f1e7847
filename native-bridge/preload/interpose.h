/* The libc functions that the shim replaces, and access to the real ones. */
#ifndef IWARPD_INTERPOSE_H
#define IWARPD_INTERPOSE_H

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "path-calls.h"

#define EXPORT __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))
#define likely(condition) __builtin_expect(!!(condition), 1)

/* Fortified and older programs call these; current headers do not declare them. */
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
ssize_t __read_chk(int fd, void *buffer, size_t length, size_t buffer_bytes);

/* clang-format off */
#define OTHER_CALLS(ROW)                                                                           \
  ROW(, fstat) ROW(, fstat64) ROW(, __fxstat) ROW(, __fxstat64) ROW(, ioctl) ROW(, write)          \
  ROW(, read) ROW(, __read_chk) ROW(, close) ROW(, dup) ROW(, dup2) ROW(, dup3) ROW(, fcntl)       \
  ROW(, fcntl64) ROW(, close_range) ROW(, closefrom) ROW(, socket) ROW(, bind)                     \
  ROW(, getsockname) ROW(, setsockopt) ROW(, getsockopt) ROW(, send) ROW(, sendto) ROW(, sendmsg)  \
  ROW(, recv) ROW(, recvfrom) ROW(, recvmsg) ROW(, mremap) ROW(, chroot) ROW(, setuid)             \
  ROW(, seteuid) ROW(, setreuid) ROW(, setresuid) ROW(, unshare) ROW(, setns) ROW(, if_nametoindex)
/* clang-format on */

#define REAL_FUNCTIONS(ROW) OTHER_CALLS(ROW) PATH_CALLS(ROW, ROW)

enum real_function {
#define REAL_NUMBER(type, name, ...) REAL_##name,
  REAL_FUNCTIONS(REAL_NUMBER)
#undef REAL_NUMBER
  REAL_FUNCTION_COUNT
};

extern _Atomic(void *) real_addresses[REAL_FUNCTION_COUNT];

/* Looks the function up; if this libc lacks it, the result fails with ENOSYS. */
void *real_resolve(enum real_function which);

static inline void *real_address(enum real_function which) {
  void *address = atomic_load_explicit(&real_addresses[which], memory_order_relaxed);
  return likely(address != NULL) ? address : real_resolve(which);
}

/* The next function of this name after the shim's: libc's, or another preloaded library's. */
#define REAL(name) ((__typeof__(&name))real_address(REAL_##name))

#endif
