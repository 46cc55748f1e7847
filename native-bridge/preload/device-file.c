/* See device-file.h. */
#include "device-file.h"

#include <errno.h>
#include <string.h>

#include "descriptor-table.h"
#include "fork.h"
#include "loss-watch.h"
#include "memory-agent.h"
#include "netlink.h"
#include "private-rings.h"
#include "queue-flush.h"
#include "raw-call.h"

/* Under the registry lock. */
static struct device_file *files;

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
  atomic_store(&file->inherited_fd, -1);
  atomic_store(&file->watch_fd, -1);
  atomic_store(&file->maps_fd, -1);
  registry_lock();
  file->next = files;
  files = file;
  registry_unlock();
  int maps = role == ROLE_UVERBS ? private_rings_open() : -1;
  if (maps >= 0) descriptor_hide(maps, false, file, &file->maps_fd);
  if (descriptor_hide(fd, copy, file, &file->command_fd) >= 0) return file;
  int error = errno;
  device_file_put(file);
  errno = error;
  return NULL;
}

void device_file_ref(struct device_file *file) { atomic_fetch_add(&file->references, 1); }

bool device_file_try_ref(struct device_file *file) {
  uint32_t references = atomic_load(&file->references);
  while (references != 0) {
    if (atomic_compare_exchange_weak(&file->references, &references, references + 1)) return true;
  }
  return false;
}

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
  pthread_mutex_destroy(&file->command_lock);
  pthread_mutex_destroy(&file->send_lock);
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
  descriptor_close_hidden(&file->inherited_fd);
  descriptor_close_hidden(&file->maps_fd);
  file->state = CONNECTION_DEAD;
  pthread_mutex_unlock(&file->send_lock);
  pthread_mutex_unlock(&file->command_lock);
  registrations_free(&file->registrations);
  if (file->role == ROLE_UVERBS && !device_files_any(ROLE_UVERBS)) memory_agents_stop();
}

void device_files_visit(void (*visit)(struct device_file *file)) {
  for (struct device_file *file = files; file != NULL; file = file->next) visit(file);
}

struct device_file *device_file_detached(void) {
  struct device_file *found = NULL;
  registry_lock();
  for (struct device_file *file = files; file != NULL && found == NULL; file = file->next) {
    if (file->state == CONNECTION_DETACHED && device_file_try_ref(file)) found = file;
  }
  registry_unlock();
  return found;
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
