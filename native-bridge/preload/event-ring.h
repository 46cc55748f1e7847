/* The oldest records of a completion channel, in memory shared with the daemon: readers of the
 * descriptor take them without a request. The layout is that of daemon/kernel/event-ring.ts. */
#ifndef IWARPD_EVENT_RING_H
#define IWARPD_EVENT_RING_H

#include <stdbool.h>
#include <stdint.h>

struct event_ring;

/* Maps the ring at `offset` of the file `rings`. NULL if there is none: request the records. */
struct event_ring *event_ring_map(int rings, uint64_t offset);

void event_ring_unmap(struct event_ring *ring);

enum event_take {
  /* A record was taken, and others wait. */
  EVENT_TAKEN,
  /* The last record was taken: take the bytes of the descriptor as well. */
  EVENT_TAKEN_LAST,
  EVENT_NONE,
  /* Request the record from the daemon. */
  EVENT_ASK,
};

enum event_take event_ring_take(struct event_ring *ring, uint64_t *record);

/* A byte that should have been taken has not arrived. */
void event_ring_add_late(struct event_ring *ring);

/* True if there is such a byte, which the caller must take now. */
bool event_ring_take_late(struct event_ring *ring);

#endif
