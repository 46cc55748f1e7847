/* See event-ring.h. */
#include "event-ring.h"

#include <stdatomic.h>
#include <stddef.h>

#include "raw-call.h"

#define RING_BYTES 4096u
#define RECORDS 256u
#define RECORDS_OFFSET 64u
#define INDEX_BITS 15u
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define ASK (1u << 2 * INDEX_BITS)

struct event_ring {
  /* Head, tail and ASK, changed by compare-and-swap. */
  _Atomic uint32_t word;
  /* Bytes on the descriptor, or in flight, in addition to the one that reports records. */
  _Atomic uint32_t late;
  uint8_t zero[56];
  _Atomic uint64_t records[RECORDS];
};
_Static_assert(offsetof(struct event_ring, records) == RECORDS_OFFSET, "ring of events");
_Static_assert(sizeof(struct event_ring) <= RING_BYTES, "ring of events");

struct event_ring *event_ring_map(int rings, uint64_t offset) {
  if (offset == 0 || offset % RING_BYTES != 0) return NULL;
  return raw_map_rings(rings, offset, RING_BYTES);
}

void event_ring_unmap(struct event_ring *ring) { raw_munmap(ring, RING_BYTES); }

enum event_take event_ring_take(struct event_ring *ring, uint64_t *record) {
  uint32_t word = atomic_load(&ring->word);
  for (;;) {
    uint32_t head = word & INDEX_MASK;
    uint32_t tail = word >> INDEX_BITS & INDEX_MASK;
    if (head == tail) return (word & ASK) != 0 ? EVENT_ASK : EVENT_NONE;
    /* Valid only if no other thread takes the record first. */
    *record = atomic_load(&ring->records[head % RECORDS]);
    head = (head + 1) & INDEX_MASK;
    uint32_t next = (word & ~INDEX_MASK) | head;
    if (!atomic_compare_exchange_weak(&ring->word, &word, next)) continue;
    return head == tail && (word & ASK) == 0 ? EVENT_TAKEN_LAST : EVENT_TAKEN;
  }
}

void event_ring_add_late(struct event_ring *ring) { atomic_fetch_add(&ring->late, 1); }

bool event_ring_take_late(struct event_ring *ring) {
  uint32_t late = atomic_load(&ring->late);
  while (late > 0) {
    if (atomic_compare_exchange_weak(&ring->late, &late, late - 1)) return true;
  }
  return false;
}
