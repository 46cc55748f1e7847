/* The command connection of a device file, and what becomes of it when the file is closed or the
 * process forks. */
#ifndef IWARPD_COMMAND_CONNECTION_H
#define IWARPD_COMMAND_CONNECTION_H

#include "device-file.h"

/* A file over a connection that was welcomed, with one reference. `fd` becomes hidden: it is moved
 * to a high number, or copied there when `copy` says that the program keeps it. On failure returns
 * NULL with errno; `fd` is then closed unless the program keeps it. */
struct device_file *command_connection_open(enum role role, int fd, bool copy,
                                            const struct welcome *welcome);

/* The program closed its last descriptor of the file: closes the shim's own, too. */
void command_connection_close(struct device_file *file);

/* In a forked child: no file has a connection until it needs one. */
void command_connections_detach(void);

#endif
