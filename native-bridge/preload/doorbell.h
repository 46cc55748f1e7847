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
/* Send queues created and not mapped yet. */
#define DOORBELL_PENDING 64u

typedef _Atomic(const _Atomic uint32_t *) connected_word;

struct doorbells {
  _Atomic(connected_word *) chunks[DOORBELL_CHUNKS];
  /* Under the file's command lock. */
  struct {
    uint64_t key;
    uint32_t handle;
    bool used;
  } pending[DOORBELL_PENDING];
  unsigned next_pending;
};

/* A queue pair was created, whose send queue will be mapped at `key`. */
void doorbell_expect(struct doorbells *doorbells, uint32_t handle, uint64_t key);

/* `descriptor` is mapped at `key` with `length` bytes. */
void doorbell_mapped(struct doorbells *doorbells, uint64_t key, int descriptor, size_t length);

/* The queue pair is gone. */
void doorbell_forget(struct doorbells *doorbells, uint32_t handle);

/* True when the queue pair is connected, as far as this process can see. */
bool doorbell_is_connected(struct doorbells *doorbells, uint32_t handle);

void doorbells_free(struct doorbells *doorbells);

#endif
