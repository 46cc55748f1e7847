/* See registered-memory.h. */
#include "registered-memory.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "raw-call.h"

#define CAPACITY_MIN 128u
/* The daemon numbers objects from 0, and limits a program to fewer: a larger number is invalid, and
 * its region is not served. */
#define CAPACITY_MAX (1u << 20)

/* Guards all of the following. Held while an agent copies. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registrations *all;
static struct starting_registration *starting_all;
/* The range that was found last: most requests are for the same one. */
static struct registered_range recent;

static bool covers(const struct registered_range *range, uint64_t address, uint64_t end,
                   bool write) {
  return range->start <= address && end <= range->end && (range->writable || !write);
}

static size_t table_bytes(uint32_t capacity) {
  return capacity * sizeof(struct registered_range);
}

/* Under the lock: makes room for `handle`. */
static bool grow(struct registrations *registrations, uint32_t handle) {
  if (handle < registrations->capacity) return true;
  if (handle >= CAPACITY_MAX) return false;
  uint32_t capacity = CAPACITY_MIN;
  while (capacity <= handle) capacity *= 2;
  struct registered_range *larger = raw_allocate(table_bytes(capacity));
  if (larger == NULL) return false;
  if (registrations->capacity > 0) {
    memcpy(larger, registrations->by_handle, table_bytes(registrations->capacity));
    raw_munmap(registrations->by_handle, table_bytes(registrations->capacity));
  }
  registrations->by_handle = larger;
  registrations->capacity = capacity;
  return true;
}

void registration_begin(struct starting_registration *starting) {
  pthread_mutex_lock(&lock);
  starting->next = starting_all;
  starting_all = starting;
  pthread_mutex_unlock(&lock);
}

void registration_end(struct starting_registration *starting) {
  pthread_mutex_lock(&lock);
  for (struct starting_registration **link = &starting_all; *link != NULL; link = &(*link)->next) {
    if (*link != starting) continue;
    *link = starting->next;
    break;
  }
  recent = (struct registered_range){0};
  pthread_mutex_unlock(&lock);
}

void registration_add(struct registrations *registrations, uint32_t handle,
                      const struct registered_range *range) {
  pthread_mutex_lock(&lock);
  if (!registrations->listed) {
    registrations->listed = true;
    registrations->next = all;
    all = registrations;
  }
  recent = (struct registered_range){0};
  if (grow(registrations, handle)) registrations->by_handle[handle] = *range;
  pthread_mutex_unlock(&lock);
}

void registration_remove(struct registrations *registrations, uint32_t handle) {
  pthread_mutex_lock(&lock);
  recent = (struct registered_range){0};
  if (handle < registrations->capacity) {
    registrations->by_handle[handle] = (struct registered_range){0};
  }
  pthread_mutex_unlock(&lock);
}

/* Under the lock: a registration in the moved memory, or NULL. */
static struct registered_range *find_moved(struct registrations *registrations,
                                           const struct moved_memory *moved) {
  for (uint32_t handle = 0; handle < registrations->capacity; handle++) {
    struct registered_range *range = &registrations->by_handle[handle];
    if (range->end == range->start || range->start < moved->from) continue;
    if (range->end - moved->from <= moved->length) return range;
  }
  return NULL;
}

bool registration_follow(const struct moved_memory *moved, struct moved_region *region,
                         bool (*hold)(struct registrations *registrations)) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (struct registrations *file = all; file != NULL && !found; file = file->next) {
    struct registered_range *range = find_moved(file, moved);
    found = range != NULL && hold(file);
    if (!found) continue;
    recent = (struct registered_range){0};
    range->start = range->start - moved->from + moved->to;
    range->end = range->end - moved->from + moved->to;
    *region = (struct moved_region){.registrations = file,
                                    .handle = (uint32_t)(range - file->by_handle),
                                    .start = range->start};
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void registrations_free(struct registrations *registrations) {
  pthread_mutex_lock(&lock);
  for (struct registrations **link = &all; *link != NULL; link = &(*link)->next) {
    if (*link != registrations) continue;
    *link = registrations->next;
    break;
  }
  recent = (struct registered_range){0};
  if (registrations->capacity > 0) {
    raw_munmap(registrations->by_handle, table_bytes(registrations->capacity));
  }
  *registrations = (struct registrations){0};
  pthread_mutex_unlock(&lock);
}

void registrations_forget(void) {
  /* The thread that may have held it exists in the parent only. */
  pthread_mutex_init(&lock, NULL);
  starting_all = NULL;
  while (all != NULL) registrations_free(all);
}

/* Under the lock. */
static const struct registered_range *find(uint64_t address, uint64_t end, bool write) {
  if (covers(&recent, address, end, write)) return &recent;
  for (const struct starting_registration *one = starting_all; one != NULL; one = one->next) {
    if (covers(&one->range, address, end, write)) return &one->range;
  }
  for (const struct registrations *file = all; file != NULL; file = file->next) {
    for (uint32_t handle = 0; handle < file->capacity; handle++) {
      if (covers(&file->by_handle[handle], address, end, write)) return &file->by_handle[handle];
    }
  }
  return NULL;
}

bool registered_memory_hold(uint64_t address, uint64_t length, bool write) {
  uint64_t end = address + length;
  if (end <= address) return false;
  pthread_mutex_lock(&lock);
  const struct registered_range *range = find(address, end, write);
  if (range != NULL) {
    recent = *range;
    return true;
  }
  pthread_mutex_unlock(&lock);
  return false;
}

void registered_memory_release(void) { pthread_mutex_unlock(&lock); }
