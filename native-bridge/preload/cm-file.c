/* See cm-file.h. */
#include "cm-file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/select.h>

#include "command-connection.h"
#include "command.h"
#include "event-file.h"
#include "exchange.h"
#include "hidden-descriptor.h"
#include "raw-call.h"

/* The longest option value that is passed on, in bytes. */
#define OPTION_VALUE_MAX 4096u

/* The lowest number of an rdma_cm file: above most programs' sockets, and low enough for
 * select(). */
#define VISIBLE_FLOOR 256

/* Gives the descriptor a high number, for librspreload before rdma-core 63: its rsockets use the
 * number of their rdma_cm file. If that is lower than the number that the program knows, as for
 * each accepted connection, select() reports the lower one and the program waits forever. */
static int raise_number(int fd) {
  int high = raw_fcntl(fd, F_DUPFD_CLOEXEC, descriptor_floor(VISIBLE_FLOOR));
  if (high < 0) return fd;
  bool usable = high < FD_SETSIZE;
  raw_close(usable ? fd : high);
  return usable ? high : fd;
}

/* Opens the descriptor that the program gets; it is readable while events wait. */
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

/* MIGRATE_ID names the id's old file by descriptor; the daemon knows it by number. */
static int translate_source(struct command *command) {
  int fd = command->request.migrate_id.fd;
  struct endpoint *source = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
  int error = 0;
  if (source == NULL) {
    error = raw_fcntl(fd, F_GETFD, 0) < 0 ? -ENOENT : -EINVAL;
  } else if (source->kind != ENDPOINT_CM) {
    error = -EINVAL;
  } else {
    command->source = fd;
    command->request.migrate_id.fd = (int32_t)source->file->number;
    command->changed = true;
  }
  if (source != NULL) endpoint_put(source);
  return error;
}

/* Completes a command with data that only this process has. */
static int prepare(struct command *command) {
  const union kernel_request *request = &command->request;
  uint32_t number = request->header.number;
  bool creates = number == CM_CREATE_ID;
  bool responds = creates ? COMMAND_HAS(command, create_id.response)
                          : COMMAND_HAS(command, cm.response);
  if (request->header.out > 0 && responds) {
    uint64_t response = creates ? request->create_id.response : request->cm.response;
    command->response = (uint8_t *)(uintptr_t)response;
    command->response_room = request->header.out;
  }
  if (number == CM_SET_OPTION && COMMAND_HAS(command, set_option)) {
    if (request->set_option.length > OPTION_VALUE_MAX) return -EINVAL;
    command->inlined.iov_base = (void *)(uintptr_t)request->set_option.value;
    command->inlined.iov_len = request->set_option.length;
  }
  if (number == CM_MIGRATE_ID && COMMAND_HAS(command, migrate_id)) return translate_source(command);
  return 0;
}

/* Tracks which ids are connected. */
static void follow(const struct command *command, const uint8_t *response, size_t length) {
  struct device_file *file = command->endpoint->file;
  uint32_t number = command->request.header.number;
  uint32_t id = command->request.cm.id;
  if (number == CM_GET_EVENT) connection_event(&file->connections, response, length);
  if (!COMMAND_HAS(command, migrate_id)) return;
  if (number == CM_DESTROY_ID) connection_forget(&file->connections, id);
  if (number != CM_MIGRATE_ID) return;
  struct endpoint *source = endpoint_get(command->source);
  if (source == NULL) return;
  if (source->kind == ENDPOINT_CM) {
    connection_move(&source->file->connections, &file->connections, id);
  }
  endpoint_put(source);
}

/* GET_EVENT after the daemon died. */
static int last_event(const struct command *command) {
  struct device_file *file = command->endpoint->file;
  if (atomic_load(&file->state) != CONNECTION_DEAD) return -EIO;
  int written =
      connection_last_event(&file->connections, command->response, command->response_room);
  if (written < 0) return written;
  return written > 0 ? 0 : -EIO;
}

/* Executes the command once. Returns 0 or a negative errno. */
static int run_once(int fd, struct command command) {
  struct endpoint *endpoint = endpoint_get(fd);
  int error = -EBADF;
  if (endpoint != NULL && endpoint->kind == ENDPOINT_CM) {
    command.fd = fd;
    command.endpoint = endpoint;
    command.completed = follow;
    error = prepare(&command);
    if (error == 0) error = command_run(&command);
    if (error == -EIO && command.request.header.number == CM_GET_EVENT) {
      error = last_event(&command);
    }
  }
  if (endpoint != NULL) endpoint_put(endpoint);
  return error;
}

ssize_t cm_write(int fd, const void *buffer, size_t length) {
  int saved = errno;
  struct command command;
  int error = command_parse(&command, buffer, length, REQUEST_PAYLOAD_MAX - OPTION_VALUE_MAX);
  if (error != 0) {
    errno = -error;
    return -1;
  }
  bool waits = command.request.header.number == CM_GET_EVENT;
  for (unsigned attempt = 0;; attempt++) {
    /* Wait here, not in the daemon, so other threads can use the file. Non-blocking programs need
     * no request. */
    if (waits && event_wait(fd) < 0) return -1;
    error = run_once(fd, command);
    if (error == 0) {
      errno = saved;
      return (ssize_t)length;
    }
    int flags = waits && error == -EAGAIN ? raw_fcntl(fd, F_GETFL, 0) : O_NONBLOCK;
    if (flags < 0 || (flags & O_NONBLOCK) != 0) {
      errno = -error;
      return -1;
    }
    event_back_off(attempt);
  }
}
