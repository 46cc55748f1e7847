/* See shim-thread.h. */
#include "shim-thread.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define STACK_BYTES (64 * 1024 + PTHREAD_STACK_MIN)

int shim_thread_start(void *(*run)(void *argument), void *argument) {
  pthread_attr_t attributes;
  sigset_t all;
  sigset_t before;
  pthread_t thread;
  if (pthread_attr_init(&attributes) != 0) return -ENOMEM;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, (size_t)STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread, &attributes, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return -error;
}
