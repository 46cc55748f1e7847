/* Calls on an open /dev/infiniband/rdma_cm. */
#ifndef IWARPD_CM_FILE_H
#define IWARPD_CM_FILE_H

#include <sys/types.h>

#include "descriptor-table.h"

/* Opens the connection manager. Returns a descriptor, or a negative errno as `daemon_connect`. */
int cm_open(dev_t device_number);

/* write(): one command; `fd` is an rdma_cm file. A cancellation point for GET_EVENT. The caller
 * must hold no lock or reference. Returns `length`, or -1 with errno. */
ssize_t cm_write(int fd, const void *buffer, size_t length);

#endif
