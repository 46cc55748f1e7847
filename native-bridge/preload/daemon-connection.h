/* Connections to the daemon: where its socket is, and the greeting. */
#ifndef IWARPD_DAEMON_CONNECTION_H
#define IWARPD_DAEMON_CONNECTION_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "protocol.h"

/* What the daemon answered to a greeting. */
struct welcome {
  uint8_t token[TOKEN_BYTES];
  /* The file's or the queue's number. */
  uint32_t number;
  /* The daemon's pid, in this process's namespace where it is visible from here. */
  pid_t daemon;
};

/* Connects and greets. `token` may be NULL for zeros. Returns the socket (close-on-exec), or a
 * negative errno: -ECONNREFUSED whenever there is no daemon that would serve this process, so that
 * the caller steps aside; anything else is the daemon's own refusal, or what the process lacks
 * (EMFILE, ENFILE, ENOMEM). Keeps errno. */
int daemon_connect(enum role role, const uint8_t *token, struct welcome *welcome);

/* True for a result of `daemon_connect` that means that no daemon serves this process. */
static inline bool daemon_is_absent(int result) { return result == -111; }

/* Reads exactly `length` octets. Returns 0 or a negative errno; the end is -ECONNRESET. */
int receive_exactly(int fd, void *target, size_t length);

/* Sends all octets of the message, which is used up. Returns 0 or a negative errno. */
int send_all(int fd, struct msghdr *message);

/* How long the daemon may take for a command before it counts as dead, in seconds. */
#define COMMAND_TIMEOUT_S 60

#endif
