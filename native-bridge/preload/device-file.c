/* See device-file.h. */
#include "device-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "descriptor-table.h"
#include "fork.h"
#include "loss-watch.h"
#include "memory-agent.h"
#include "netlink.h"
#include "queue-flush.h"
#include "raw-call.h"

/* Hidden descriptors stay above what select() can take, where the limit allows. */
#define HIDDEN_FLOOR 1024

/* Under the registry lock. */
static struct device_file *files;

long descriptor_floor(unsigned wanted) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur >= 2 * (rlim_t)wanted) return (long)wanted;
  return (long)(limit.rlim_cur / 2);
}

int descriptor_hide(int fd, bool copy, struct device_file *file, _Atomic int *holder) {
  int hidden = raw_fcntl(fd, F_DUPFD_CLOEXEC, descriptor_floor(HIDDEN_FLOOR));
  if (hidden < 0) hidden = raw_fcntl(fd, F_DUPFD_CLOEXEC, 0);
  int error = errno;
  struct endpoint *endpoint = hidden < 0 ? NULL : endpoint_create(ENDPOINT_HIDDEN, hidden, file);
  if (endpoint != NULL) {
    endpoint->holder = holder;
    bool installed = descriptor_install(hidden, endpoint);
    endpoint_put(endpoint);
    if (!installed) endpoint = NULL;
  }
  if (!copy) raw_close(fd);
  if (endpoint == NULL) {
    if (hidden >= 0) raw_close(hidden);
    errno = hidden < 0 ? error : ENOMEM;
    return -1;
  }
  atomic_store(holder, hidden);
  return hidden;
}

void descriptor_close_hidden(_Atomic int *holder) {
  int fd = atomic_exchange(holder, -1);
  if (fd < 0) return;
  descriptor_remove(fd);
  raw_close(fd);
}

void descriptor_move_hidden(int fd) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return;
  if (endpoint->kind == ENDPOINT_HIDDEN && endpoint->holder != NULL) {
    struct device_file *file = endpoint->file;
    if (file != NULL) {
      pthread_mutex_lock(&file->command_lock);
      pthread_mutex_lock(&file->send_lock);
    }
    /* Where there is no other number, the commands of this file fail from now on. */
    if (descriptor_hide(fd, true, file, endpoint->holder) < 0) atomic_store(endpoint->holder, -1);
    if (file != NULL) {
      pthread_mutex_unlock(&file->send_lock);
      pthread_mutex_unlock(&file->command_lock);
    }
    descriptor_remove(fd);
  }
  endpoint_put(endpoint);
}

struct device_file *device_file_create(enum role role, int fd, bool copy,
                                       const struct welcome *welcome) {
  fork_prepare_process();
  struct device_file *file = raw_allocate(sizeof *file);
  uint8_t *reply = raw_allocate(REPLY_MAX);
  if (file == NULL || reply == NULL) {
    if (file != NULL) raw_munmap(file, sizeof *file);
    if (reply != NULL) raw_munmap(reply, REPLY_MAX);
    if (!copy) raw_close(fd);
    errno = ENOMEM;
    return NULL;
  }
  atomic_store(&file->references, 1);
  file->role = role;
  file->number = welcome->number;
  memcpy(file->token, welcome->token, TOKEN_BYTES);
  file->daemon = welcome->daemon;
  pthread_mutex_init(&file->command_lock, NULL);
  pthread_mutex_init(&file->send_lock, NULL);
  file->state = CONNECTION_OPEN;
  file->reply = reply;
  atomic_store(&file->command_fd, -1);
  atomic_store(&file->watch_fd, -1);
  registry_lock();
  file->next = files;
  files = file;
  registry_unlock();
  if (descriptor_hide(fd, copy, file, &file->command_fd) >= 0) return file;
  int error = errno;
  device_file_put(file);
  errno = error;
  return NULL;
}

void device_file_ref(struct device_file *file) { atomic_fetch_add(&file->references, 1); }

static void free_file(struct device_file *file) {
  registry_lock();
  for (struct device_file **link = &files; *link != NULL; link = &(*link)->next) {
    if (*link != file) continue;
    *link = file->next;
    break;
  }
  registry_unlock();
  device_file_shut(file);
  doorbells_free(&file->doorbells);
  queues_free(&file->queues);
  connections_free(&file->connections);
  datagrams_free(file->datagrams);
  raw_munmap(file->reply, REPLY_MAX);
  raw_munmap(file, sizeof *file);
}

void device_file_put(struct device_file *file) {
  if (atomic_fetch_sub(&file->references, 1) == 1) free_file(file);
}

void device_file_shut(struct device_file *file) {
  loss_watch_end(file);
  /* An event descriptor that outlives the file may be in the middle of a command. */
  pthread_mutex_lock(&file->command_lock);
  pthread_mutex_lock(&file->send_lock);
  descriptor_close_hidden(&file->command_fd);
  file->state = CONNECTION_DEAD;
  pthread_mutex_unlock(&file->send_lock);
  pthread_mutex_unlock(&file->command_lock);
  if (file->role == ROLE_UVERBS && !device_files_any(ROLE_UVERBS)) memory_agents_stop();
}

void device_files_visit(void (*visit)(struct device_file *file)) {
  for (struct device_file *file = files; file != NULL; file = file->next) visit(file);
}

bool device_files_any(enum role role) {
  bool any = false;
  registry_lock();
  for (struct device_file *file = files; file != NULL && !any; file = file->next) {
    any = file->role == role &&
          (atomic_load(&file->command_fd) >= 0 || file->state == CONNECTION_DETACHED);
  }
  registry_unlock();
  return any;
}
