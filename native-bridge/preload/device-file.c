/* See device-file.h. */
#include "device-file.h"

#include <string.h>

#include "queue-flush.h"
#include "raw-call.h"
#include "registry.h"

/* Under the registry lock. */
static struct device_file *files;

struct device_file *device_file_create(enum role role, const struct welcome *welcome) {
  registry_prepare();
  struct device_file *file = raw_allocate(sizeof *file);
  uint8_t *reply = raw_allocate(REPLY_MAX);
  if (file == NULL || reply == NULL) {
    if (file != NULL) raw_munmap(file, sizeof *file);
    if (reply != NULL) raw_munmap(reply, REPLY_MAX);
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
  return file;
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
  for (EACH_PART(part)) {
    if (part->file_free != NULL) part->file_free(file);
  }
  raw_munmap(file->reply, REPLY_MAX);
  pthread_mutex_destroy(&file->command_lock);
  pthread_mutex_destroy(&file->send_lock);
  raw_munmap(file, sizeof *file);
}

void device_file_put(struct device_file *file) {
  if (atomic_fetch_sub(&file->references, 1) == 1) free_file(file);
}

void device_file_shut(struct device_file *file) {
  for (EACH_PART(part)) {
    if (part->file_shut != NULL) part->file_shut(file);
  }
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
