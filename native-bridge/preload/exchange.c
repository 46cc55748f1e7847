/* See exchange.h. */
#include "exchange.h"

#include <errno.h>
#include <string.h>

#include "explain.h"
#include "hidden-descriptor.h"
#include "loss-watch.h"
#include "raw-call.h"
#include "registry.h"
#include "yama.h"

#define ERRNO_MAX 4095

void exchange_init(struct exchange *exchange, enum operation operation, uint64_t argument) {
  exchange->operation = operation;
  exchange->argument = argument;
  exchange->piece_count = 0;
  exchange->payload_bytes = 0;
}

void exchange_add(struct exchange *exchange, const void *bytes, size_t length) {
  struct iovec *piece = &exchange->pieces[1 + exchange->piece_count++];
  piece->iov_base = (void *)bytes;
  piece->iov_len = length;
  exchange->payload_bytes += length;
}

/* The daemon is gone, or its reply is invalid: the connection is no longer used. */
static void connection_lost(struct device_file *file) {
  file->state = CONNECTION_DEAD;
  int fd = atomic_load(&file->command_fd);
  if (fd >= 0) syscall(SYS_shutdown, fd, SHUT_RDWR);
}

static void fill_head(struct request_head *head, struct device_file *file,
                      const struct exchange *exchange, uint16_t flags) {
  *head = (struct request_head){
      .length_bytes = (uint32_t)(sizeof *head + exchange->payload_bytes),
      .operation = (uint16_t)exchange->operation,
      .flags = flags,
      .pid = (uint32_t)atomic_load(&table_process),
      .request_id = ++file->last_request,
      .argument = exchange->argument,
  };
}

/* Receives a part of the reply. Returns its bytes, or a negative errno. */
static ssize_t receive_some(int fd, struct exchange *exchange, void *target, size_t room) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  for (;;) {
    struct iovec vector = {.iov_base = target, .iov_len = room};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (exchange->operation == OP_RINGS || exchange->operation == OP_CONNECT ||
        exchange->operation == OP_COPIES) {
      message.msg_control = &control;
      message.msg_controllen = sizeof control;
    }
    ssize_t received = raw_recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (received == 0) return -ECONNRESET;
    if (received > 0) {
      struct cmsghdr *header = CMSG_FIRSTHDR(&message);
      if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
          header->cmsg_len == CMSG_LEN(sizeof(int))) {
        if (exchange->descriptor >= 0) raw_close(exchange->descriptor);
        memcpy(&exchange->descriptor, CMSG_DATA(header), sizeof(int));
      }
      /* The program has no number left for the descriptor. */
      if ((message.msg_flags & MSG_CTRUNC) != 0) exchange->descriptor = -EMFILE;
      return received;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return -errno;
    /* Either the daemon timed out, or the program made its descriptor non-blocking. */
    int ready = raw_poll(fd, POLLIN, DAEMON_TIMEOUT_S * 1000);
    if (ready == 0) return -ETIMEDOUT;
    if (ready < 0 && errno != EINTR) return -errno;
  }
}

/* Receives until `reply` has at least `wanted` bytes. */
static bool receive_until(int fd, struct exchange *exchange, uint8_t *reply, size_t *filled,
                          size_t wanted) {
  while (*filled < wanted) {
    ssize_t received = receive_some(fd, exchange, reply + *filled, REPLY_MAX - *filled);
    if (received < 0) return false;
    *filled += (size_t)received;
  }
  return true;
}

/* Receives one frame, after those that only say that it takes long. */
static bool receive_frame(int fd, struct exchange *exchange, uint8_t *reply,
                          struct reply_head *head) {
  size_t filled = 0;
  for (;;) {
    if (!receive_until(fd, exchange, reply, &filled, sizeof *head)) return false;
    memcpy(head, reply, sizeof *head);
    if ((head->flags & REPLY_LATER) == 0) break;
    if (head->length_bytes != sizeof *head) return false;
    filled -= sizeof *head;
    memmove(reply, reply + sizeof *head, filled);
  }
  size_t wanted = head->length_bytes;
  if (wanted < sizeof *head || wanted > REPLY_MAX) return false;
  return receive_until(fd, exchange, reply, &filled, wanted) && filled == wanted;
}

/* Receives one frame and checks every length in it. False if it is invalid, or none came. */
static bool receive_reply(struct device_file *file, struct exchange *exchange,
                          uint32_t request_id) {
  int fd = atomic_load(&file->command_fd);
  uint8_t *reply = file->reply;
  struct reply_head head;
  if (!receive_frame(fd, exchange, reply, &head)) return false;
  size_t wanted = head.length_bytes;
  if (head.request_id != request_id || head.status < -ERRNO_MAX) return false;
  size_t rest = wanted - sizeof head;
  if (head.response_bytes > rest || head.descriptor_count > REPLY_DESCRIPTORS_MAX) return false;
  rest -= head.response_bytes;
  size_t descriptor_bytes = head.descriptor_count * sizeof(struct reply_descriptor);
  if (descriptor_bytes > rest) return false;
  rest -= descriptor_bytes;
  exchange->response = reply + sizeof head;
  exchange->response_bytes = head.response_bytes;
  exchange->descriptors = exchange->response + head.response_bytes;
  exchange->descriptor_count = head.descriptor_count;
  if ((head.flags & REPLY_PURGED) != 0) {
    const uint8_t *list = exchange->descriptors + descriptor_bytes;
    if (rest < sizeof(uint32_t)) return false;
    memcpy(&exchange->purged_count, list, sizeof(uint32_t));
    rest -= sizeof(uint32_t);
    if (exchange->purged_count > REPLY_PURGED_MAX) return false;
    if (exchange->purged_count * sizeof(uint32_t) > rest) return false;
    exchange->purged = list + sizeof(uint32_t);
    rest -= exchange->purged_count * sizeof(uint32_t);
  }
  if ((head.flags & REPLY_REASONS) != 0) {
    const uint8_t *reasons = reply + wanted - rest;
    uint32_t reason_bytes;
    if (rest < sizeof reason_bytes) return false;
    memcpy(&reason_bytes, reasons, sizeof reason_bytes);
    if (reason_bytes > rest - sizeof reason_bytes) return false;
    explain_lines((const char *)reasons + sizeof reason_bytes, reason_bytes);
  }
  exchange->status = head.status;
  exchange->flags = head.flags;
  return true;
}

/* Under the command lock: sends one request on an open connection and receives the reply. */
static void transact(struct device_file *file, struct exchange *exchange) {
  struct request_head head;
  struct msghdr message = {.msg_iov = exchange->pieces,
                           .msg_iovlen = (size_t)exchange->piece_count + 1};
  exchange->pieces[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof head};
  pthread_mutex_lock(&file->send_lock);
  fill_head(&head, file, exchange, explain_is_on() ? REQUEST_EXPLAIN : 0);
  int error = send_all(atomic_load(&file->command_fd), &message);
  pthread_mutex_unlock(&file->send_lock);
  /* The program passed a bad address: the kernel rejects such a message as a whole. */
  bool whole = message.msg_iov == exchange->pieces && exchange->pieces[0].iov_len == sizeof head;
  if (error == -EFAULT && whole) {
    exchange->status = -EFAULT;
    return;
  }
  if (error == 0 && receive_reply(file, exchange, head.request_id)) return;
  connection_lost(file);
  exchange->purged_count = 0;
}

static void report_parent(struct device_file *file) {
  struct exchange exchange;
  uint32_t parent = (uint32_t)atomic_load(&table_parent);
  exchange_init(&exchange, OP_CHILD, 0);
  exchange_add(&exchange, &parent, sizeof parent);
  exchange.descriptor = -EIO;
  transact(file, &exchange);
}

/* In a child: true while the connection of the process that opened the file is up. */
static bool opener_is_connected(struct device_file *file) {
  hidden_lock();
  int fd = atomic_load(&file->inherited_fd);
  bool up = fd >= 0 && raw_poll(fd, 0, 0) == 0;
  hidden_unlock();
  return up;
}

/* Under the command lock, in a child: makes its own connection to the inherited file. */
static void attach(struct device_file *file) {
  struct welcome welcome;
  const uint8_t *token = file->role == ROLE_NETLINK ? NULL : file->token;
  file->state = CONNECTION_DEAD;
  int fd = daemon_rejoin(file->role, token, opener_is_connected(file), &welcome);
  if (fd < 0 || descriptor_hide(fd, false, file, &file->command_fd) < 0) return;
  file->state = CONNECTION_OPEN;
  yama_permit(welcome.daemon);
  if (token != NULL) report_parent(file);
  if (file->queues != NULL) loss_watch_start(file);
}

void exchange_attach_inherited(void) {
  if (atomic_load(&table_process) == 0 || process_is_foreign()) return;
  int saved = errno;
  for (struct device_file *file; (file = device_file_detached()) != NULL;) {
    int cancel_state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&file->command_lock);
    if (file->state == CONNECTION_DETACHED) attach(file);
    pthread_mutex_unlock(&file->command_lock);
    pthread_setcancelstate(cancel_state, NULL);
    device_file_put(file);
  }
  errno = saved;
}

void exchange_run(struct device_file *file, struct exchange *exchange) {
  exchange->status = -EIO;
  exchange->flags = 0;
  exchange->response_bytes = 0;
  exchange->descriptor_count = 0;
  exchange->purged_count = 0;
  exchange->descriptor = -EIO;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &exchange->cancel_state);
  pthread_mutex_lock(&file->command_lock);
  if (exchange->payload_bytes > REQUEST_PAYLOAD_MAX) {
    exchange->status = -EINVAL;
    return;
  }
  if (file->state == CONNECTION_DETACHED) attach(file);
  if (file->state != CONNECTION_OPEN || atomic_load(&file->command_fd) < 0) return;
  transact(file, exchange);
}

void exchange_end(struct device_file *file, struct exchange *exchange) {
  pthread_mutex_unlock(&file->command_lock);
  pthread_setcancelstate(exchange->cancel_state, NULL);
}

int exchange_descriptor(struct device_file *file, enum operation operation) {
  struct exchange exchange;
  exchange_init(&exchange, operation, 0);
  exchange_run(file, &exchange);
  int status = exchange.status;
  int fd = exchange.descriptor;
  exchange_end(file, &exchange);
  if (status >= 0) return fd;
  if (fd >= 0) raw_close(fd);
  return status;
}

int exchange_connect(struct device_file *file, enum role role, const uint8_t *token,
                     struct welcome *welcome) {
  memset(welcome, 0, sizeof *welcome);
  welcome->daemon = file->daemon;
  int fd = exchange_descriptor(file, OP_CONNECT);
  if (fd >= 0) fd = daemon_greet(fd, role, token, welcome);
  return daemon_is_absent(fd) ? -EIO : fd;
}

bool exchange_send_one_way(struct device_file *file, enum operation operation, uint64_t argument) {
  struct exchange exchange;
  struct request_head head;
  int cancel_state;
  exchange_init(&exchange, operation, argument);
  struct iovec vector = {.iov_base = &head, .iov_len = sizeof head};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  pthread_mutex_lock(&file->send_lock);
  bool sent = false;
  int fd = atomic_load(&file->command_fd);
  if (file->state == CONNECTION_OPEN && fd >= 0) {
    fill_head(&head, file, &exchange, REQUEST_ONE_WAY);
    sent = send_all(fd, &message) == 0;
    if (!sent) connection_lost(file);
  }
  pthread_mutex_unlock(&file->send_lock);
  pthread_setcancelstate(cancel_state, NULL);
  return sent;
}
