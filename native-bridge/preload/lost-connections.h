/* The connections of an rdma_cm file, for when the daemon dies. Each then gets two last events: its
 * device was removed, and it is disconnected, because its TCP connection died with the daemon.
 * Programs such as rsockets wait for the second only. */
#ifndef IWARPD_LOST_CONNECTIONS_H
#define IWARPD_LOST_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct connection {
  /* The program's identifier of the id, and the daemon's. */
  uint64_t uid;
  uint32_t id;
  bool removal_reported;
};

/* Under the registry lock. */
struct connections {
  struct connection *entries;
  size_t count;
  size_t room;
};

/* An event was delivered: `struct rdma_ucm_event_resp`. */
void connection_event(struct connections *connections, const uint8_t *event, size_t length);

/* The id was destroyed. */
void connection_forget(struct connections *connections, uint32_t id);

/* The id moved to another file. */
void connection_move(struct connections *from, struct connections *to, uint32_t id);

/* The daemon is gone: writes the next last event. Returns its length, 0 if there is none, or a
 * negative errno. */
int connection_last_event(struct connections *connections, uint8_t *target, size_t room);

void connections_free(struct connections *connections);

#endif
