/* An open device file (uverbs, rdma_cm) or netlink socket, as the daemon knows it: its command
 * connection and what the shim keeps for it. */
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

enum connection_state {
  CONNECTION_OPEN,
  /* In a forked child, which has to make a connection of its own before it can talk. */
  CONNECTION_DETACHED,
  CONNECTION_DEAD,
};

struct datagrams;
struct mapped_queue;

struct device_file {
  /* One for each endpoint. */
  _Atomic uint32_t references;
  enum role role;
  uint32_t number;
  uint8_t token[TOKEN_BYTES];
  pid_t daemon;
  /* The process that last forked to make this one. */
  pid_t parent;

  /* Held from a command to the end of its reply. Comes before `send_lock`. */
  pthread_mutex_t command_lock;
  /* Held while a frame is sent, so that one-way doorbells need not wait for other commands. */
  pthread_mutex_t send_lock;
  /* The connection that commands go over: a hidden descriptor. -1 once the file is closed. */
  _Atomic int command_fd;
  /* One of `connection_state`; changes under `command_lock`. */
  _Atomic int state;
  uint32_t last_request;
  /* REPLY_MAX octets, under `command_lock`. */
  uint8_t *reply;

  struct doorbells doorbells;
  /* Queues to flush when the daemon is gone, under `command_lock`. */
  struct mapped_queue *queues;
  /* Wakes the thread that waits for that: a hidden descriptor, -1 where there is none. */
  _Atomic int watch_fd;
  struct connections connections;
  struct datagrams *datagrams;

  struct device_file *next;
};

/* A file over a connection that was welcomed, with one reference. `fd` becomes hidden: it is moved
 * away from the low numbers, or copied there when `copy` says that the program keeps it. NULL with
 * errno when it cannot be; `fd` is then closed unless the program keeps it. */
struct device_file *device_file_create(enum role role, int fd, bool copy,
                                       const struct welcome *welcome);

void device_file_ref(struct device_file *file);

/* Frees the file with its last reference. */
void device_file_put(struct device_file *file);

/* The program closed its last descriptor of the file: ends the shim's own connection, too. */
void device_file_shut(struct device_file *file);

/* The number that descriptors start from which leave the low numbers to the program: `wanted`, or
 * less where the limit of this process leaves too few above it. */
long descriptor_floor(unsigned wanted);

/* Moves a descriptor of the shim's own out of the program's way, or copies it there. Returns the
 * new number or -1 with errno; the old one is closed unless it was copied. `holder` is where the
 * number is kept. */
int descriptor_hide(int fd, bool copy, struct device_file *file, _Atomic int *holder);

/* Closes a hidden descriptor. Does nothing for -1. */
void descriptor_close_hidden(_Atomic int *holder);

/* Makes room: moves the hidden descriptor `fd` elsewhere because the program wants its number. */
void descriptor_move_hidden(int fd);

/* Calls `visit` for every file. The registry must be locked, or this the only thread. */
void device_files_visit(void (*visit)(struct device_file *file));

/* True while an uverbs file is open in this process. */
bool device_files_any(enum role role);

#endif
