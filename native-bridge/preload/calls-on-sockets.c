/* The libc calls on sockets: emulates NETLINK_RDMA, by which programs find devices. */
#include <errno.h>
#include <linux/netlink.h>

#include "daemon-connection.h"
#include "descriptor-table.h"
#include "interpose.h"
#include "netlink.h"
#include "registry.h"

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static NOINLINE int socket_special(int type, int *fd) {
  if (process_is_foreign()) return 0;
  *fd = netlink_open(type);
  if (daemon_is_absent(*fd)) return 0;
  if (*fd < 0) {
    errno = -*fd;
    *fd = -1;
  }
  return 1;
}

EXPORT int socket(int domain, int type, int protocol) {
  int fd;
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && socket_special(type, &fd)) return fd;
  return REAL(socket)(domain, type, protocol);
}

/* The endpoint of one of our netlink sockets, or NULL. */
static NOINLINE struct endpoint *netlink_get(int fd) {
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL || endpoint->kind == ENDPOINT_NETLINK) return endpoint;
  endpoint_put(endpoint);
  return NULL;
}

/* Makes `call` for one of our netlink sockets, else `real`. */
#define ON_NETLINK(type, fd, call, real)                                                           \
  if (likely(!descriptor_is_marked(fd))) return real;                                              \
  struct endpoint *endpoint = netlink_get(fd);                                                     \
  if (endpoint == NULL) return real;                                                               \
  type result = call;                                                                              \
  endpoint_put(endpoint);                                                                          \
  return result

EXPORT int bind(int fd, const struct sockaddr *address, socklen_t length) {
  ON_NETLINK(int, fd, netlink_bind(endpoint, address, length), REAL(bind)(fd, address, length));
}

EXPORT int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict length) {
  ON_NETLINK(int, fd, netlink_getsockname(endpoint, address, length),
             REAL(getsockname)(fd, address, length));
}

/* Buffer sizes apply to the underlying socket; netlink options have no effect. */
EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t length) {
  if (level != SOL_NETLINK) return REAL(setsockopt)(fd, level, option, value, length);
  ON_NETLINK(int, fd, 0, REAL(setsockopt)(fd, level, option, value, length));
}

static int refuse_option(void) {
  errno = ENOPROTOOPT;
  return -1;
}

EXPORT int getsockopt(int fd, int level, int option, void *restrict value,
                      socklen_t *restrict length) {
  if (level != SOL_NETLINK) return REAL(getsockopt)(fd, level, option, value, length);
  ON_NETLINK(int, fd, refuse_option(), REAL(getsockopt)(fd, level, option, value, length));
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  ON_NETLINK(ssize_t, fd, netlink_sendmsg(endpoint, message), REAL(sendmsg)(fd, message, flags));
}

EXPORT ssize_t sendto(int fd, const void *bytes, size_t length, int flags,
                      const struct sockaddr *address, socklen_t address_length) {
  ON_NETLINK(ssize_t, fd, netlink_send(endpoint, bytes, length),
             REAL(sendto)(fd, bytes, length, flags, address, address_length));
}

EXPORT ssize_t send(int fd, const void *bytes, size_t length, int flags) {
  ON_NETLINK(ssize_t, fd, netlink_send(endpoint, bytes, length),
             REAL(send)(fd, bytes, length, flags));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *message, int flags) {
  ON_NETLINK(ssize_t, fd, netlink_recvmsg(endpoint, message, flags),
             REAL(recvmsg)(fd, message, flags));
}

EXPORT ssize_t recvfrom(int fd, void *restrict bytes, size_t length, int flags,
                        struct sockaddr *restrict address, socklen_t *restrict address_length) {
  ON_NETLINK(ssize_t, fd,
             netlink_receive(endpoint, bytes, length, flags, address, address_length),
             REAL(recvfrom)(fd, bytes, length, flags, address, address_length));
}

EXPORT ssize_t recv(int fd, void *bytes, size_t length, int flags) {
  ON_NETLINK(ssize_t, fd, netlink_receive(endpoint, bytes, length, flags, NULL, NULL),
             REAL(recv)(fd, bytes, length, flags));
}
