/* Rings with indices, as rxe's provider maps them: `struct rxe_queue_buf`. The program may write
 * anything there, so every number is checked before use. */
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

/* Reads the header. False if it does not fit the memory. */
bool index_ring_read(const struct ring_memory *memory, struct index_ring *ring);

/* Elements between consumer and producer. */
uint32_t index_ring_used(const struct index_ring *ring);

/* Receives that the daemon has given back but not counted as completed. */
uint32_t index_ring_unfinished(const struct index_ring *receives);

/* Arms a ring of completions for one event. False if the daemon showed a completion meanwhile, when
 * it may not have seen that: it must look. Stores how many it had shown before, modulo 2^32. */
bool index_ring_arm(const struct index_ring *completions, bool solicited_only, uint32_t *shown);

/* The index of the consumer. */
uint32_t index_ring_first(const struct index_ring *ring);

/* Completes as flushed the work requests in `requests`, and the `given_back` ones before them,
 * which the daemon gave back but did not count as finished; not the newest of these if it has the
 * last completion. Then empties the ring. */
void index_ring_flush(const struct index_ring *requests, const struct index_ring *completions,
                      uint32_t qpn, uint32_t given_back);

#endif
