/* An open device file (uverbs, rdma_cm) or netlink socket, as the daemon knows it, with its command
 * connection and the shim's state. */
#ifndef IWARPD_DEVICE_FILE_H
#define IWARPD_DEVICE_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "daemon-connection.h"
#include "doorbell.h"
#include "lost-connections.h"
#include "protocol.h"
#include "registered-memory.h"

enum connection_state {
  CONNECTION_OPEN,
  /* In a forked child, which first needs its own connection. */
  CONNECTION_DETACHED,
  CONNECTION_DEAD,
};

struct datagrams;
struct mapped_queue;

struct device_file {
  /* One per endpoint. */
  _Atomic uint32_t references;
  enum role role;
  uint32_t number;
  uint8_t token[TOKEN_BYTES];
  pid_t daemon;
  /* An ancestor opened it: as on a kernel, writes by the providers and librdmacm fail. */
  bool inherited;

  /* Held from a command to the end of its reply. Taken before `send_lock`. */
  pthread_mutex_t command_lock;
  /* Held while a frame is sent, so one-way doorbells need not wait for other commands. */
  pthread_mutex_t send_lock;
  /* The connection for commands: a hidden descriptor. -1 once the file is closed. */
  _Atomic int command_fd;
  /* In a forked child: the connection of the process that opened the device, which keeps the
   * daemon's file open. A hidden descriptor, or -1. */
  _Atomic int inherited_fd;
  /* The list of mappings of the process that opened an uverbs file. A hidden descriptor, or -1. */
  _Atomic int maps_fd;
  /* One of `connection_state`; changes under `command_lock`. */
  _Atomic int state;
  uint32_t last_request;
  /* REPLY_MAX bytes, under `command_lock`. */
  uint8_t *reply;

  struct doorbells doorbells;
  /* The provider's rings are rxe's, with indices. Set before any queue exists. */
  bool index_rings;
  /* Queues to flush when the daemon dies, under `command_lock`. */
  struct mapped_queue *queues;
  /* Wakes the thread that waits for the daemon to die: a hidden descriptor, or -1. */
  _Atomic int watch_fd;
  /* That thread holds a reference. */
  atomic_bool watched;
  struct connections connections;
  struct registrations registrations;
  struct datagrams *datagrams;

  struct device_file *next;
};

/* Makes a file without a connection, with one reference. NULL: ENOMEM. */
struct device_file *device_file_create(enum role role, const struct welcome *welcome);

void device_file_ref(struct device_file *file);

/* Adds a reference. False if the last one is gone and the file is about to be freed. */
bool device_file_try_ref(struct device_file *file);

/* Drops a reference; frees the file with the last one. */
void device_file_put(struct device_file *file);

/* The program closed its last descriptor of the file: each part of the library releases its own. */
void device_file_shut(struct device_file *file);

/* Calls `visit` for every file. Requires the registry lock, or a single thread. */
void device_files_visit(void (*visit)(struct device_file *file));

/* A file that a forked child has not connected yet, with a reference, or NULL. */
struct device_file *device_file_detached(void);

/* True while a file with this role is open in this process. */
bool device_files_any(enum role role);

#endif
