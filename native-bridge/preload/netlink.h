/* NETLINK_RDMA sockets as libnl and libmnl use them: they send one message and receive its answer.
 * The descriptor is a connection to the daemon. Answers are stored in this process, so the socket
 * does not poll as readable. */
#ifndef IWARPD_NETLINK_H
#define IWARPD_NETLINK_H

#include <sys/socket.h>

#include "descriptor-table.h"

/* Frees the datagrams of a file that is a netlink socket. */
void netlink_file_free(struct device_file *file);

/* Opens a socket of this type (with SOCK_NONBLOCK). Returns a descriptor, or a negative errno as
 * `daemon_connect`. */
int netlink_open(int type);

/* The socket calls on such a socket, with their results and errno. */
int netlink_bind(struct endpoint *endpoint, const struct sockaddr *address, socklen_t length);
int netlink_getsockname(struct endpoint *endpoint, struct sockaddr *address, socklen_t *length);
ssize_t netlink_sendmsg(struct endpoint *endpoint, const struct msghdr *message);
ssize_t netlink_send(struct endpoint *endpoint, const void *bytes, size_t length);
ssize_t netlink_recvmsg(struct endpoint *endpoint, struct msghdr *message, int flags);
ssize_t netlink_receive(struct endpoint *endpoint, void *bytes, size_t length, int flags,
                        struct sockaddr *address, socklen_t *address_length);

#endif
