/* Which descriptors of this process are RDMA ones.
 *
 * The look-up of any other descriptor is one or two loads: no lock, no system call. What a slot
 * points to is never given back to the system, so a reader may look at an endpoint that another
 * thread is closing; a reference can only be taken while the endpoint has one, and counts only if
 * the slot still holds the endpoint afterwards. */
#ifndef IWARPD_DESCRIPTOR_TABLE_H
#define IWARPD_DESCRIPTOR_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct device_file;

enum endpoint_kind {
  /* A descriptor of the shim's own, of which the program does not know. */
  ENDPOINT_HIDDEN,
  /* An open /dev/infiniband/uverbsN. */
  ENDPOINT_UVERBS,
  /* An open /dev/infiniband/rdma_cm. */
  ENDPOINT_CM,
  /* A completion channel. */
  ENDPOINT_COMPLETION,
  /* The asynchronous events of an uverbs file. */
  ENDPOINT_ASYNC,
  /* A NETLINK_RDMA socket. */
  ENDPOINT_NETLINK,
  /* Seen from a child that shares or copied this memory without fork(): off limits. */
  ENDPOINT_FOREIGN,
};

/* What a descriptor stands for; duplicates of a descriptor share it. */
struct endpoint {
  /* One for each slot and for each call that uses it; 0 when free. */
  _Atomic uint32_t references;
  enum endpoint_kind kind;
  /* The socket behind the descriptor, to notice numbers that were closed out of the
   * shim's sight. */
  dev_t socket_device;
  ino_t socket_inode;
  /* Holds a reference to the file, except in a hidden endpoint. */
  struct device_file *file;
  /* Number of the event queue, by which the daemon names it. */
  uint32_t queue_number;
  /* Device number that fstat reports. */
  dev_t device_number;
  /* Where the owner of a hidden descriptor keeps its number. */
  _Atomic int *holder;
  /* The last event of an asynchronous queue, after the daemon's end, was delivered. */
  atomic_bool end_reported;
  struct endpoint *next_free;
  struct endpoint *next_made;
};

#define CHUNK_BITS 10
#define CHUNK_SLOTS (1u << CHUNK_BITS)
#define TABLE_CHUNKS 1024u

typedef _Atomic(struct endpoint *) endpoint_slot;

extern _Atomic(endpoint_slot *) descriptor_chunks[TABLE_CHUNKS];

/* True when the descriptor may be an RDMA one. */
static inline bool descriptor_is_marked(int fd) {
  unsigned number = (unsigned)fd;
  if (number >= TABLE_CHUNKS * CHUNK_SLOTS) return false;
  endpoint_slot *chunk =
      atomic_load_explicit(&descriptor_chunks[number >> CHUNK_BITS], memory_order_acquire);
  if (__builtin_expect(chunk == NULL, 1)) return false;
  return atomic_load_explicit(&chunk[number & (CHUNK_SLOTS - 1)], memory_order_relaxed) != NULL;
}

/* The endpoint behind a descriptor, with a reference for the caller, or NULL for a descriptor that
 * is none of the shim's. */
struct endpoint *endpoint_get(int fd);

/* Gives a reference back. Keeps errno. */
void endpoint_put(struct endpoint *endpoint);

/* A new endpoint for the socket `fd` with one reference, which is the caller's; NULL: ENOMEM. */
struct endpoint *endpoint_create(enum endpoint_kind kind, int fd, struct device_file *file);

/* Lets `fd` stand for the endpoint. False when the number is beyond the table
 * (EMFILE), or ENOMEM. */
bool descriptor_install(int fd, struct endpoint *endpoint);

/* Forgets what `fd` stood for. Keeps errno. */
void descriptor_remove(int fd);

/* Forgets the program's descriptors from `first` to `last`; the hidden ones stay. */
void descriptor_remove_range(unsigned first, unsigned last);

/* The next hidden descriptor from `first` to `last`, or -1. */
int descriptor_next_hidden(unsigned first, unsigned last);

/* A descriptor of the event queue with this number, or -1, with its endpoint referenced. */
int descriptor_of_queue(uint32_t queue_number, struct endpoint **endpoint);

/* Counts references anew in a forked child: the calls of other threads do not exist there. */
void endpoints_recount(void);

/* The process that the table belongs to; 0 before the first RDMA descriptor. */
extern _Atomic pid_t table_process;

/* True in a process that got this memory otherwise than by fork(), as vfork's child does. */
bool process_is_foreign(void);

#endif
