/* Doorbells without a round trip. The daemon keeps one word behind each send queue, in memory that
 * the program maps: 1 while the queue pair is connected. A doorbell then cannot fail, so there is
 * no answer to wait for. */
#ifndef IWARPD_DOORBELL_H
#define IWARPD_DOORBELL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DOORBELL_CHUNK_HANDLES 512u
/* Queue pairs with higher handles ring with a round trip. */
#define DOORBELL_CHUNKS 256u

typedef _Atomic(const _Atomic uint32_t *) connected_word;

struct doorbells {
  _Atomic(connected_word *) chunks[DOORBELL_CHUNKS];
};

/* A queue pair was created, the memory of whose send queue ends at `end` in the file of rings `rings`.
 * Under the file's command lock. */
void doorbell_created(struct doorbells *doorbells, uint32_t handle, int rings, uint64_t end);

/* The queue pair is gone. */
void doorbell_forget(struct doorbells *doorbells, uint32_t handle);

/* True when the queue pair is connected, as far as this process can see. */
bool doorbell_is_connected(struct doorbells *doorbells, uint32_t handle);

void doorbells_free(struct doorbells *doorbells);

#endif
