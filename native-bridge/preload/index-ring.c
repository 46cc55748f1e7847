/* See index-ring.h. */
#include "index-ring.h"

#include <stdatomic.h>
#include <string.h>

#define LOG2_OFFSET 0
#define MASK_OFFSET 4
#define PRODUCER_OFFSET 128
/* In a ring of completions: how many were shown. Of receives: the index up to which they
 * completed. */
#define SHOWN_OFFSET 132
#define CONSUMER_OFFSET 256
#define SEEN_OFFSET 260
#define ARMED_OFFSET 264
#define ARMED_SOLICITED 1u
#define ARMED_ANY 2u
#define SLOTS_OFFSET 384
#define SLOT_SHIFT_MAX 20
/* `struct ib_uverbs_wc`. */
#define COMPLETION_BYTES 48
#define STATUS_OFFSET 8
#define QPN_OFFSET 28
/* IBV_WC_WR_FLUSH_ERR */
#define STATUS_FLUSHED 5u

typedef _Atomic uint32_t index_word;

static index_word *word_at(const struct index_ring *ring, uint32_t offset) {
  return (index_word *)(ring->bytes + offset);
}

bool index_ring_read(const struct ring_memory *memory, struct index_ring *ring) {
  if (memory->bytes == NULL || memory->length < SLOTS_OFFSET) return false;
  ring->bytes = memory->bytes;
  memcpy(&ring->slot_shift, memory->bytes + LOG2_OFFSET, sizeof ring->slot_shift);
  memcpy(&ring->mask, memory->bytes + MASK_OFFSET, sizeof ring->mask);
  if (ring->slot_shift > SLOT_SHIFT_MAX || (ring->mask & (ring->mask + 1)) != 0) return false;
  uint64_t slots = (uint64_t)ring->mask + 1;
  return slots << ring->slot_shift <= memory->length - SLOTS_OFFSET;
}

static uint32_t producer_of(const struct index_ring *ring) {
  return atomic_load(word_at(ring, PRODUCER_OFFSET)) & ring->mask;
}

uint32_t index_ring_first(const struct index_ring *ring) {
  return atomic_load(word_at(ring, CONSUMER_OFFSET)) & ring->mask;
}

uint32_t index_ring_used(const struct index_ring *ring) {
  return (producer_of(ring) - index_ring_first(ring)) & ring->mask;
}

uint32_t index_ring_unfinished(const struct index_ring *receives) {
  uint32_t completed = atomic_load(word_at(receives, SHOWN_OFFSET));
  return (index_ring_first(receives) - completed) & receives->mask;
}

bool index_ring_arm(const struct index_ring *completions, bool solicited_only, uint32_t *shown) {
  index_word *count = word_at(completions, SHOWN_OFFSET);
  *shown = atomic_load(count);
  atomic_fetch_or(word_at(completions, ARMED_OFFSET), solicited_only ? ARMED_SOLICITED : ARMED_ANY);
  return atomic_load(count) == *shown;
}

static uint8_t *slot_of(const struct index_ring *ring, uint32_t index) {
  return ring->bytes + SLOTS_OFFSET + ((size_t)(index & ring->mask) << ring->slot_shift);
}

/* librxe before rdma-core 55 advances the consumer index once too often after ibv_next_poll, so
 * that it passes the producer and the ring looks full. As in the daemon, such a ring is empty and
 * continues at the consumer index; the index seen last distinguishes it from a full one. */
static void follow_consumer(const struct index_ring *completions) {
  uint32_t seen = atomic_load(word_at(completions, SEEN_OFFSET));
  uint32_t consumer = index_ring_first(completions);
  uint32_t taken = (consumer - seen) & completions->mask;
  if (taken <= ((producer_of(completions) - seen) & completions->mask)) return;
  atomic_store(word_at(completions, PRODUCER_OFFSET), consumer);
  atomic_store(word_at(completions, SEEN_OFFSET), consumer);
}

/* True if this request has the last completion; the program may have taken that. */
static bool came_last(const struct index_ring *completions, const uint8_t *request, uint32_t qpn) {
  const uint8_t *last = slot_of(completions, producer_of(completions) - 1);
  return memcmp(last, request, sizeof(uint64_t)) == 0 &&
         memcmp(last + QPN_OFFSET, &qpn, sizeof qpn) == 0;
}

/* Elements and completions start with the id of the work request. */
static void complete(const struct index_ring *completions, const uint8_t *request, uint32_t qpn) {
  const uint32_t status = STATUS_FLUSHED;
  uint32_t producer = producer_of(completions);
  /* One more element would make a full ring look empty. */
  if (index_ring_used(completions) == completions->mask) return;
  uint8_t *completion = slot_of(completions, producer);
  memset(completion, 0, COMPLETION_BYTES);
  memcpy(completion, request, sizeof(uint64_t));
  memcpy(completion + STATUS_OFFSET, &status, sizeof status);
  memcpy(completion + QPN_OFFSET, &qpn, sizeof qpn);
  atomic_store(word_at(completions, PRODUCER_OFFSET), (producer + 1) & completions->mask);
}

void index_ring_flush(const struct index_ring *requests, const struct index_ring *completions,
                      uint32_t qpn, uint32_t given_back) {
  if (1u << completions->slot_shift < COMPLETION_BYTES) return;
  follow_consumer(completions);
  uint32_t first = index_ring_first(requests);
  uint32_t used = index_ring_used(requests);
  /* The program may have overwritten older ones. */
  uint32_t kept = requests->mask + 1 - used;
  for (given_back = given_back < kept ? given_back : kept; given_back > 0; given_back--) {
    const uint8_t *request = slot_of(requests, first - given_back);
    if (given_back == 1 && came_last(completions, request, qpn)) continue;
    complete(completions, request, qpn);
  }
  for (uint32_t step = 0; step < used; step++) {
    complete(completions, slot_of(requests, first + step), qpn);
  }
  atomic_store(word_at(requests, CONSUMER_OFFSET), (first + used) & requests->mask);
}
