/* NETLINK_RDMA sockets as libnl and libmnl use them: one message is sent, and its answer is
 * available at once. The descriptor is a connection to the daemon; answers wait in this process, so
 * such a socket does not poll as readable. */
#ifndef IWARPD_NETLINK_H
#define IWARPD_NETLINK_H

#include <sys/socket.h>

#include "descriptor-table.h"

/* A file is freed: its datagrams, if it is a socket. */
void netlink_file_free(struct device_file *file);

/* Opens a socket of this type (with SOCK_NONBLOCK). Returns a descriptor, or a negative errno as
 * `daemon_connect`. */
int netlink_open(int type);

/* The socket calls on such a socket, with their results and errno. */
int netlink_bind(struct endpoint *endpoint, const struct sockaddr *address, socklen_t length);
int netlink_getsockname(struct endpoint *endpoint, struct sockaddr *address, socklen_t *length);
ssize_t netlink_sendmsg(struct endpoint *endpoint, const struct msghdr *message);
ssize_t netlink_recvmsg(struct endpoint *endpoint, struct msghdr *message, int flags);

#endif
