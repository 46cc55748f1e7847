/* The queues that the program has mapped, to be flushed when the daemon dies.
 *
 * A program that polls makes no calls that could fail: it reads completions from memory that is no
 * longer written. The daemon records its progress in that memory, and the shim continues from there:
 * every outstanding work request gets a flush completion, as from any NIC whose queue pair is in
 * error. All functions require the file's command lock. */
#ifndef IWARPD_QUEUE_FLUSH_H
#define IWARPD_QUEUE_FLUSH_H

#include <stdint.h>

enum queue_kind { QUEUE_COMPLETION, QUEUE_SEND, QUEUE_RECEIVE };

struct mapped_queue {
  enum queue_kind kind;
  /* Handle of the completion queue or queue pair. */
  uint32_t handle;
  /* The key at which the program maps it. */
  uint64_t key;
  /* Elements, a power of two. */
  uint32_t count;
  /* The number of the queue pair, and the handle of the completion queue that it completes to. */
  uint32_t qpn;
  uint32_t completion_handle;
  /* The shim's own mapping, since the program may unmap its queues at any time; NULL before. */
  uint8_t *memory;
  uint64_t memory_bytes;
  struct mapped_queue *next;
};

/* A queue was created, which will be mapped at `queue->key`; keeps a copy. */
void queue_expect(struct mapped_queue **list, const struct mapped_queue *queue);

/* `descriptor` is the memory that is mapped at `key`. */
void queue_mapped(struct mapped_queue *list, uint64_t key, int descriptor);

/* The completion queue, or both queues of the queue pair, were destroyed. */
void queue_forget(struct mapped_queue **list, uint32_t handle);

void queues_free(struct mapped_queue **list);

/* Work requests on send queues. */
struct sends {
  /* How many the daemon has taken so far; only the lower 16 bits. */
  uint32_t taken;
  /* Posted and not completed; a send queue with more than QUEUE_SENDS_SEEN counts as that many. */
  uint32_t outstanding;
};

#define QUEUE_SENDS_SEEN 128u

/* The sends of all send queues that complete to the queue with this handle. */
struct sends queues_sends(const struct mapped_queue *list, uint32_t completion_handle);

/* The daemon is gone: completes outstanding work, in the newest queues first. */
void queues_flush(struct mapped_queue *list);

#endif
