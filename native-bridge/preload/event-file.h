/* Event descriptors: completion channels, asynchronous events, and the descriptor that makes an
 * rdma_cm file readable. The daemon holds the records. The descriptor is a socket with at least one
 * byte while there are any: one for each record, up to a limit. */
#ifndef IWARPD_EVENT_FILE_H
#define IWARPD_EVENT_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon-connection.h"
#include "descriptor-table.h"

/* Opens the event descriptor with this token, of the device `device`, whose descriptor is
 * `device_fd`. Returns its number or a negative errno. */
int event_open(enum endpoint_kind kind, const uint8_t *token, const struct endpoint *device,
               int device_fd);

/* Waits until there are records or the daemon is gone; returns at once when the descriptor is
 * non-blocking. A cancellation point, and interrupted by signals like a read. The caller must hold
 * no lock or reference. Returns 1, 0 when the daemon is gone, or -1 with errno (EAGAIN, EINTR,
 * EBADF). */
int event_wait(int fd);

/* Pauses before the next attempt, when this thread woke for a record that another reader took. A
 * cancellation point. */
void event_back_off(unsigned attempt);

/* Takes a byte from an event descriptor. False if none came. Keeps errno. */
bool event_take_byte(int fd);

/* As above, and takes the bytes of further records if the program takes records itself. Call when
 * no record is left. */
bool event_take_last_byte(int fd, const struct endpoint *endpoint);

/* read() on a completion channel or asynchronous descriptor. */
ssize_t event_read(int fd, void *buffer, size_t length);

#endif
