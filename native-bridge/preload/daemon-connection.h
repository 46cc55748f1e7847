/* Connections to the daemon: the address of its socket, and the greeting. */
#ifndef IWARPD_DAEMON_CONNECTION_H
#define IWARPD_DAEMON_CONNECTION_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "protocol.h"

/* The daemon's answer to a greeting. */
struct welcome {
  uint8_t token[TOKEN_BYTES];
  /* Number of the file or queue. */
  uint32_t number;
  /* Offset in the file of rings at which the queue shows its records; 0 if it does not. */
  uint64_t place;
  /* The daemon's pid in this process's namespace, if it is visible there. */
  pid_t daemon;
};

/* Connects and greets. `token` may be NULL for zeros. Returns the socket (close-on-exec) or a
 * negative errno: -ECONNREFUSED if no daemon serves this process, so the caller makes the real
 * call; otherwise the daemon's own error, or EMFILE, ENFILE or ENOMEM of this process. Keeps
 * errno. */
int daemon_connect(enum role role, const uint8_t *token, struct welcome *welcome);

/* As `daemon_connect`, for a file that a forked child inherited. `daemon_lives`: the connection of
 * the process that opened it is up, so a failure is due to this process. */
int daemon_rejoin(enum role role, const uint8_t *token, bool daemon_lives, struct welcome *welcome);

/* Greets on a connected socket. Returns it, or closes it and returns a negative errno as above. */
int daemon_greet(int fd, enum role role, const uint8_t *token, struct welcome *welcome);

/* True if the result of `daemon_connect` means that no daemon serves this process. */
static inline bool daemon_is_absent(int result) { return result == -111; }

/* Reads exactly `length` bytes. Returns 0 or a negative errno; the end is -ECONNRESET. */
int receive_exactly(int fd, void *target, size_t length);

/* Sends all bytes of the message and modifies it. Returns 0 or a negative errno. */
int send_all(int fd, struct msghdr *message);

/* Removes the first `sent` bytes of a message. True when nothing is left. */
bool message_advance(struct msghdr *message, size_t sent);

/* Seconds without a response after which the daemon counts as dead. The end of its process is
 * noticed at once; a machine on which dozens of jobs start at once is merely slow. */
#define DAEMON_TIMEOUT_S 60

#endif
