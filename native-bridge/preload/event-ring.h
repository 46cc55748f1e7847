/* The oldest records of a completion channel, in memory that the daemon shows them in: whoever reads
 * the descriptor takes them there without a request. The layout is that of
 * daemon/kernel/event-ring.ts. */
#ifndef IWARPD_EVENT_RING_H
#define IWARPD_EVENT_RING_H

#include <stdbool.h>
#include <stdint.h>

struct event_ring;

/* Maps the ring at `offset` of the file `rings`. NULL if there is none: records are asked for. */
struct event_ring *event_ring_map(int rings, uint64_t offset);

void event_ring_unmap(struct event_ring *ring);

enum event_take {
  /* A record was taken, and others wait. */
  EVENT_TAKEN,
  /* The last record was taken: take the bytes of the descriptor, too. */
  EVENT_TAKEN_LAST,
  EVENT_NONE,
  /* Ask the daemon. */
  EVENT_ASK,
};

enum event_take event_ring_take(struct event_ring *ring, uint64_t *record);

/* A byte that had to be taken was not there yet. */
void event_ring_owe(struct event_ring *ring);

/* True if such a byte is to be taken now. */
bool event_ring_pay(struct event_ring *ring);

#endif
