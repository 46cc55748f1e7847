/* Event descriptors: completion channels, asynchronous events, and the descriptor that makes an
 * rdma_cm file readable. The records wait in the daemon; the descriptor is a socket that holds bytes
 * while there are any, one for each record if these are few. */
#ifndef IWARPD_EVENT_FILE_H
#define IWARPD_EVENT_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon-connection.h"
#include "descriptor-table.h"

/* Opens the event descriptor with this token, of the device with the descriptor `device`. Returns its
 * number or a negative errno. */
int event_open(enum endpoint_kind kind, const uint8_t *token, const struct endpoint *device,
               int device_fd);

/* Waits until records exist or the daemon is gone; returns at once when the descriptor is
 * non-blocking. A cancellation point, and interrupted by signals like a read. The caller must hold
 * no lock or reference. Returns 1, 0 when the daemon is gone, or -1 with errno (EAGAIN, EINTR, EBADF). */
int event_wait(int fd);

/* Waits briefly before another look, after the byte of a record that another reader took woke this
 * thread. A cancellation point. */
void event_back_off(unsigned attempt);

/* Takes a byte from an event descriptor. False if it did not come. Keeps errno. */
bool event_take_byte(int fd);

/* As above, plus the bytes of further records, where the program takes records itself and none is
 * left. */
bool event_take_last_byte(int fd, const struct endpoint *endpoint);

/* read() on a completion channel or asynchronous descriptor. */
ssize_t event_read(int fd, void *buffer, size_t length);

#endif
