/* The command connection of a device file: opening, closing, and what happens to it in a fork. */
#ifndef IWARPD_COMMAND_CONNECTION_H
#define IWARPD_COMMAND_CONNECTION_H

#include "device-file.h"

/* Makes a file over a connection that was welcomed, with one reference. Hides `fd`: moves it to a
 * high number or, if `copy`, copies it there. Returns NULL with errno on failure and closes `fd`,
 * unless it was to be copied. */
struct device_file *command_connection_open(enum role role, int fd, bool copy,
                                            const struct welcome *welcome);

/* Closes the shim's descriptors of a file whose last descriptor the program closed. */
void command_connection_close(struct device_file *file);

/* In a forked child: takes the connection of every file away, until the child needs one. */
void command_connections_detach(void);

#endif
