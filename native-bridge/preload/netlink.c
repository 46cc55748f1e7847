/* See netlink.h. */
#include "netlink.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <string.h>

#include "command-connection.h"
#include "exchange.h"
#include "raw-call.h"
#include "registry.h"

/* Limit of waiting datagrams on one socket, in bytes with their lengths. */
#define WAITING_MAX (64 * 1024)

struct datagrams {
  /* u32 length, bytes; and so on. Like all fields, under the file's command lock. */
  uint8_t bytes[WAITING_MAX];
  size_t start;
  size_t end;
  /* The daemon has the rest of the last answer. */
  bool more;
  uint32_t port;
};

void netlink_file_free(struct device_file *file) {
  if (file->datagrams != NULL) raw_munmap(file->datagrams, sizeof *file->datagrams);
}

int netlink_open(int type) {
  struct welcome welcome;
  int fd = daemon_connect(ROLE_NETLINK, NULL, &welcome);
  if (fd < 0) return fd;
  struct device_file *file = command_connection_open(ROLE_NETLINK, fd, true, &welcome);
  int error = file == NULL ? errno : ENOMEM;
  if (file != NULL) file->datagrams = raw_allocate(sizeof *file->datagrams);
  if (file == NULL || file->datagrams == NULL) {
    raw_close(fd);
    fd = -error;
  } else {
    fd = endpoint_publish(fd, &(struct endpoint_traits){.kind = ENDPOINT_NETLINK, .file = file});
  }
  if (file != NULL) device_file_put(file);
  if (fd < 0) return fd;
  if ((type & SOCK_NONBLOCK) != 0) raw_fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
  return fd;
}

/* Writes bytes to the program's memory. A check by system call does not pay for fewer than four. */
static bool give(void *target, const void *bytes, size_t length) {
  if (length >= sizeof(uint32_t) && !memory_takes(target, length)) return false;
  if (length > 0) memcpy(target, bytes, length);
  return true;
}

/* True if the message and its list of pieces can be read. */
static bool message_is_readable(const struct msghdr *message) {
  if (!memory_gives(message, sizeof *message)) return false;
  size_t count = message->msg_iovlen <= UIO_MAXIOV ? message->msg_iovlen : UIO_MAXIOV;
  return memory_gives(message->msg_iov, count * sizeof(struct iovec));
}

static int failed(int error) {
  errno = error;
  return -1;
}

int netlink_bind(struct endpoint *endpoint, const struct sockaddr *address, socklen_t length) {
  struct sockaddr_nl name = {.nl_family = AF_UNSPEC};
  if (length >= sizeof name) {
    if (!memory_gives(address, sizeof name)) return failed(EFAULT);
    memcpy(&name, address, sizeof name);
  }
  if (name.nl_family != AF_NETLINK) return failed(EINVAL);
  pthread_mutex_lock(&endpoint->file->command_lock);
  /* Port 0 lets the kernel choose; it takes the pid if it can. */
  endpoint->file->datagrams->port =
      name.nl_pid != 0 ? name.nl_pid : (uint32_t)atomic_load(&table_process);
  pthread_mutex_unlock(&endpoint->file->command_lock);
  return 0;
}

/* Writes the address, truncated to the room for it. */
static bool give_address(uint32_t port, void *target, socklen_t *length) {
  struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_pid = port};
  if (!give(target, &name, *length < sizeof name ? *length : sizeof name)) return false;
  *length = sizeof name;
  return true;
}

int netlink_getsockname(struct endpoint *endpoint, struct sockaddr *address, socklen_t *length) {
  pthread_mutex_lock(&endpoint->file->command_lock);
  uint32_t port = endpoint->file->datagrams->port;
  pthread_mutex_unlock(&endpoint->file->command_lock);
  bool given = memory_gives(length, sizeof *length) && give_address(port, address, length);
  return given ? 0 : failed(EFAULT);
}

/* Under the command lock: stores the answer for recvmsg. Returns 0 or a negative errno. */
static int keep_answer(struct datagrams *datagrams, const uint8_t *bytes, size_t length) {
  if (datagrams->start == datagrams->end) datagrams->start = datagrams->end = 0;
  if (length > WAITING_MAX - datagrams->end) return -ENOBUFS;
  /* Reject lengths that extend past the answer. */
  size_t at = 0;
  while (at < length) {
    uint32_t datagram;
    if (length - at < sizeof datagram) return -EIO;
    memcpy(&datagram, bytes + at, sizeof datagram);
    if (datagram > length - at - sizeof datagram) return -EIO;
    at += sizeof datagram + datagram;
  }
  memcpy(datagrams->bytes + datagrams->end, bytes, length);
  datagrams->end += length;
  return 0;
}

/* Sends a request and stores its answer. Returns 0 or a negative errno. */
static int ask(struct device_file *file, struct exchange *exchange) {
  exchange_run(file, exchange);
  int error = exchange->status < 0 ? exchange->status : 0;
  file->datagrams->more = exchange->status == NETLINK_MORE_FOLLOWS;
  if (error == 0) {
    error = keep_answer(file->datagrams, exchange->response, exchange->response_bytes);
  }
  exchange_end(file, exchange);
  return error;
}

/* Requests the rest after the program has received everything so far. Returns 0 or a negative
 * errno. */
static int ask_for_more(struct device_file *file) {
  pthread_mutex_lock(&file->command_lock);
  bool wanted = file->datagrams->more && file->datagrams->start == file->datagrams->end;
  pthread_mutex_unlock(&file->command_lock);
  if (!wanted) return 0;
  /* A request without a message. */
  struct exchange exchange;
  exchange_init(&exchange, OP_NETLINK, 0);
  return ask(file, &exchange);
}

ssize_t netlink_sendmsg(struct endpoint *endpoint, const struct msghdr *message) {
  int saved = errno;
  struct device_file *file = endpoint->file;
  struct exchange exchange;
  if (!message_is_readable(message)) return failed(EFAULT);
  if (message->msg_iovlen > EXCHANGE_PIECES_MAX) return failed(EMSGSIZE);
  exchange_init(&exchange, OP_NETLINK, 0);
  for (size_t index = 0; index < message->msg_iovlen; index++) {
    const struct iovec *piece = &message->msg_iov[index];
    if (piece->iov_len > REQUEST_PAYLOAD_MAX) return failed(EMSGSIZE);
    if (piece->iov_len > 0) exchange_add(&exchange, piece->iov_base, piece->iov_len);
  }
  int error = ask(file, &exchange);
  errno = error == 0 ? saved : -error;
  return error == 0 ? (ssize_t)exchange.payload_bytes : -1;
}

ssize_t netlink_send(struct endpoint *endpoint, const void *bytes, size_t length) {
  struct iovec vector = {.iov_base = (void *)bytes, .iov_len = length};
  return netlink_sendmsg(endpoint, &(struct msghdr){.msg_iov = &vector, .msg_iovlen = 1});
}

/* Copies bytes to the pieces of the message. Returns how many fit, or -1 if one cannot be
 * written. */
static ssize_t scatter(const struct msghdr *message, const uint8_t *bytes, size_t length) {
  size_t done = 0;
  for (size_t index = 0; index < message->msg_iovlen && done < length; index++) {
    const struct iovec *piece = &message->msg_iov[index];
    size_t part = piece->iov_len < length - done ? piece->iov_len : length - done;
    if (!give(piece->iov_base, bytes + done, part)) return -1;
    done += part;
  }
  return (ssize_t)done;
}

/* Under the command lock: takes the oldest datagram, or copies it if MSG_PEEK is set. Returns the
 * result for the program, or a negative errno. */
static ssize_t receive(struct datagrams *datagrams, struct msghdr *message, int flags) {
  /* The answer comes with the request: do not wait. */
  if (datagrams->start == datagrams->end) return -EAGAIN;
  uint32_t length;
  memcpy(&length, datagrams->bytes + datagrams->start, sizeof length);
  ssize_t copied = scatter(message, datagrams->bytes + datagrams->start + sizeof length, length);
  if (copied < 0) return -EFAULT;
  if (message->msg_name != NULL && !give_address(0, message->msg_name, &message->msg_namelen)) {
    return -EFAULT;
  }
  message->msg_flags = (size_t)copied < length ? MSG_TRUNC : 0;
  message->msg_controllen = 0;
  if ((flags & MSG_PEEK) == 0) datagrams->start += sizeof length + length;
  return (flags & MSG_TRUNC) != 0 ? (ssize_t)length : copied;
}

ssize_t netlink_recvmsg(struct endpoint *endpoint, struct msghdr *message, int flags) {
  struct device_file *file = endpoint->file;
  if (!message_is_readable(message)) return failed(EFAULT);
  if (message->msg_iovlen > UIO_MAXIOV) return failed(EMSGSIZE);
  int error = ask_for_more(file);
  if (error < 0) return failed(-error);
  pthread_mutex_lock(&file->command_lock);
  ssize_t result = receive(file->datagrams, message, flags);
  pthread_mutex_unlock(&file->command_lock);
  return result < 0 ? failed((int)-result) : result;
}

ssize_t netlink_receive(struct endpoint *endpoint, void *bytes, size_t length, int flags,
                        struct sockaddr *address, socklen_t *address_length) {
  struct iovec vector = {.iov_base = bytes, .iov_len = length};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (address != NULL && address_length != NULL) {
    message.msg_name = address;
    message.msg_namelen = *address_length;
  }
  ssize_t received = netlink_recvmsg(endpoint, &message, flags);
  if (received >= 0 && message.msg_name != NULL) *address_length = message.msg_namelen;
  return received;
}
