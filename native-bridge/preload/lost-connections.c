/* See lost-connections.h. */
#include "lost-connections.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "kernel-abi.h"
#include "raw-call.h"
#include "registry.h"

#define FIRST_ROOM 256u

static bool make_room(struct connections *connections) {
  if (connections->count < connections->room) return true;
  size_t room = connections->room == 0 ? FIRST_ROOM : 2 * connections->room;
  struct connection *entries = raw_allocate(room * sizeof *entries);
  if (entries == NULL) return false;
  if (connections->room > 0) {
    memcpy(entries, connections->entries, connections->count * sizeof *entries);
    raw_munmap(connections->entries, connections->room * sizeof *entries);
  }
  connections->entries = entries;
  connections->room = room;
  return true;
}

static void add(struct connections *connections, struct connection connection) {
  /* If there is no memory, the connection gets no last events; nothing else changes. */
  if (make_room(connections)) connections->entries[connections->count++] = connection;
}

/* Removes the id from the list. False if it is not there. */
static bool take(struct connections *connections, uint32_t id, struct connection *taken) {
  for (size_t index = 0; index < connections->count; index++) {
    if (connections->entries[index].id != id) continue;
    *taken = connections->entries[index];
    connections->entries[index] = connections->entries[--connections->count];
    return true;
  }
  return false;
}

void connection_event(struct connections *connections, const uint8_t *event, size_t length) {
  struct connection before;
  struct cm_event head;
  if (length < sizeof head) return;
  memcpy(&head, event, sizeof head);
  if (head.type != CM_ESTABLISHED && head.type != CM_DISCONNECTED) return;
  registry_lock();
  take(connections, head.id, &before);
  if (head.type == CM_ESTABLISHED) {
    add(connections, (struct connection){.uid = head.uid, .id = head.id});
  }
  registry_unlock();
}

void connection_forget(struct connections *connections, uint32_t id) {
  struct connection forgotten;
  registry_lock();
  take(connections, id, &forgotten);
  registry_unlock();
}

void connection_move(struct connections *from, struct connections *to, uint32_t id) {
  struct connection moved;
  registry_lock();
  if (from != to && take(from, id, &moved)) add(to, moved);
  registry_unlock();
}

int connection_last_event(struct connections *connections, uint8_t *target, size_t room) {
  struct connection last = {.id = 0};
  if (room < CM_EVENT_MIN_BYTES) return -ENOSPC;
  size_t length = room < CM_EVENT_BYTES ? room : CM_EVENT_BYTES;
  if (!memory_takes(target, length)) return -EFAULT;
  registry_lock();
  bool any = connections->count > 0;
  if (any) {
    struct connection *entry = &connections->entries[connections->count - 1];
    last = *entry;
    if (last.removal_reported) connections->count--;
    entry->removal_reported = true;
  }
  registry_unlock();
  if (!any) return 0;
  struct cm_event event = {.uid = last.uid,
                           .id = last.id,
                           .type = last.removal_reported ? CM_DISCONNECTED : CM_DEVICE_REMOVAL};
  memset(target, 0, length);
  memcpy(target, &event, sizeof event);
  return (int)length;
}

void connections_free(struct connections *connections) {
  if (connections->room > 0) {
    raw_munmap(connections->entries, connections->room * sizeof *connections->entries);
  }
  *connections = (struct connections){.room = 0};
}
