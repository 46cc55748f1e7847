/* See queue-flush.h. Queues with flags have the layouts of rdma/siw-abi.h and
 * daemon/contract/protocol/queue-layout.ts. */
#include "queue-flush.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "raw-call.h"

#define SEND_ELEMENT_BYTES 120u
#define RECEIVE_ELEMENT_BYTES 112u
#define COMPLETION_BYTES 32u
/* After the completions: the notify word, then how many the daemon has written. */
#define COMPLETION_TAIL_BYTES 8u
#define WRITTEN_OFFSET 4u
/* At the end of a send queue's memory. Lower 16 bits: index of the next element to take. Upper 16
 * bits: how many before it are not completed. */
#define PROGRESS_BEFORE_END 4u
#define SEND_TAIL_BYTES 8u

#define ELEMENT_FLAGS_OFFSET 8u
#define SEND_OPCODE_OFFSET 11u
#define FLAG_VALID 1u
/* libibverbs posts no opcodes above this one. */
#define SEND_OPCODE_LAST 8u
#define OPCODE_SEND 3u
#define OPCODE_RECEIVE 8u
#define STATUS_FLUSHED 4u

#define COMPLETION_OPCODE_OFFSET 9u
#define COMPLETION_STATUS_OFFSET 10u
#define COMPLETION_QPN_OFFSET 24u

#define PAGE_BYTES 4096u

typedef _Atomic uint8_t flags_byte;

static const struct {
  uint32_t element_bytes;
  uint32_t tail_bytes;
} shapes[] = {
    [QUEUE_COMPLETION] = {COMPLETION_BYTES, COMPLETION_TAIL_BYTES},
    [QUEUE_SEND] = {SEND_ELEMENT_BYTES, SEND_TAIL_BYTES},
    [QUEUE_RECEIVE] = {RECEIVE_ELEMENT_BYTES, 0},
};

uint64_t queue_memory_bytes(enum queue_kind kind, uint32_t count) {
  uint64_t bytes = (uint64_t)count * shapes[kind].element_bytes + shapes[kind].tail_bytes;
  return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

void queue_add(struct mapped_queue **list, const struct mapped_queue *queue, int rings) {
  bool power_of_two = queue->count != 0 && (queue->count & (queue->count - 1)) == 0;
  if (!queue->indexed && !power_of_two) return;
  struct mapped_queue *kept = raw_allocate(sizeof *kept);
  if (kept == NULL) return;
  *kept = *queue;
  kept->memory = raw_map_rings(rings, queue->key, queue->memory_bytes);
  kept->next = *list;
  *list = kept;
}

void queue_move(struct mapped_queue *list, uint32_t handle, uint64_t key, uint64_t memory_bytes,
                int rings) {
  struct mapped_queue *queue = list;
  while (queue != NULL && (queue->kind != QUEUE_COMPLETION || queue->handle != handle)) {
    queue = queue->next;
  }
  if (queue == NULL) return;
  if (queue->memory != NULL) raw_munmap(queue->memory, queue->memory_bytes);
  queue->key = key;
  queue->memory_bytes = memory_bytes;
  queue->memory = raw_map_rings(rings, key, memory_bytes);
}

static void discard(struct mapped_queue *queue) {
  if (queue->memory != NULL) raw_munmap(queue->memory, queue->memory_bytes);
  raw_munmap(queue, sizeof *queue);
}

void queue_forget(struct mapped_queue **list, uint32_t handle) {
  while (*list != NULL) {
    struct mapped_queue *queue = *list;
    if (queue->handle == handle) {
      *list = queue->next;
      discard(queue);
    } else {
      list = &queue->next;
    }
  }
}

void queues_free(struct mapped_queue **list) {
  while (*list != NULL) {
    struct mapped_queue *queue = *list;
    *list = queue->next;
    discard(queue);
  }
}

static uint8_t *element_at(const struct mapped_queue *queue, uint32_t index) {
  return queue->memory +
         (size_t)(index & (queue->count - 1)) * shapes[queue->kind].element_bytes;
}

static flags_byte *flags_of(uint8_t *element) {
  return (flags_byte *)(element + ELEMENT_FLAGS_OFFSET);
}

static bool is_valid(uint8_t *element) {
  return (atomic_load(flags_of(element)) & FLAG_VALID) != 0;
}

/* Adds a completion for the work request in `element`. */
static void complete(const struct mapped_queue *completions, const uint8_t *element,
                     uint8_t opcode, uint32_t qpn) {
  uint32_t written;
  uint8_t *tail = completions->memory + (size_t)completions->count * COMPLETION_BYTES;
  memcpy(&written, tail + WRITTEN_OFFSET, sizeof written);
  /* The daemon may have died between a completion and its count. */
  if (is_valid(element_at(completions, written))) written++;
  uint8_t *completion = element_at(completions, written);
  if (is_valid(completion)) return;
  uint16_t status = STATUS_FLUSHED;
  memset(completion, 0, ELEMENT_FLAGS_OFFSET);
  memset(completion + COMPLETION_OPCODE_OFFSET, 0, COMPLETION_BYTES - COMPLETION_OPCODE_OFFSET);
  memcpy(completion, element, sizeof(uint64_t));
  completion[COMPLETION_OPCODE_OFFSET] = opcode;
  memcpy(completion + COMPLETION_STATUS_OFFSET, &status, sizeof status);
  memcpy(completion + COMPLETION_QPN_OFFSET, &qpn, sizeof qpn);
  atomic_store(flags_of(completion), FLAG_VALID);
  written++;
  memcpy(tail + WRITTEN_OFFSET, &written, sizeof written);
}

static uint8_t send_opcode(const uint8_t *element) {
  uint8_t opcode = element[SEND_OPCODE_OFFSET];
  return opcode <= SEND_OPCODE_LAST ? opcode : OPCODE_SEND;
}

struct progress {
  uint32_t next;
  uint32_t unfinished;
};

static struct progress progress_of(const struct mapped_queue *sends) {
  uint32_t word;
  memcpy(&word, sends->memory + sends->memory_bytes - PROGRESS_BEFORE_END, sizeof word);
  return (struct progress){.next = word & 0xffff, .unfinished = word >> 16};
}

static bool is_full(const struct mapped_queue *sends) {
  uint32_t slot = 0;
  while (slot < sends->count && is_valid(element_at(sends, slot))) slot++;
  return slot == sends->count;
}

static void flush_sends(const struct mapped_queue *sends, const struct mapped_queue *completions) {
  struct progress progress = progress_of(sends);
  uint32_t next = progress.next;
  uint32_t unfinished = progress.unfinished < sends->count ? progress.unfinished : sends->count;
  /* The daemon counts an element before it frees it, and may have died in between. In a full queue,
   * the program has posted to that element since. */
  bool last_is_taken = !is_full(sends);
  for (uint32_t back = unfinished; back > 0; back--) {
    uint8_t *element = element_at(sends, next - back);
    /* The loop below completes what the program has posted here since. */
    if (is_valid(element) && !(back == 1 && last_is_taken)) continue;
    complete(completions, element, send_opcode(element), sends->qpn);
    atomic_store(flags_of(element), 0);
  }
  for (uint32_t ahead = 0; ahead < sends->count; ahead++) {
    uint8_t *element = element_at(sends, next + ahead);
    if (!is_valid(element)) return;
    complete(completions, element, send_opcode(element), sends->qpn);
    atomic_store(flags_of(element), 0);
  }
}

static void flush_receives(const struct mapped_queue *receives,
                           const struct mapped_queue *completions) {
  /* The posted elements are contiguous and start after a free one. */
  uint32_t first = 0;
  while (first < receives->count && is_valid(element_at(receives, first))) first++;
  for (uint32_t step = 1; step <= receives->count; step++) {
    uint8_t *element = element_at(receives, first + step);
    if (!is_valid(element)) continue;
    complete(completions, element, OPCODE_RECEIVE, receives->qpn);
    atomic_store(flags_of(element), 0);
  }
}

static bool index_ring_of(const struct mapped_queue *queue, struct index_ring *ring) {
  const struct ring_memory memory = {.bytes = queue->memory, .length = queue->memory_bytes};
  return index_ring_read(&memory, ring);
}

static void flush_indexed(const struct mapped_queue *queue,
                          const struct mapped_queue *completions) {
  struct index_ring requests;
  struct index_ring completed;
  uint32_t given_back = 0;
  if (!index_ring_of(queue, &requests) || !index_ring_of(completions, &completed)) return;
  if (queue->kind == QUEUE_SEND) {
    /* The daemon gives elements back, completes them, and counts them as finished, in this
     * order. */
    struct progress progress = progress_of(queue);
    given_back = index_ring_first(&requests) - (progress.next - progress.unfinished);
    given_back &= requests.mask & 0xffff;
  } else {
    given_back = index_ring_unfinished(&requests);
  }
  index_ring_flush(&requests, &completed, queue->qpn, given_back);
}

/* How many elements are posted from the next one on, found by halving: they are contiguous. */
static uint32_t posted_ahead(const struct mapped_queue *sends, uint32_t next) {
  uint32_t seen = QUEUE_SENDS_SEEN < sends->count ? QUEUE_SENDS_SEEN : sends->count;
  while (seen > 0 && !is_valid(element_at(sends, next + seen - 1))) seen /= 2;
  return seen;
}

struct sends queues_sends(const struct mapped_queue *list, uint32_t completion_handle) {
  struct sends sum = {0};
  for (const struct mapped_queue *queue = list; queue != NULL; queue = queue->next) {
    if (queue->kind != QUEUE_SEND || queue->completion_handle != completion_handle) continue;
    if (queue->memory == NULL) continue;
    struct progress progress = progress_of(queue);
    struct index_ring ring;
    sum.taken += progress.next;
    if (!queue->indexed) {
      sum.outstanding += progress.unfinished + posted_ahead(queue, progress.next);
    } else if (index_ring_of(queue, &ring)) {
      sum.outstanding += index_ring_used(&ring);
    }
  }
  return sum;
}

bool queue_completions(const struct mapped_queue *list, uint32_t handle, struct index_ring *ring) {
  for (const struct mapped_queue *queue = list; queue != NULL; queue = queue->next) {
    if (queue->kind != QUEUE_COMPLETION || queue->handle != handle || !queue->indexed) continue;
    return queue->memory != NULL && index_ring_of(queue, ring);
  }
  return false;
}

void queues_flush(struct mapped_queue *list) {
  for (struct mapped_queue *queue = list; queue != NULL; queue = queue->next) {
    if (queue->kind == QUEUE_COMPLETION || queue->memory == NULL) continue;
    struct mapped_queue *completions = list;
    while (completions != NULL && (completions->kind != QUEUE_COMPLETION ||
                                   completions->handle != queue->completion_handle)) {
      completions = completions->next;
    }
    if (completions == NULL || completions->memory == NULL) continue;
    if (queue->indexed) flush_indexed(queue, completions);
    else if (queue->kind == QUEUE_SEND) flush_sends(queue, completions);
    else flush_receives(queue, completions);
  }
}
