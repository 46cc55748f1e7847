/* Rings with indices, as rxe's provider maps them: the layout of struct rxe_queue_buf. The program
 * may write anything into them, so every number in them is checked before use. */
#ifndef IWARPD_INDEX_RING_H
#define IWARPD_INDEX_RING_H

#include <stdbool.h>
#include <stdint.h>

/* The mapping of a ring. */
struct ring_memory {
  uint8_t *bytes;
  uint64_t length;
};

/* A ring as its header describes it now. */
struct index_ring {
  uint8_t *bytes;
  uint32_t mask;
  uint32_t slot_shift;
};

/* False for a header that does not fit the memory. */
bool index_ring_read(const struct ring_memory *memory, struct index_ring *ring);

/* Elements between consumer and producer. */
uint32_t index_ring_used(const struct index_ring *ring);

/* Receives that the daemon has given back and not counted as completed. */
uint32_t index_ring_unfinished(const struct index_ring *receives);

/* How many elements a daemon that fills the ring has shown, modulo 2^32. */
uint32_t index_ring_shown(const struct index_ring *ring);

/* The index of the consumer. */
uint32_t index_ring_first(const struct index_ring *ring);

/* Completes, as flushed, every work request in `requests` that the daemon has not given back, and
 * the `behind` ones before them of which the completion does not come last in `completions`. The
 * program then finds room in the ring. */
void index_ring_flush(const struct index_ring *requests, const struct index_ring *completions,
                      uint32_t qpn, uint32_t behind);

#endif
