/* See fork.h.
 *
 * A child inherits the program's descriptors, which keep the daemon's files open as the kernel's
 * are. It must not talk on the inherited connections, where its frames would mix with its parent's:
 * it makes a connection when it first needs one. Of the inherited ones it keeps that of a device as
 * long as it has the device's descriptor, which is not a connection itself. */
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>

#include "descriptor-table.h"
#include "device-file.h"
#include "loss-watch.h"
#include "memory-agent.h"
#include "private-rings.h"
#include "raw-call.h"

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;
/* The process that may trace this one; 0 when no permission is needed. */
static _Atomic pid_t granted;

void registry_lock(void) { pthread_mutex_lock(&registry); }

void registry_unlock(void) { pthread_mutex_unlock(&registry); }

static void before_fork(void) {
  registry_lock();
  hidden_lock();
}

static void after_fork(void) {
  hidden_unlock();
  registry_unlock();
}

static void detach(struct device_file *file) {
  pthread_mutex_init(&file->command_lock, NULL);
  pthread_mutex_init(&file->send_lock, NULL);
  loss_watch_forget(file);
  bool closed = atomic_load(&file->command_fd) < 0;
  bool keeps = file->role == ROLE_UVERBS && atomic_load(&file->inherited_fd) < 0;
  if (keeps) descriptor_pass_hidden(&file->command_fd, &file->inherited_fd);
  else descriptor_close_hidden(&file->command_fd);
  file->parent = atomic_load(&table_process);
  file->inherited = true;
  if (!closed && file->state == CONNECTION_OPEN) file->state = CONNECTION_DETACHED;
}

static void in_child(void) {
  int saved = errno;
  pthread_mutex_init(&registry, NULL);
  hidden_lock_forget();
  device_files_visit(detach);
  atomic_store(&table_process, (pid_t)syscall(SYS_getpid));
  memory_agents_forget();
  endpoints_recount();
  device_files_visit(private_rings_take);
  pid_t daemon = atomic_load(&granted);
  if (daemon != 0) prctl(PR_SET_PTRACER, (unsigned long)daemon, 0, 0, 0);
  errno = saved;
}

static void prepare(void) {
  pthread_atfork(before_fork, after_fork, in_child);
  atomic_store(&table_process, (pid_t)syscall(SYS_getpid));
}

void fork_prepare_process(void) { pthread_once(&prepared, prepare); }

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

void fork_grant_daemon(pid_t daemon) {
  if (daemon <= 0 || atomic_load(&granted) == daemon) return;
  int saved = errno;
  if (yama_asks()) {
    prctl(PR_SET_PTRACER, (unsigned long)daemon, 0, 0, 0);
    atomic_store(&granted, daemon);
  }
  errno = saved;
}
