/* The libc functions that the shim replaces, and access to the real ones. */
#ifndef IWARPD_INTERPOSE_H
#define IWARPD_INTERPOSE_H

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define NOINLINE __attribute__((noinline))
#define likely(condition) __builtin_expect(!!(condition), 1)

/* Called by fortified and older builds; no current header declares them. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *status);
int __xstat64(int version, const char *path, struct stat64 *status);
int __lxstat(int version, const char *path, struct stat *status);
int __lxstat64(int version, const char *path, struct stat64 *status);
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
int __fxstatat(int version, int directory, const char *path, struct stat *status, int flags);
int __fxstatat64(int version, int directory, const char *path, struct stat64 *status, int flags);
ssize_t __read_chk(int fd, void *buffer, size_t length, size_t buffer_bytes);

/* clang-format off */
#define REAL_FUNCTIONS(X)                                                                          \
  X(open) X(open64) X(openat) X(openat64) X(__open_2) X(__open64_2) X(__openat_2) X(__openat64_2)  \
  X(stat) X(stat64) X(lstat) X(lstat64) X(fstat) X(fstat64) X(fstatat) X(fstatat64) X(statx)       \
  X(__xstat) X(__xstat64) X(__lxstat) X(__lxstat64) X(__fxstat) X(__fxstat64) X(__fxstatat)        \
  X(__fxstatat64) X(access) X(faccessat) X(opendir) X(readlink) X(readlinkat) X(fopen) X(fopen64)  \
  X(ioctl) X(write) X(read) X(__read_chk) X(close) X(dup) X(dup2) X(dup3)        \
  X(fcntl) X(fcntl64) X(close_range) X(closefrom) X(socket) X(bind) X(getsockname) X(setsockopt)   \
  X(getsockopt) X(send) X(sendto) X(sendmsg) X(recv) X(recvfrom) X(recvmsg)       \
  X(mremap) X(chroot) X(setuid) X(seteuid) X(setreuid) X(setresuid) X(unshare) X(setns)
/* clang-format on */

enum real_function {
#define REAL_NUMBER(name) REAL_##name,
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

/* The function of this name behind the shim: libc's, or the next preloaded library's. */
#define REAL(name) ((__typeof__(&name))real_address(REAL_##name))

#endif
