/* See cm-file.h. The offsets are those of `struct rdma_ucm_*` in rdma/rdma_user_cm.h; only fields
 * that point into this process or name its descriptors are used. */
#include "cm-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/select.h>

#include "command-connection.h"
#include "command.h"
#include "event-file.h"
#include "exchange.h"
#include "hidden-descriptor.h"
#include "raw-call.h"

#define COMMAND_CREATE_ID 0u
#define COMMAND_DESTROY_ID 1u
#define COMMAND_GET_EVENT 12u
#define COMMAND_SET_OPTION 14u
#define COMMAND_MIGRATE_ID 18u

#define HEADER_BYTES 8u
#define RESPONSE_OFFSET 8u
/* CREATE_ID has the program's own identifier first. */
#define CREATE_ID_RESPONSE_OFFSET 16u
#define OPTION_POINTER_OFFSET 8u
#define OPTION_LENGTH_OFFSET 28u
#define OPTION_BYTES 32u
/* The longest option value that is passed on, in bytes. */
#define OPTION_VALUE_MAX 4096u
#define ID_OFFSET 16u
#define MIGRATE_FD_OFFSET 20u
#define MIGRATE_BYTES 24u

/* Where the numbers of rdma_cm files start: above those of most programs' sockets, and within what
 * select() can take. */
#define VISIBLE_FLOOR 256

/* Gives the descriptor a high number, for librspreload before rdma-core 63. There an rsocket goes
 * by the number of its rdma_cm file. If that is lower than the number the program knows, as with
 * each accepted connection, select() reports the lower one and the program waits in vain. */
static int raise_number(int fd) {
  int high = raw_fcntl(fd, F_DUPFD_CLOEXEC, descriptor_floor(VISIBLE_FLOOR));
  if (high < 0) return fd;
  bool usable = high < FD_SETSIZE;
  raw_close(usable ? fd : high);
  return usable ? high : fd;
}

/* The descriptor that the program gets: readable while events wait. */
static int open_visible(struct device_file *file, dev_t device_number) {
  struct welcome welcome;
  int fd = exchange_connect(file, ROLE_EVENT, file->token, &welcome);
  if (fd < 0) return fd;
  fd = raise_number(fd);
  return endpoint_publish(fd, &(struct endpoint_traits){.kind = ENDPOINT_CM,
                                                        .file = file,
                                                        .queue_number = welcome.number,
                                                        .device_number = device_number});
}

int cm_open(dev_t device_number) {
  struct welcome welcome;
  int command_fd = daemon_connect(ROLE_CM, NULL, &welcome);
  if (command_fd < 0) return command_fd;
  struct device_file *file = command_connection_open(ROLE_CM, command_fd, false, &welcome);
  if (file == NULL) return -errno;
  int fd = open_visible(file, device_number);
  device_file_put(file);
  return fd;
}

/* MIGRATE_ID names the file that the id comes from by descriptor; the daemon knows it by number. */
static int translate_source(struct command *command) {
  int fd = (int)command_u32(command, MIGRATE_FD_OFFSET);
  struct endpoint *source = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
  int error = 0;
  if (source == NULL) error = raw_fcntl(fd, F_GETFD, 0) < 0 ? -ENOENT : -EINVAL;
  else if (source->kind != ENDPOINT_CM) error = -EINVAL;
  else command_replace(command, MIGRATE_FD_OFFSET, source->file->number);
  if (source != NULL) endpoint_put(source);
  return error;
}

/* Completes a command with data that only this process has. */
static int prepare(struct command *command) {
  uint32_t number = command_u32(command, 0);
  size_t room = command_u16(command, 6);
  size_t offset = number == COMMAND_CREATE_ID ? CREATE_ID_RESPONSE_OFFSET : RESPONSE_OFFSET;
  if (room > 0 && command->length >= offset + sizeof(uint64_t)) {
    command->response = (uint8_t *)(uintptr_t)command_u64(command, offset);
    command->response_room = room;
  }
  if (number == COMMAND_SET_OPTION && command->length >= OPTION_BYTES) {
    uint32_t length = command_u32(command, OPTION_LENGTH_OFFSET);
    if (length > OPTION_VALUE_MAX) return -EINVAL;
    command->inlined.iov_base = (void *)(uintptr_t)command_u64(command, OPTION_POINTER_OFFSET);
    command->inlined.iov_len = length;
  }
  if (number == COMMAND_MIGRATE_ID && command->length >= MIGRATE_BYTES) {
    return translate_source(command);
  }
  return 0;
}

/* Tracks which ids of which file are connected. */
static void follow(const struct command *command, const uint8_t *response, size_t length) {
  struct device_file *file = command->endpoint->file;
  uint32_t number = command_u32(command, 0);
  if (number == COMMAND_GET_EVENT) connection_event(&file->connections, response, length);
  if (command->length < MIGRATE_BYTES) return;
  uint32_t id = command_u32(command, ID_OFFSET);
  if (number == COMMAND_DESTROY_ID) connection_forget(&file->connections, id);
  if (number != COMMAND_MIGRATE_ID) return;
  struct endpoint *source = endpoint_get((int)command_u32(command, MIGRATE_FD_OFFSET));
  if (source == NULL) return;
  if (source->kind == ENDPOINT_CM) {
    connection_move(&source->file->connections, &file->connections, id);
  }
  endpoint_put(source);
}

/* GET_EVENT after the daemon's end. */
static int last_event(const struct command *command) {
  struct device_file *file = command->endpoint->file;
  if (atomic_load(&file->state) != CONNECTION_DEAD) return -EIO;
  int written =
      connection_last_event(&file->connections, command->response, command->response_room);
  if (written < 0) return written;
  return written > 0 ? 0 : -EIO;
}

/* Executes the command once. Returns 0 or a negative errno. */
static int run_once(int fd, const void *buffer, size_t length) {
  struct endpoint *endpoint = endpoint_get(fd);
  int error = -EBADF;
  if (endpoint != NULL && endpoint->kind == ENDPOINT_CM) {
    struct command command = {.fd = fd,
                              .endpoint = endpoint,
                              .bytes = buffer,
                              .length = length,
                              .event_kind = ENDPOINT_COMPLETION,
                              .completed = follow};
    error = prepare(&command);
    if (error == 0) error = command_run(&command);
    if (error == -EIO && command_u32(&command, 0) == COMMAND_GET_EVENT) {
      error = last_event(&command);
    }
  }
  if (endpoint != NULL) endpoint_put(endpoint);
  return error;
}

ssize_t cm_write(int fd, const void *buffer, size_t length) {
  int saved = errno;
  if (length < HEADER_BYTES || length > REQUEST_PAYLOAD_MAX - OPTION_VALUE_MAX) {
    errno = EINVAL;
    return -1;
  }
  if (!command_is_readable(buffer, length)) {
    errno = EFAULT;
    return -1;
  }
  uint32_t number;
  memcpy(&number, buffer, sizeof number);
  for (unsigned attempt = 0;; attempt++) {
    /* Never waits in the daemon, so other threads can use the file meanwhile; and programs that
     * poll without waiting are answered here. */
    if (number == COMMAND_GET_EVENT && event_wait(fd) < 0) return -1;
    int error = run_once(fd, buffer, length);
    if (error == 0) {
      errno = saved;
      return (ssize_t)length;
    }
    bool again = number == COMMAND_GET_EVENT && error == -EAGAIN;
    int flags = again ? raw_fcntl(fd, F_GETFL, 0) : O_NONBLOCK;
    if (flags < 0 || (flags & O_NONBLOCK) != 0) {
      errno = -error;
      return -1;
    }
    event_back_off(attempt);
  }
}
