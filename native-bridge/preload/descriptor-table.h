/* Which descriptors of this process are RDMA ones.
 *
 * Looking up any other descriptor takes one or two loads: no lock, no system call. Memory that a
 * slot points to is never freed, so a reader may access an endpoint that another thread is closing.
 * A reference can be taken only while the endpoint has one, and counts only if the slot still holds
 * the endpoint afterwards. */
#ifndef IWARPD_DESCRIPTOR_TABLE_H
#define IWARPD_DESCRIPTOR_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct device_file;
struct event_ring;

enum endpoint_kind {
  /* The shim's own descriptor, unknown to the program. */
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
  /* In a child that shares or copied this memory without fork(): must not be used. */
  ENDPOINT_FOREIGN,
};

/* The object of a descriptor; duplicates of the descriptor share it. */
struct endpoint {
  /* One for each slot and each call in progress; 0 if the endpoint is free. */
  _Atomic uint32_t references;
  _Atomic enum endpoint_kind kind;
  /* Identifies the socket, to detect numbers that were closed unnoticed. Atomic, like the kind: a
   * lookup without a reference may read them while the endpoint is reused. */
  _Atomic dev_t socket_device;
  _Atomic ino_t socket_inode;
  /* Holds a reference to the file, except in a hidden endpoint. */
  struct device_file *file;
  /* Number by which the daemon knows the event queue. */
  uint32_t queue_number;
  /* Where a completion channel shows its records, or NULL. */
  struct event_ring *event_ring;
  /* Device number that fstat reports. */
  dev_t device_number;
  /* Where the owner of a hidden descriptor stores its number. Atomic for the same reason. */
  _Atomic(_Atomic int *) holder;
  /* True once the last event of an asynchronous queue was delivered, after the daemon died. */
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

/* The endpoint of a descriptor, with a reference for the caller, or NULL for a descriptor that is
 * not the shim's. */
struct endpoint *endpoint_get(int fd);

/* Adds a reference to an endpoint that has one. */
void endpoint_ref(struct endpoint *endpoint);

/* Drops a reference. Keeps errno. */
void endpoint_put(struct endpoint *endpoint);

/* Makes an endpoint for the socket `fd`, with one reference for the caller. NULL: ENOMEM. */
struct endpoint *endpoint_create(enum endpoint_kind kind, int fd, struct device_file *file);

/* The object of a program's descriptor; see `struct endpoint`. */
struct endpoint_traits {
  enum endpoint_kind kind;
  struct device_file *file;
  uint32_t queue_number;
  struct event_ring *event_ring;
  dev_t device_number;
};

/* Makes `fd` stand for a new endpoint. Returns it, or closes it and returns a negative errno. The
 * event ring is released on failure, too. */
int endpoint_publish(int fd, const struct endpoint_traits *traits);

/* Enters `fd` for the endpoint. False if the number is beyond the table (EMFILE), or on ENOMEM. */
bool descriptor_install(int fd, struct endpoint *endpoint);

/* Removes the entry of `fd`. Keeps errno. */
void descriptor_remove(int fd);

/* Removes the entries of the program's descriptors from `first` to `last`, except hidden ones. */
void descriptor_remove_range(unsigned first, unsigned last);

/* Removes the entry of a number and keeps it free of hidden descriptors. False if one is there. */
bool descriptor_reserve(int fd);

void descriptor_end_reservation(int fd);

enum install_result { INSTALL_DONE, INSTALL_RESERVED, INSTALL_NO_ROOM };

/* Enters `fd` for the endpoint unless it is reserved. The caller must put the previous endpoint. */
enum install_result descriptor_install_unreserved(int fd, struct endpoint *endpoint,
                                                  struct endpoint **before);

/* The endpoint of the hidden descriptor `fd`, or NULL. Needs the lock of the hidden descriptors,
 * and is valid until that is released. */
struct endpoint *descriptor_hidden_endpoint(int fd);

/* Removes the entry of `fd` if it is for the endpoint. */
void descriptor_withdraw(int fd, struct endpoint *endpoint);

/* Needs the same lock: the next hidden descriptor from `first` to `last`, or -1. */
int descriptor_next_hidden(unsigned first, unsigned last);

/* A descriptor of the event queue with this number, with its endpoint referenced, or -1. */
int descriptor_of_queue(uint32_t queue_number, struct endpoint **endpoint);

/* The program's descriptor of an open device, or -1. */
int descriptor_of_file(const struct device_file *file);

/* Recounts references in a forked child, where the calls of other threads do not exist. */
void endpoints_recount(void);

#endif
