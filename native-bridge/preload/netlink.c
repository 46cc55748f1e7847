/* See netlink.h. */
#include "netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <string.h>

#include "exchange.h"
#include "raw-call.h"

/* Octets of datagrams, with their lengths, that may wait on one socket. */
#define WAITING_MAX (64 * 1024)

struct datagrams {
  /* Under the file's command lock, as all of this. u32 length, octets; and so on. */
  uint8_t octets[WAITING_MAX];
  size_t start;
  size_t end;
  uint32_t port;
};

void datagrams_free(struct datagrams *datagrams) {
  if (datagrams != NULL) raw_munmap(datagrams, sizeof *datagrams);
}

int netlink_open(int type) {
  struct welcome welcome;
  int fd = daemon_connect(ROLE_NETLINK, NULL, &welcome);
  if (fd < 0) return fd;
  struct device_file *file = device_file_create(ROLE_NETLINK, fd, true, &welcome);
  int error = file == NULL ? errno : ENOMEM;
  bool installed = false;
  if (file != NULL) {
    file->datagrams = raw_allocate(sizeof *file->datagrams);
    struct endpoint *endpoint =
        file->datagrams == NULL ? NULL : endpoint_create(ENDPOINT_NETLINK, fd, file);
    if (endpoint != NULL) {
      installed = descriptor_install(fd, endpoint);
      if (!installed) error = errno;
      endpoint_put(endpoint);
    }
    device_file_put(file);
  }
  if (!installed) {
    raw_close(fd);
    return -error;
  }
  if ((type & SOCK_NONBLOCK) != 0) raw_fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
  return fd;
}

int netlink_bind(struct endpoint *endpoint, const struct sockaddr *address, socklen_t length) {
  if (length < sizeof(struct sockaddr_nl) || address->sa_family != AF_NETLINK) {
    errno = EINVAL;
    return -1;
  }
  struct sockaddr_nl name;
  memcpy(&name, address, sizeof name);
  pthread_mutex_lock(&endpoint->file->command_lock);
  /* Port 0 asks the kernel to choose, which takes the pid when it can. */
  endpoint->file->datagrams->port =
      name.nl_pid != 0 ? name.nl_pid : (uint32_t)atomic_load(&table_process);
  pthread_mutex_unlock(&endpoint->file->command_lock);
  return 0;
}

/* Gives an address out, cut to the room there is for it. */
static void give_address(uint32_t port, void *target, socklen_t *length) {
  struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_pid = port};
  memcpy(target, &name, *length < sizeof name ? *length : sizeof name);
  *length = sizeof name;
}

int netlink_getsockname(struct endpoint *endpoint, struct sockaddr *address, socklen_t *length) {
  pthread_mutex_lock(&endpoint->file->command_lock);
  uint32_t port = endpoint->file->datagrams->port;
  pthread_mutex_unlock(&endpoint->file->command_lock);
  give_address(port, address, length);
  return 0;
}

/* Under the command lock: keeps the answer for recvmsg. Returns 0 or a negative errno. */
static int keep_answer(struct datagrams *datagrams, const uint8_t *octets, size_t length) {
  if (datagrams->start == datagrams->end) datagrams->start = datagrams->end = 0;
  if (length > WAITING_MAX - datagrams->end) return -ENOBUFS;
  /* A length that reaches beyond the answer would be followed for ever after. */
  size_t at = 0;
  while (at < length) {
    uint32_t datagram;
    if (length - at < sizeof datagram) return -EIO;
    memcpy(&datagram, octets + at, sizeof datagram);
    if (datagram > length - at - sizeof datagram) return -EIO;
    at += sizeof datagram + datagram;
  }
  memcpy(datagrams->octets + datagrams->end, octets, length);
  datagrams->end += length;
  return 0;
}

ssize_t netlink_sendmsg(struct endpoint *endpoint, const struct msghdr *message) {
  int saved = errno;
  struct device_file *file = endpoint->file;
  struct exchange exchange;
  if (message->msg_iovlen > EXCHANGE_PIECES_MAX) {
    errno = EMSGSIZE;
    return -1;
  }
  exchange_init(&exchange, OP_NETLINK, 0);
  for (size_t index = 0; index < message->msg_iovlen; index++) {
    const struct iovec *piece = &message->msg_iov[index];
    if (piece->iov_len > REQUEST_PAYLOAD_MAX) {
      errno = EMSGSIZE;
      return -1;
    }
    if (piece->iov_len > 0) exchange_add(&exchange, piece->iov_base, piece->iov_len);
  }
  exchange_run(file, &exchange);
  int error = exchange.status < 0 ? exchange.status : 0;
  if (error == 0) {
    error = keep_answer(file->datagrams, exchange.response, exchange.response_bytes);
  }
  exchange_end(file, &exchange);
  errno = error == 0 ? saved : -error;
  return error == 0 ? (ssize_t)exchange.payload_bytes : -1;
}

static size_t scatter(const struct msghdr *message, const uint8_t *octets, size_t length) {
  size_t done = 0;
  for (size_t index = 0; index < message->msg_iovlen && done < length; index++) {
    size_t part = message->msg_iov[index].iov_len;
    if (part > length - done) part = length - done;
    if (part > 0) memcpy(message->msg_iov[index].iov_base, octets + done, part);
    done += part;
  }
  return done;
}

ssize_t netlink_recvmsg(struct endpoint *endpoint, struct msghdr *message, int flags) {
  struct device_file *file = endpoint->file;
  struct datagrams *datagrams = file->datagrams;
  ssize_t result = -1;
  pthread_mutex_lock(&file->command_lock);
  if (datagrams->start < datagrams->end) {
    uint32_t length;
    memcpy(&length, datagrams->octets + datagrams->start, sizeof length);
    const uint8_t *octets = datagrams->octets + datagrams->start + sizeof length;
    size_t copied = scatter(message, octets, length);
    message->msg_flags = copied < length ? MSG_TRUNC : 0;
    message->msg_controllen = 0;
    if (message->msg_name != NULL) give_address(0, message->msg_name, &message->msg_namelen);
    if ((flags & MSG_PEEK) == 0) datagrams->start += sizeof length + length;
    result = (flags & MSG_TRUNC) != 0 ? (ssize_t)length : (ssize_t)copied;
  } else {
    /* Answers come with the request, so there is nothing that could be waited for. */
    errno = EAGAIN;
  }
  pthread_mutex_unlock(&file->command_lock);
  return result;
}
