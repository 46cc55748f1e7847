/* The connections of an rdma_cm file, to be told of when the daemon, and with it their TCP, is gone:
 * each then has one last event, as when the peer goes. Programs that wait for nothing else, such as
 * rsockets, would not notice. */
#ifndef IWARPD_LOST_CONNECTIONS_H
#define IWARPD_LOST_CONNECTIONS_H

#include <stddef.h>
#include <stdint.h>

struct connection {
  /* What the program calls the id, and its number. */
  uint64_t uid;
  uint32_t id;
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

/* The id is another file's now. */
void connection_move(struct connections *from, struct connections *to, uint32_t id);

/* The daemon is gone: writes the last event of one connection, which is forgotten. Returns its
 * length; 0 when there is none left, or a negative errno. */
int connection_last_event(struct connections *connections, uint8_t *target, size_t room);

void connections_free(struct connections *connections);

#endif
