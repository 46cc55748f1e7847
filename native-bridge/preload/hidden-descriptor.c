/* See hidden-descriptor.h. */
#include "hidden-descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/resource.h>

#include "descriptor-table.h"
#include "device-file.h"
#include "raw-call.h"

/* Hidden descriptors stay above what select() can take, if the limit allows. */
#define HIDDEN_FLOOR 1024

static pthread_mutex_t numbers = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t pins = PTHREAD_MUTEX_INITIALIZER;

void hidden_lock(void) { pthread_mutex_lock(&numbers); }

void hidden_unlock(void) { pthread_mutex_unlock(&numbers); }

void hidden_pin(void) { pthread_mutex_lock(&pins); }

void hidden_unpin(void) { pthread_mutex_unlock(&pins); }

void hidden_locks_reset(void) {
  pthread_mutex_init(&numbers, NULL);
  pthread_mutex_init(&pins, NULL);
}

long descriptor_floor(unsigned wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= 2 * (rlim_t)wanted) return (long)wanted;
  return (long)(limit.rlim_cur / 2);
}

/* Under the lock: copies `fd` to a high number for the endpoint. Returns the number, or -1 with
 * errno. The caller puts `*before`, the number's previous endpoint, after it released the lock. */
static int place(int fd, struct endpoint *endpoint, struct endpoint **before) {
  for (;;) {
    int hidden = raw_fcntl(fd, F_DUPFD_CLOEXEC, descriptor_floor(HIDDEN_FLOOR));
    if (hidden < 0) hidden = raw_fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (hidden < 0) return -1;
    enum install_result result = descriptor_install_unreserved(hidden, endpoint, before);
    if (result == INSTALL_DONE) return hidden;
    /* The program is about to replace it, and thereby closes this copy. */
    if (result == INSTALL_RESERVED) continue;
    raw_close(hidden);
    errno = ENOMEM;
    return -1;
  }
}

int descriptor_hide(int fd, bool copy, struct device_file *file, _Atomic int *holder) {
  struct endpoint *endpoint = endpoint_create(ENDPOINT_HIDDEN, fd, file);
  struct endpoint *before = NULL;
  int hidden = -1;
  int error = ENOMEM;
  if (endpoint != NULL) {
    endpoint->holder = holder;
    hidden_lock();
    hidden = place(fd, endpoint, &before);
    error = errno;
    if (hidden >= 0) atomic_store(holder, hidden);
    hidden_unlock();
    if (before != NULL) endpoint_put(before);
    endpoint_put(endpoint);
  }
  if (!copy) raw_close(fd);
  if (hidden < 0) errno = error;
  return hidden;
}

void descriptor_close_hidden(_Atomic int *holder) {
  hidden_lock();
  int fd = atomic_exchange(holder, -1);
  /* If the program closed the number by a system call, it may now be a file of
   * the program. */
  struct endpoint *endpoint = fd < 0 ? NULL : descriptor_hidden_endpoint(fd);
  if (endpoint != NULL && endpoint->holder == holder) {
    /* In this order: once the table says that the number is free, the program may get it. */
    raw_close(fd);
    descriptor_withdraw(fd, endpoint);
  }
  hidden_unlock();
}

void descriptor_pass_hidden(_Atomic int *holder, _Atomic int *next) {
  hidden_lock();
  int fd = atomic_exchange(holder, -1);
  struct endpoint *endpoint = fd < 0 ? NULL : descriptor_hidden_endpoint(fd);
  if (endpoint != NULL && endpoint->holder == holder) {
    endpoint->holder = next;
    atomic_store(next, fd);
  }
  hidden_unlock();
}

/* Under the lock. The old number stays open: the program's call replaces it. */
static void move(int fd, struct endpoint *endpoint, struct endpoint **before) {
  int hidden = place(fd, endpoint, before);
  /* If no other number is free, the owner loses its descriptor: the file's commands fail. */
  atomic_store(endpoint->holder, hidden);
  descriptor_withdraw(fd, endpoint);
}

static void move_hidden(int fd) {
  struct endpoint *before = NULL;
  struct device_file *file = NULL;
  hidden_lock();
  struct endpoint *endpoint = descriptor_hidden_endpoint(fd);
  if (endpoint != NULL) {
    endpoint_ref(endpoint);
    /* While the number has this endpoint, the owner exists. A file without references is being
     * closed and has no other user. */
    bool used = endpoint->file != NULL && device_file_try_ref(endpoint->file);
    if (used) file = endpoint->file;
  }
  hidden_unlock();
  if (endpoint == NULL) return;
  if (file != NULL) {
    pthread_mutex_lock(&file->command_lock);
    pthread_mutex_lock(&file->send_lock);
  } else {
    hidden_pin();
  }
  hidden_lock();
  if (descriptor_hidden_endpoint(fd) == endpoint) move(fd, endpoint, &before);
  hidden_unlock();
  if (file != NULL) {
    pthread_mutex_unlock(&file->send_lock);
    pthread_mutex_unlock(&file->command_lock);
    device_file_put(file);
  } else {
    hidden_unpin();
  }
  if (before != NULL) endpoint_put(before);
  endpoint_put(endpoint);
}

void descriptor_vacate(int number) {
  int saved = errno;
  while (!descriptor_reserve(number)) move_hidden(number);
  errno = saved;
}

/* Under the lock: if a reservation ended between the two steps of `place`, that would take a number
 * that the program has just replaced. */
void descriptor_vacated(int number) {
  hidden_lock();
  descriptor_end_reservation(number);
  hidden_unlock();
}

int descriptors_close_around(unsigned first, unsigned last, int flags,
                             int (*close_some)(unsigned first, unsigned last, int flags)) {
  int result = 0;
  descriptor_remove_range(first, last);
  hidden_lock();
  while (result == 0 && first <= last) {
    int hidden = descriptor_next_hidden(first, last);
    if (hidden < 0) {
      result = close_some(first, last, flags);
      break;
    }
    if ((unsigned)hidden > first) result = close_some(first, (unsigned)hidden - 1, flags);
    first = (unsigned)hidden + 1;
  }
  hidden_unlock();
  return result;
}
