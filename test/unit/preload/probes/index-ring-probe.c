/* Completions of rings with indices when the daemon is gone. */
#include "../../../../native-bridge/preload/index-ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%d: not true: %s\n", __LINE__, #condition);                                 \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#define SLOTS_OFFSET 384
#define SLOTS 8u
#define SLOT_BYTES 64u

struct bytes {
  _Alignas(64) uint8_t all[SLOTS_OFFSET + SLOTS * SLOT_BYTES];
};

static void set(struct bytes *ring, size_t offset, uint32_t value) {
  memcpy(ring->all + offset, &value, sizeof value);
}

static uint32_t get(const struct bytes *ring, size_t offset) {
  uint32_t value;
  memcpy(&value, ring->all + offset, sizeof value);
  return value;
}

static struct index_ring made(struct bytes *memory, uint32_t producer, uint32_t consumer) {
  struct index_ring ring;
  memset(memory, 0, sizeof *memory);
  set(memory, 0, 6);
  set(memory, 4, SLOTS - 1);
  set(memory, 128, producer);
  set(memory, 256, consumer);
  for (uint32_t slot = 0; slot < SLOTS; slot++) {
    memory->all[SLOTS_OFFSET + slot * SLOT_BYTES] = (uint8_t)(10 + slot);
  }
  CHECK(index_ring_read(&(struct ring_memory){memory->all, sizeof memory->all}, &ring));
  return ring;
}

static void flushed(const struct bytes *completions, uint32_t slot, uint8_t id) {
  const uint8_t *at = completions->all + SLOTS_OFFSET + slot * SLOT_BYTES;
  CHECK(at[0] == id && at[8] == 5 && at[28] == 77);
}

int main(void) {
  struct bytes requests;
  struct bytes completions;
  /* Requests posted across the end of the ring; completions, too. */
  struct index_ring posted = made(&requests, 1, 6);
  struct index_ring done = made(&completions, 7, 7);
  index_ring_flush(&posted, &done, 77, 0);
  CHECK(get(&completions, 128) == 2 && get(&requests, 256) == 1);
  flushed(&completions, 7, 16);
  flushed(&completions, 0, 17);
  flushed(&completions, 1, 10);
  /* A request that the daemon returned, but did not complete before it ended. */
  posted = made(&requests, 3, 3);
  done = made(&completions, 0, 0);
  index_ring_flush(&posted, &done, 77, 1);
  CHECK(get(&completions, 128) == 1);
  flushed(&completions, 0, 12);
  /* Now its completion is there, and it is not completed again. */
  index_ring_flush(&posted, &done, 77, 1);
  CHECK(get(&completions, 128) == 1);
  /* No more than there is room for. */
  posted = made(&requests, 7, 0);
  done = made(&completions, 5, 0);
  index_ring_flush(&posted, &done, 77, 0);
  CHECK(get(&completions, 128) == 7);
  /* Receives that were returned and not completed, unless the program has posted over them. */
  posted = made(&requests, 2, 3);
  set(&requests, 132, 1);
  CHECK(index_ring_unfinished(&posted) == 2);
  done = made(&completions, 0, 0);
  set(&requests, 128, 0);
  index_ring_flush(&posted, &done, 77, 2);
  CHECK(get(&completions, 128) == 7);
  flushed(&completions, 0, 11);
  flushed(&completions, 1, 12);
  flushed(&completions, 2, 13);
  posted = made(&requests, 2, 3);
  done = made(&completions, 0, 0);
  index_ring_flush(&posted, &done, 77, 2);
  flushed(&completions, 0, 12);
  flushed(&completions, 1, 13);
  /* The consumer has passed the producer by one: the ring is empty, not full. */
  posted = made(&requests, 3, 1);
  done = made(&completions, 4, 5);
  set(&completions, 260, 2);
  index_ring_flush(&posted, &done, 77, 0);
  CHECK(get(&completions, 128) == 7 && get(&completions, 256) == 5);
  flushed(&completions, 5, 11);
  flushed(&completions, 6, 12);
  /* The same indices in a ring that is full: nothing in it is lost. */
  posted = made(&requests, 3, 1);
  done = made(&completions, 4, 5);
  set(&completions, 260, 5);
  index_ring_flush(&posted, &done, 77, 0);
  CHECK(get(&completions, 128) == 4);
  /* Headers that do not fit the memory. */
  const struct ring_memory memory = {requests.all, sizeof requests.all};
  set(&requests, 4, SLOTS * 2 - 1);
  CHECK(!index_ring_read(&memory, &posted));
  set(&requests, 4, 6);
  CHECK(!index_ring_read(&memory, &posted));
  set(&requests, 4, SLOTS - 1);
  set(&requests, 0, 40);
  CHECK(!index_ring_read(&memory, &posted));
  CHECK(!index_ring_read(&(struct ring_memory){requests.all, 100}, &posted));
  return 0;
}
