/* See registry.h. */
#include "registry.h"

#include <errno.h>
#include <pthread.h>

#include "raw-call.h"

_Atomic pid_t table_process;
_Atomic pid_t table_parent;

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

void registry_lock(void) { pthread_mutex_lock(&registry); }

void registry_unlock(void) { pthread_mutex_unlock(&registry); }

bool process_is_foreign(void) {
  pid_t process = atomic_load_explicit(&table_process, memory_order_relaxed);
  return process != 0 && process != (pid_t)syscall(SYS_getpid);
}

static void before_fork(void) {
  registry_lock();
  for (EACH_PART(part)) {
    if (part->before_fork != NULL) part->before_fork();
  }
}

static void after_fork(void) {
  for (EACH_PART(part)) {
    if (part->after_fork != NULL) part->after_fork();
  }
  registry_unlock();
}

static void in_child(void) {
  int saved = errno;
  pthread_mutex_init(&registry, NULL);
  atomic_store(&table_parent, atomic_load(&table_process));
  atomic_store(&table_process, (pid_t)syscall(SYS_getpid));
  for (EACH_PART(part)) {
    if (part->in_child != NULL) part->in_child();
  }
  errno = saved;
}

static void prepare(void) {
  pthread_atfork(before_fork, after_fork, in_child);
  atomic_store(&table_process, (pid_t)syscall(SYS_getpid));
}

void registry_prepare(void) { pthread_once(&prepared, prepare); }
