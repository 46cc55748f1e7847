/* See private-rings.h.
 *
 * The program maps its queues itself and may have moved or cut the mappings since. So find them
 * where the kernel lists them, by the file of the device's rings and the offsets of the send
 * queues. */
#include "private-rings.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/sysmacros.h>

#include "descriptor-table.h"
#include "device-file.h"
#include "hidden-descriptor.h"
#include "queue-flush.h"
#include "raw-call.h"

#define READ_BYTES 4096

/* A line of /proc/self/maps. */
struct mapping {
  uint64_t start;
  uint64_t end;
  int protection;
  uint64_t offset;
  uint64_t major;
  uint64_t minor;
  uint64_t inode;
};

struct mappings {
  int fd;
  off_t offset;
  char bytes[READ_BYTES];
  size_t at;
  size_t filled;
};

/* The next character; '\0' at the end. */
static char next_character(struct mappings *mappings) {
  if (mappings->at == mappings->filled) {
    /* An inherited descriptor shares its position with the parent. */
    ssize_t length = syscall(SYS_pread64, mappings->fd, mappings->bytes, sizeof mappings->bytes,
                             mappings->offset);
    if (length <= 0) return '\0';
    mappings->offset += length;
    mappings->at = 0;
    mappings->filled = (size_t)length;
  }
  return mappings->bytes[mappings->at++];
}

/* A number and the character after it. */
static uint64_t next_number(struct mappings *mappings, unsigned base) {
  uint64_t number = 0;
  for (;;) {
    char character = next_character(mappings);
    unsigned digit = base;
    if (character >= '0' && character <= '9') digit = (unsigned)(character - '0');
    else if (character >= 'a' && character <= 'f') digit = (unsigned)(character - 'a') + 10;
    if (digit >= base) return number;
    number = number * base + digit;
  }
}

/* "START-END rwxp OFFSET MAJOR:MINOR INODE   PATH". False at the end. */
static bool next_mapping(struct mappings *mappings, struct mapping *mapping) {
  mapping->start = next_number(mappings, 16);
  mapping->end = next_number(mappings, 16);
  mapping->protection = next_character(mappings) == 'r' ? PROT_READ : 0;
  if (next_character(mappings) == 'w') mapping->protection |= PROT_WRITE;
  while (next_character(mappings) > ' ') {
  }
  mapping->offset = next_number(mappings, 16);
  mapping->major = next_number(mappings, 16);
  mapping->minor = next_number(mappings, 16);
  mapping->inode = next_number(mappings, 10);
  char character;
  do character = next_character(mappings);
  while (character != '\n' && character != '\0');
  return character != '\0';
}

/* Where a send queue lies in the file of rings. */
struct place {
  uint64_t first;
  uint64_t last;
};

struct places {
  struct place *all;
  size_t count;
};

/* Covers all send queues if there is no memory for a list of them. */
static struct place whole_file = {.first = 0, .last = INT64_MAX};

/* The places of the send queues, in ascending order: the list has the newest queue first, and the
 * daemon uses each offset once. */
static struct places places_of(const struct mapped_queue *queues) {
  size_t count = 0;
  for (const struct mapped_queue *queue = queues; queue != NULL; queue = queue->next) {
    if (queue->kind == QUEUE_SEND) count++;
  }
  if (count == 0) return (struct places){.count = 0};
  struct places places = {.all = raw_allocate(count * sizeof(struct place)), .count = count};
  if (places.all == NULL) return (struct places){.all = &whole_file, .count = 1};
  for (const struct mapped_queue *queue = queues; queue != NULL; queue = queue->next) {
    if (queue->kind != QUEUE_SEND) continue;
    places.all[--count] =
        (struct place){.first = queue->key, .last = queue->key + queue->memory_bytes};
  }
  return places;
}

static void free_places(struct places *places) {
  if (places->all == NULL || places->all == &whole_file) return;
  raw_munmap(places->all, places->count * sizeof(struct place));
}

/* Replaces a piece of a mapping by a private copy, made page by page as the child writes. */
static void make_private(const struct mapping *mapping, const struct place *piece, int rings) {
  void *at = (void *)(uintptr_t)(mapping->start + (piece->first - mapping->offset));
  size_t length = piece->last - piece->first;
  int flags = MAP_PRIVATE | MAP_FIXED;
  void *made = raw_mmap(at, length, mapping->protection, flags, rings, (off_t)piece->first);
  /* A child that posts there crashes; its parent's queue stays intact. */
  if (made == MAP_FAILED) raw_mmap(at, length, PROT_NONE, flags | MAP_ANONYMOUS, -1, 0);
}

static void visit(const struct mapping *mapping, const struct places *places, int rings) {
  uint64_t end = mapping->offset + (mapping->end - mapping->start);
  size_t from = 0;
  size_t to = places->count;
  while (from < to) {
    size_t middle = from + (to - from) / 2;
    if (places->all[middle].last <= mapping->offset) from = middle + 1;
    else to = middle;
  }
  for (; from < places->count && places->all[from].first < end; from++) {
    struct place piece = places->all[from];
    if (piece.first < mapping->offset) piece.first = mapping->offset;
    if (piece.last > end) piece.last = end;
    make_private(mapping, &piece, rings);
  }
}

static int open_mappings(void) {
  return (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

void private_rings_prepare(struct device_file *file) {
  int fd = open_mappings();
  if (fd >= 0) descriptor_hide(fd, false, file, &file->maps_fd);
}

static void take(struct device_file *file) {
  struct mappings mappings = {.at = 0};
  struct mapping mapping;
  struct stat status;
  struct places places = places_of(file->queues);
  if (places.count == 0) return;
  int rings = descriptor_of_file(file);
  if (rings < 0 || raw_fstat(rings, &status) != 0) return;
  int own = open_mappings();
  mappings.fd = own >= 0 ? own : atomic_load(&file->maps_fd);
  while (mappings.fd >= 0 && next_mapping(&mappings, &mapping)) {
    if (mapping.inode != status.st_ino || mapping.major != major(status.st_dev)) continue;
    if (mapping.minor == minor(status.st_dev)) visit(&mapping, &places, rings);
  }
  if (own >= 0) raw_close(own);
  free_places(&places);
}

void private_rings_take(void) { device_files_visit(take); }
