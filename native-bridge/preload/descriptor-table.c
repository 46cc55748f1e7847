/* See descriptor-table.h. */
#include "descriptor-table.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "device-file.h"
#include "event-ring.h"
#include "raw-call.h"
#include "registry.h"

_Atomic(endpoint_slot *) descriptor_chunks[TABLE_CHUNKS];

/* Endpoints to reuse. Any thread may add one; only the holder of the registry lock takes one, so
 * the head cannot be taken, used and returned between reading it and exchanging it. */
static _Atomic(struct endpoint *) free_endpoints;
/* Every endpoint ever made. */
static struct endpoint *made_endpoints;
/* One more than the highest descriptor that ever had an endpoint. */
static _Atomic unsigned descriptor_limit;

static struct endpoint foreign_endpoint = {.references = 1, .kind = ENDPOINT_FOREIGN};
/* In the slot of a number that the program is about to use. */
static struct endpoint reserved_endpoint = {.references = 1, .kind = ENDPOINT_FOREIGN};

static endpoint_slot *slot_of(unsigned number) {
  if (number >= TABLE_CHUNKS * CHUNK_SLOTS) return NULL;
  endpoint_slot *chunk = atomic_load(&descriptor_chunks[number >> CHUNK_BITS]);
  return chunk == NULL ? NULL : &chunk[number & (CHUNK_SLOTS - 1)];
}

/* The slot of a number. Makes its chunk if it is missing. */
static endpoint_slot *slot_for(unsigned number) {
  if (number >= TABLE_CHUNKS * CHUNK_SLOTS) {
    errno = EMFILE;
    return NULL;
  }
  _Atomic(endpoint_slot *) *place = &descriptor_chunks[number >> CHUNK_BITS];
  if (atomic_load(place) == NULL) {
    endpoint_slot *made = raw_allocate(CHUNK_SLOTS * sizeof(endpoint_slot));
    if (made == NULL) return NULL;
    endpoint_slot *expected = NULL;
    if (!atomic_compare_exchange_strong(place, &expected, made)) {
      raw_munmap(made, CHUNK_SLOTS * sizeof(endpoint_slot));
    }
  }
  return slot_of(number);
}

static bool reference(struct endpoint *endpoint) {
  uint32_t references = atomic_load(&endpoint->references);
  while (references != 0) {
    if (atomic_compare_exchange_weak(&endpoint->references, &references, references + 1))
      return true;
  }
  return false;
}

/* The endpoint in a slot, referenced, whatever the descriptor now is. */
static struct endpoint *reference_slot(endpoint_slot *slot) {
  for (;;) {
    struct endpoint *endpoint = atomic_load(slot);
    if (endpoint == NULL || endpoint == &reserved_endpoint) return NULL;
    if (!reference(endpoint)) continue;
    if (atomic_load(slot) == endpoint) return endpoint;
    endpoint_put(endpoint);
  }
}

/* True while `fd` is the descriptor that the endpoint was made for, or a duplicate. Keeps errno. */
static bool is_current(int fd, const struct endpoint *endpoint) {
  int saved = errno;
  struct stat status;
  bool current = raw_fstat(fd, &status) == 0 && status.st_dev == endpoint->socket_device &&
                 status.st_ino == endpoint->socket_inode;
  errno = saved;
  return current;
}

struct endpoint *endpoint_get(int fd) {
  endpoint_slot *slot = fd < 0 ? NULL : slot_of((unsigned)fd);
  if (slot == NULL) return NULL;
  if (process_is_foreign()) return atomic_load(slot) == NULL ? NULL : &foreign_endpoint;
  struct endpoint *endpoint = reference_slot(slot);
  if (endpoint == NULL || is_current(fd, endpoint)) return endpoint;
  struct endpoint *stale = endpoint;
  if (atomic_compare_exchange_strong(slot, &stale, NULL)) endpoint_put(endpoint);
  endpoint_put(endpoint);
  return NULL;
}

void endpoint_ref(struct endpoint *endpoint) { atomic_fetch_add(&endpoint->references, 1); }

void endpoint_put(struct endpoint *endpoint) {
  if (endpoint == &foreign_endpoint || endpoint == &reserved_endpoint) return;
  if (atomic_fetch_sub(&endpoint->references, 1) != 1) return;
  int saved = errno;
  if (endpoint->file != NULL && endpoint->kind != ENDPOINT_HIDDEN) {
    bool visible = endpoint->kind != ENDPOINT_COMPLETION && endpoint->kind != ENDPOINT_ASYNC;
    if (visible) device_file_shut(endpoint->file);
    device_file_put(endpoint->file);
  }
  endpoint->file = NULL;
  if (endpoint->event_ring != NULL) event_ring_unmap(endpoint->event_ring);
  endpoint->event_ring = NULL;
  struct endpoint *head = atomic_load(&free_endpoints);
  do {
    endpoint->next_free = head;
  } while (!atomic_compare_exchange_weak(&free_endpoints, &head, endpoint));
  errno = saved;
}

/* Under the registry lock. */
static struct endpoint *take_endpoint(void) {
  struct endpoint *endpoint = atomic_load(&free_endpoints);
  while (endpoint != NULL) {
    if (atomic_compare_exchange_weak(&free_endpoints, &endpoint, endpoint->next_free)) {
      return endpoint;
    }
  }
  const size_t batch_bytes = 16384;
  struct endpoint *batch = raw_allocate(batch_bytes);
  if (batch == NULL) return NULL;
  size_t count = batch_bytes / sizeof(struct endpoint);
  for (size_t index = 0; index < count; index++) {
    batch[index].next_made = made_endpoints;
    made_endpoints = &batch[index];
    if (index == 0) continue;
    struct endpoint *head = atomic_load(&free_endpoints);
    do {
      batch[index].next_free = head;
    } while (!atomic_compare_exchange_weak(&free_endpoints, &head, &batch[index]));
  }
  return &batch[0];
}

struct endpoint *endpoint_create(enum endpoint_kind kind, int fd, struct device_file *file) {
  struct stat status;
  if (raw_fstat(fd, &status) != 0) return NULL;
  registry_lock();
  struct endpoint *endpoint = take_endpoint();
  registry_unlock();
  if (endpoint == NULL) {
    errno = ENOMEM;
    return NULL;
  }
  endpoint->kind = kind;
  endpoint->socket_device = status.st_dev;
  endpoint->socket_inode = status.st_ino;
  endpoint->file = file;
  endpoint->queue_number = 0;
  endpoint->event_ring = NULL;
  endpoint->device_number = 0;
  endpoint->holder = NULL;
  atomic_store(&endpoint->end_reported, false);
  if (file != NULL && kind != ENDPOINT_HIDDEN) device_file_ref(file);
  atomic_store(&endpoint->references, 1);
  return endpoint;
}

static void raise_limit(unsigned number) {
  unsigned limit = atomic_load(&descriptor_limit);
  while (limit <= number &&
         !atomic_compare_exchange_weak(&descriptor_limit, &limit, number + 1)) {
  }
}

bool descriptor_install(int fd, struct endpoint *endpoint) {
  endpoint_slot *slot = slot_for((unsigned)fd);
  if (slot == NULL) return false;
  raise_limit((unsigned)fd);
  endpoint_ref(endpoint);
  struct endpoint *before = atomic_exchange(slot, endpoint);
  if (before != NULL) endpoint_put(before);
  return true;
}

int endpoint_publish(int fd, const struct endpoint_traits *traits) {
  struct endpoint *endpoint = endpoint_create(traits->kind, fd, traits->file);
  bool installed = false;
  int error = ENOMEM;
  if (endpoint != NULL) {
    endpoint->queue_number = traits->queue_number;
    endpoint->event_ring = traits->event_ring;
    endpoint->device_number = traits->device_number;
    installed = descriptor_install(fd, endpoint);
    if (!installed) error = errno;
    endpoint_put(endpoint);
  } else if (traits->event_ring != NULL) {
    event_ring_unmap(traits->event_ring);
  }
  if (installed) return fd;
  raw_close(fd);
  return -error;
}

enum install_result descriptor_install_unreserved(int fd, struct endpoint *endpoint,
                                                  struct endpoint **before) {
  endpoint_slot *slot = slot_for((unsigned)fd);
  if (slot == NULL) return INSTALL_NO_ROOM;
  raise_limit((unsigned)fd);
  struct endpoint *found = atomic_load(slot);
  endpoint_ref(endpoint);
  while (found != &reserved_endpoint) {
    if (!atomic_compare_exchange_weak(slot, &found, endpoint)) continue;
    *before = found;
    return INSTALL_DONE;
  }
  endpoint_put(endpoint);
  return INSTALL_RESERVED;
}

bool descriptor_reserve(int fd) {
  endpoint_slot *slot = fd < 0 ? NULL : slot_for((unsigned)fd);
  if (slot == NULL) return true;
  for (;;) {
    struct endpoint *endpoint = reference_slot(slot);
    struct endpoint *expected = endpoint;
    bool hidden =
        endpoint != NULL && endpoint->kind == ENDPOINT_HIDDEN && is_current(fd, endpoint);
    bool reserved = !hidden && atomic_compare_exchange_strong(slot, &expected, &reserved_endpoint);
    if (reserved && endpoint != NULL) endpoint_put(endpoint);
    if (endpoint != NULL) endpoint_put(endpoint);
    if (reserved || expected == &reserved_endpoint) return true;
    if (hidden) return false;
  }
}

void descriptor_end_reservation(int fd) {
  endpoint_slot *slot = fd < 0 ? NULL : slot_of((unsigned)fd);
  struct endpoint *expected = &reserved_endpoint;
  if (slot != NULL) atomic_compare_exchange_strong(slot, &expected, NULL);
}

struct endpoint *descriptor_hidden_endpoint(int fd) {
  endpoint_slot *slot = fd < 0 ? NULL : slot_of((unsigned)fd);
  struct endpoint *endpoint = slot == NULL ? NULL : atomic_load(slot);
  if (endpoint == NULL || endpoint->kind != ENDPOINT_HIDDEN) return NULL;
  if (!is_current(fd, endpoint)) return NULL;
  /* The endpoint may have been reused since it was read, unless the slot still holds it. */
  return atomic_load(slot) == endpoint ? endpoint : NULL;
}

void descriptor_withdraw(int fd, struct endpoint *endpoint) {
  endpoint_slot *slot = slot_of((unsigned)fd);
  struct endpoint *expected = endpoint;
  if (slot != NULL && atomic_compare_exchange_strong(slot, &expected, NULL)) endpoint_put(endpoint);
}

void descriptor_remove(int fd) {
  endpoint_slot *slot = fd < 0 ? NULL : slot_of((unsigned)fd);
  if (slot == NULL) return;
  struct endpoint *before = atomic_exchange(slot, NULL);
  if (before != NULL) endpoint_put(before);
}

/* Limits a range to descriptors that were ever used. False when nothing is left. */
static bool cut_range(unsigned first, unsigned *last) {
  unsigned limit = atomic_load(&descriptor_limit);
  if (limit == 0) return false;
  if (*last >= limit) *last = limit - 1;
  return first <= *last;
}

void descriptor_remove_range(unsigned first, unsigned last) {
  if (!cut_range(first, &last)) return;
  for (unsigned number = first; number <= last; number++) {
    if (!descriptor_is_marked((int)number)) continue;
    struct endpoint *endpoint = endpoint_get((int)number);
    if (endpoint == NULL) continue;
    bool hidden = endpoint->kind == ENDPOINT_HIDDEN;
    endpoint_put(endpoint);
    if (!hidden) descriptor_remove((int)number);
  }
}

int descriptor_next_hidden(unsigned first, unsigned last) {
  if (!cut_range(first, &last)) return -1;
  for (unsigned number = first; number <= last; number++) {
    if (!descriptor_is_marked((int)number)) continue;
    if (descriptor_hidden_endpoint((int)number) != NULL) return (int)number;
  }
  return -1;
}

/* The first descriptor whose endpoint matches, with the endpoint referenced, or -1. */
static int find(bool (*matches)(const struct endpoint *endpoint, const void *wanted),
                const void *wanted, struct endpoint **found) {
  unsigned last = UINT32_MAX;
  if (!cut_range(0, &last)) return -1;
  for (unsigned number = 0; number <= last; number++) {
    if (!descriptor_is_marked((int)number)) continue;
    *found = endpoint_get((int)number);
    if (*found == NULL) continue;
    if (matches(*found, wanted)) return (int)number;
    endpoint_put(*found);
  }
  return -1;
}

static bool has_queue(const struct endpoint *endpoint, const void *queue_number) {
  bool has = endpoint->kind == ENDPOINT_COMPLETION || endpoint->kind == ENDPOINT_ASYNC ||
             endpoint->kind == ENDPOINT_CM;
  return has && endpoint->queue_number == *(const uint32_t *)queue_number;
}

int descriptor_of_queue(uint32_t queue_number, struct endpoint **found) {
  return find(has_queue, &queue_number, found);
}

static bool has_file(const struct endpoint *endpoint, const void *file) {
  return endpoint->kind == ENDPOINT_UVERBS && endpoint->file == file;
}

int descriptor_of_file(const struct device_file *file) {
  struct endpoint *found;
  int number = find(has_file, file, &found);
  if (number >= 0) endpoint_put(found);
  return number;
}

void endpoints_recount(void) {
  for (struct endpoint *endpoint = made_endpoints; endpoint != NULL;
       endpoint = endpoint->next_made) {
    /* Keep one reference for this loop: its last step frees what has no other. */
    uint32_t references = atomic_load(&endpoint->references);
    atomic_store(&endpoint->references, references == 0 ? 0 : 1);
  }
  unsigned first = 0;
  unsigned last = UINT32_MAX;
  if (cut_range(first, &last)) {
    for (unsigned number = first; number <= last; number++) {
      endpoint_slot *slot = slot_of(number);
      struct endpoint *endpoint = slot == NULL ? NULL : atomic_load(slot);
      /* Also if a call of another thread made the reservation. */
      if (endpoint == &reserved_endpoint) atomic_store(slot, NULL);
      else if (endpoint != NULL) atomic_fetch_add(&endpoint->references, 1);
    }
  }
  for (struct endpoint *endpoint = made_endpoints; endpoint != NULL;
       endpoint = endpoint->next_made) {
    if (atomic_load(&endpoint->references) != 0) endpoint_put(endpoint);
  }
}
