/* See doorbell.h. */
#include "doorbell.h"

#include "raw-call.h"

/* Bytes from the word to the end of the memory. */
#define WORD_BEFORE_END 8
#define PAGE_BYTES 4096
#define CHUNK_BYTES (DOORBELL_CHUNK_HANDLES * sizeof(connected_word))

static connected_word *place_of(struct doorbells *doorbells, uint32_t handle) {
  if (handle >= DOORBELL_CHUNKS * DOORBELL_CHUNK_HANDLES) return NULL;
  connected_word *chunk = atomic_load(&doorbells->chunks[handle / DOORBELL_CHUNK_HANDLES]);
  return chunk == NULL ? NULL : &chunk[handle % DOORBELL_CHUNK_HANDLES];
}

static void unmap_word(_Atomic uint32_t *word) {
  uintptr_t page = (uintptr_t)word & ~(uintptr_t)(PAGE_BYTES - 1);
  raw_munmap((void *)page, PAGE_BYTES);
}

static void keep_word(struct doorbells *doorbells, uint32_t handle, _Atomic uint32_t *word) {
  if (handle < DOORBELL_CHUNKS * DOORBELL_CHUNK_HANDLES) {
    _Atomic(connected_word *) *chunk = &doorbells->chunks[handle / DOORBELL_CHUNK_HANDLES];
    if (atomic_load(chunk) == NULL) atomic_store(chunk, raw_allocate(CHUNK_BYTES));
  }
  connected_word *place = place_of(doorbells, handle);
  _Atomic uint32_t *before = place == NULL ? word : atomic_exchange(place, word);
  if (before != NULL) unmap_word(before);
}

void doorbell_created(struct doorbells *doorbells, uint32_t handle, int rings, uint64_t end) {
  if (end % PAGE_BYTES != 0 || end < PAGE_BYTES) return;
  /* A separate mapping: the program may unmap its queue at any time. */
  char *page = raw_map_rings(rings, end - PAGE_BYTES, PAGE_BYTES);
  if (page == NULL) return;
  keep_word(doorbells, handle, (_Atomic uint32_t *)(page + PAGE_BYTES - WORD_BEFORE_END));
}

void doorbell_forget(struct doorbells *doorbells, uint32_t handle) {
  connected_word *place = place_of(doorbells, handle);
  _Atomic uint32_t *word = place == NULL ? NULL : atomic_exchange(place, NULL);
  if (word != NULL) unmap_word(word);
}

enum doorbell_kind doorbell_begin(struct doorbells *doorbells, uint32_t handle) {
  connected_word *place = place_of(doorbells, handle);
  _Atomic uint32_t *word = place == NULL ? NULL : atomic_load(place);
  if (word == NULL) return DOORBELL_COMMAND;
  /* Order the provider's stores to the ring before this load: the daemon changes the word, then
   * reads the ring. */
  atomic_thread_fence(memory_order_seq_cst);
  uint32_t kind = atomic_load(word);
  if (kind == DOORBELL_ONE_WAY) atomic_compare_exchange_strong(word, &kind, DOORBELL_NONE);
  return kind <= DOORBELL_NONE ? (enum doorbell_kind)kind : DOORBELL_COMMAND;
}

void doorbells_free(struct doorbells *doorbells) {
  for (unsigned chunk = 0; chunk < DOORBELL_CHUNKS; chunk++) {
    connected_word *words = atomic_load(&doorbells->chunks[chunk]);
    if (words == NULL) continue;
    for (unsigned index = 0; index < DOORBELL_CHUNK_HANDLES; index++) {
      if (atomic_load(&words[index]) != NULL) unmap_word(atomic_load(&words[index]));
    }
    raw_munmap(words, CHUNK_BYTES);
    atomic_store(&doorbells->chunks[chunk], NULL);
  }
}
