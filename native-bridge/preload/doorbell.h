/* Doorbells without a round trip, or none at all. The daemon keeps one word after each send queue,
 * in memory that the program maps. A doorbell cannot fail while the queue pair is connected, so it
 * needs no answer. While one is in flight, or the daemon polls the queue on its own, no further one
 * is needed. */
#ifndef IWARPD_DOORBELL_H
#define IWARPD_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOORBELL_CHUNK_HANDLES 512u
/* Queue pairs with higher handles ring with a round trip. */
#define DOORBELL_CHUNKS 256u

/* Values of the doorbell word. */
enum doorbell_kind {
  /* A command, which may fail. */
  DOORBELL_COMMAND = 0,
  DOORBELL_ONE_WAY = 1,
  DOORBELL_NONE = 2,
};

typedef _Atomic(_Atomic uint32_t *) connected_word;

struct doorbells {
  _Atomic(connected_word *) chunks[DOORBELL_CHUNKS];
};

/* A queue pair was created. The memory of its send queue ends at `end` in the file `rings`. Needs
 * the file's command lock. */
void doorbell_created(struct doorbells *doorbells, uint32_t handle, int rings, uint64_t end);

/* The queue pair was destroyed. */
void doorbell_forget(struct doorbells *doorbells, uint32_t handle);

/* How to ring for what the ring holds now. A one-way doorbell counts as rung: the caller must send
 * it. */
enum doorbell_kind doorbell_begin(struct doorbells *doorbells, uint32_t handle);

void doorbells_free(struct doorbells *doorbells);

#endif
