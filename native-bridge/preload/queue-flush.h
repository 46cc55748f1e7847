/* The queues that the program has mapped, to be flushed when the daemon is gone.
 *
 * A program that polls makes no calls that could fail: it looks for completions in memory that
 * nobody writes any more. The daemon keeps in that memory how far it is, and the shim goes on from
 * there: every work request that is not completed gets a completion that says so, as from any NIC
 * whose queue pair is in error. All functions are called under the file's command lock. */
#ifndef IWARPD_QUEUE_FLUSH_H
#define IWARPD_QUEUE_FLUSH_H

#include <stdint.h>

enum queue_kind { QUEUE_COMPLETION, QUEUE_SEND, QUEUE_RECEIVE };

struct mapped_queue {
  enum queue_kind kind;
  /* Of the completion queue, or of the queue pair. */
  uint32_t handle;
  /* Where the program maps it. */
  uint64_t key;
  /* Elements, a power of two. */
  uint32_t count;
  /* The number of the queue pair, and the handle of the completion queue that it completes to. */
  uint32_t qpn;
  uint32_t completion_handle;
  /* A mapping of the shim's own, since the program unmaps its queues when it likes; NULL before. */
  uint8_t *memory;
  uint64_t memory_bytes;
  struct mapped_queue *next;
};

/* A queue was made that will be mapped at `queue->key`; keeps a copy. */
void queue_expect(struct mapped_queue **list, const struct mapped_queue *queue);

/* `descriptor` is the memory that is mapped at `key`. */
void queue_mapped(struct mapped_queue *list, uint64_t key, int descriptor);

/* The completion queue, or both queues of the queue pair, are gone. */
void queue_forget(struct mapped_queue **list, uint32_t handle);

void queues_free(struct mapped_queue **list);

/* Work requests on send queues. */
struct sends {
  /* How many the daemon has taken so far; the lower 16 bits of it. */
  uint32_t taken;
  /* Posted and not completed; a send queue with very many counts as one with QUEUE_SENDS_SEEN. */
  uint32_t outstanding;
};

#define QUEUE_SENDS_SEEN 128u

/* Those of all send queues that complete to the queue with this handle. */
struct sends queues_sends(const struct mapped_queue *list, uint32_t completion_handle);

/* The daemon is gone: completes what is not completed, in the queues that were made last first. */
void queues_flush(struct mapped_queue *list);

#endif
