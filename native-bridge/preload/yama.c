/* See yama.h. */
#include "yama.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include "raw-call.h"

/* The process that may trace this one; 0 when no permission is needed. */
static _Atomic pid_t granted;

static void grant(pid_t daemon) { prctl(PR_SET_PTRACER, (unsigned long)daemon, 0, 0, 0); }

/* True when Yama restricts tracing to descendants, the one scope in which a process can permit
 * another. */
static bool yama_asks(void) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope",
                        O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char scope = '0';
  ssize_t length = syscall(SYS_read, fd, &scope, 1);
  raw_close(fd);
  return length == 1 && scope == '1';
}

void yama_permit(pid_t daemon) {
  if (daemon <= 0 || atomic_load(&granted) == daemon) return;
  int saved = errno;
  if (yama_asks()) {
    grant(daemon);
    atomic_store(&granted, daemon);
  }
  errno = saved;
}

void yama_permit_again(void) {
  pid_t daemon = atomic_load(&granted);
  if (daemon != 0) grant(daemon);
}
