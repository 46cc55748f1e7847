/* See loss-watch.h. */
#include "loss-watch.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "hidden-descriptor.h"
#include "queue-flush.h"
#include "raw-call.h"
#include "shim-thread.h"

/* A descriptor may move after its number was read, so that the wait is on a file of the program.
 * Waking up this often finds the new number, at no measurable cost. */
#define NUMBERS_LOOK_MS 2000

/* True when the daemon is gone, false when the program has closed the file. */
static bool await_loss(struct device_file *file) {
  for (;;) {
    struct pollfd entries[2] = {
        {.fd = atomic_load(&file->command_fd), .events = POLLRDHUP},
        {.fd = atomic_load(&file->watch_fd), .events = POLLIN},
    };
    if (entries[0].fd < 0 || entries[1].fd < 0) return false;
    int ready = raw_poll_all(entries, 2, NUMBERS_LOOK_MS);
    if (ready < 0 && errno != EINTR) return false;
    /* The descriptor may have moved, and its number may be the program's now. */
    bool moved = atomic_load(&file->command_fd) != entries[0].fd ||
                 atomic_load(&file->watch_fd) != entries[1].fd;
    if (moved || ready <= 0) continue;
    if (entries[1].revents != 0) return false;
    if (entries[0].revents != 0) return true;
  }
}

static void *watch_main(void *argument) {
  struct device_file *file = argument;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  if (await_loss(file)) {
    pthread_mutex_lock(&file->command_lock);
    if (atomic_load(&file->command_fd) >= 0) {
      /* Set the state first: a thread that posts without a doorbell either sees it, or its request
       * is flushed. */
      atomic_store(&file->state, CONNECTION_DEAD);
      queues_flush(file->queues);
    }
    pthread_mutex_unlock(&file->command_lock);
  }
  descriptor_close_hidden(&file->watch_fd);
  atomic_store(&file->watched, false);
  device_file_put(file);
  return NULL;
}

void loss_watch_start(struct device_file *file) {
  if (atomic_load(&file->watch_fd) >= 0) return;
  int saved = errno;
  int fd = (int)syscall(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    errno = saved;
    return;
  }
  /* In this order: another thread may fork in between, and the child drops one reference if the
   * file is watched. */
  device_file_ref(file);
  atomic_store(&file->watched, true);
  bool started = descriptor_hide(fd, false, NULL, &file->watch_fd) >= 0 &&
                 shim_thread_start(watch_main, file) == 0;
  if (!started) {
    descriptor_close_hidden(&file->watch_fd);
    atomic_store(&file->watched, false);
    device_file_put(file);
  }
  errno = saved;
}

void loss_watch_end(struct device_file *file) {
  int saved = errno;
  uint64_t one = 1;
  hidden_lock();
  int fd = atomic_load(&file->watch_fd);
  if (fd >= 0) syscall(SYS_write, fd, &one, sizeof one);
  hidden_unlock();
  /* The thread wakes up, but the program may count its descriptors before it runs. */
  descriptor_close_hidden(&file->watch_fd);
  errno = saved;
}

static void forget(struct device_file *file) {
  descriptor_close_hidden(&file->watch_fd);
  if (atomic_exchange(&file->watched, false)) atomic_fetch_sub(&file->references, 1);
}

void loss_watches_forget(void) { device_files_visit(forget); }
