/* The queues that the program has mapped, to be flushed when the daemon dies.
 *
 * A program that polls makes no calls that could fail: it reads completions from memory that is no
 * longer written. The daemon records its progress in that memory, and the shim continues from
 * there: every outstanding work request gets a flush completion, as from any NIC whose queue pair
 * is in the error state. All functions need the file's command lock. */
#ifndef IWARPD_QUEUE_FLUSH_H
#define IWARPD_QUEUE_FLUSH_H

#include <stdbool.h>
#include <stdint.h>

#include "index-ring.h"

enum queue_kind { QUEUE_COMPLETION, QUEUE_SEND, QUEUE_RECEIVE };

struct mapped_queue {
  enum queue_kind kind;
  /* The ring has indices; otherwise its elements have flags. */
  bool indexed;
  /* Handle of the completion queue or queue pair. */
  uint32_t handle;
  /* Its memory in the file of the device's rings. */
  uint64_t key;
  uint64_t memory_bytes;
  /* Number of elements, a power of two; unused in a ring with indices. */
  uint32_t count;
  /* The number of the queue pair, and the handle of the completion queue that it completes to. */
  uint32_t qpn;
  uint32_t completion_handle;
  /* A separate mapping, since the program may unmap its queues at any time; NULL if there is none,
   * and the queue is not flushed. */
  uint8_t *memory;
  struct mapped_queue *next;
};

/* The size of the memory of a queue whose elements have flags, in bytes. */
uint64_t queue_memory_bytes(enum queue_kind kind, uint32_t count);

/* A queue was created: stores a copy, and maps its memory in the file `rings`. */
void queue_add(struct mapped_queue **list, const struct mapped_queue *queue, int rings);

/* The completion queue was resized, and has other memory. */
void queue_move(struct mapped_queue *list, uint32_t handle, uint64_t key, uint64_t memory_bytes,
                int rings);

/* The completion queue, or both queues of the queue pair, was destroyed. */
void queue_forget(struct mapped_queue **list, uint32_t handle);

void queues_free(struct mapped_queue **list);

/* Work requests on send queues. */
struct sends {
  /* How many the daemon has taken so far, modulo 2^16. */
  uint32_t taken;
  /* Posted and not completed. A send queue counts as QUEUE_SENDS_SEEN at most. */
  uint32_t outstanding;
};

#define QUEUE_SENDS_SEEN 128u

/* The sends of all send queues that complete to the queue with this handle. */
struct sends queues_sends(const struct mapped_queue *list, uint32_t completion_handle);

/* The completion queue with this handle, if its ring has indices. False if there is none. */
bool queue_completions(const struct mapped_queue *list, uint32_t handle, struct index_ring *ring);

/* The daemon is gone: completes outstanding work, in the newest queues first. */
void queues_flush(struct mapped_queue *list);

#endif
