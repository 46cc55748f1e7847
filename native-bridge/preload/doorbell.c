/* See doorbell.h. */
#include "doorbell.h"

#include "raw-call.h"

/* The word lies so far before the end of the memory, in bytes. */
#define WORD_BEFORE_END 8
#define PAGE_BYTES 4096
#define CHUNK_BYTES (DOORBELL_CHUNK_HANDLES * sizeof(connected_word))

static connected_word *place_of(struct doorbells *doorbells, uint32_t handle) {
  if (handle >= DOORBELL_CHUNKS * DOORBELL_CHUNK_HANDLES) return NULL;
  connected_word *chunk = atomic_load(&doorbells->chunks[handle / DOORBELL_CHUNK_HANDLES]);
  return chunk == NULL ? NULL : &chunk[handle % DOORBELL_CHUNK_HANDLES];
}

void doorbell_expect(struct doorbells *doorbells, uint32_t handle, uint64_t key) {
  unsigned index = doorbells->next_pending++ % DOORBELL_PENDING;
  doorbells->pending[index].key = key;
  doorbells->pending[index].handle = handle;
  doorbells->pending[index].used = true;
}

static void unmap_word(const _Atomic uint32_t *word) {
  uintptr_t page = (uintptr_t)word & ~(uintptr_t)(PAGE_BYTES - 1);
  raw_munmap((void *)page, PAGE_BYTES);
}

static void keep_word(struct doorbells *doorbells, uint32_t handle, const _Atomic uint32_t *word) {
  if (handle < DOORBELL_CHUNKS * DOORBELL_CHUNK_HANDLES) {
    _Atomic(connected_word *) *chunk = &doorbells->chunks[handle / DOORBELL_CHUNK_HANDLES];
    if (atomic_load(chunk) == NULL) atomic_store(chunk, raw_allocate(CHUNK_BYTES));
  }
  connected_word *place = place_of(doorbells, handle);
  const _Atomic uint32_t *before = place == NULL ? word : atomic_exchange(place, word);
  if (before != NULL) unmap_word(before);
}

void doorbell_mapped(struct doorbells *doorbells, uint64_t key, int descriptor, size_t length) {
  unsigned index = 0;
  while (index < DOORBELL_PENDING &&
         !(doorbells->pending[index].used && doorbells->pending[index].key == key)) {
    index++;
  }
  if (index == DOORBELL_PENDING) return;
  doorbells->pending[index].used = false;
  struct stat status;
  if (raw_fstat(descriptor, &status) != 0) return;
  /* Memory that ends with the queue has no such word, and its last element must not be taken for
   * it. */
  if (status.st_size % PAGE_BYTES != 0) return;
  if ((uint64_t)status.st_size < (uint64_t)length + WORD_BEFORE_END) return;
  /* A mapping of the shim's own: the program unmaps its queue when it likes. */
  char *page =
      raw_mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, descriptor, status.st_size - PAGE_BYTES);
  if (page == MAP_FAILED) return;
  keep_word(doorbells, doorbells->pending[index].handle,
            (const _Atomic uint32_t *)(page + PAGE_BYTES - WORD_BEFORE_END));
}

void doorbell_forget(struct doorbells *doorbells, uint32_t handle) {
  connected_word *place = place_of(doorbells, handle);
  const _Atomic uint32_t *word = place == NULL ? NULL : atomic_exchange(place, NULL);
  if (word != NULL) unmap_word(word);
}

bool doorbell_is_connected(struct doorbells *doorbells, uint32_t handle) {
  connected_word *place = place_of(doorbells, handle);
  const _Atomic uint32_t *word = place == NULL ? NULL : atomic_load(place);
  return word != NULL && atomic_load(word) == 1;
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
