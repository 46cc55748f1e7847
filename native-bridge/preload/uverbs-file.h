/* Calls on an open /dev/infiniband/uverbsN. */
#ifndef IWARPD_UVERBS_FILE_H
#define IWARPD_UVERBS_FILE_H

#include <sys/types.h>

#include "descriptor-table.h"

/* Opens the device with this index. Returns a descriptor, that of the file of
 * the device's rings, which the program maps by plain mmap(); or a negative
 * errno, as `daemon_connect` does. */
int uverbs_open(unsigned index, dev_t device_number);

/* write(): one command. Returns `length`, or -1 with errno. */
ssize_t uverbs_write(int fd, struct endpoint *endpoint, const void *buffer, size_t length);

#endif
