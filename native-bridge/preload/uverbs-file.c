/* See uverbs-file.h. The offsets are those of `struct ib_uverbs_*` in rdma/ib_user_verbs.h and of
 * rdma/siw-abi.h; only what names descriptors or mappings of this process is looked at. */
#include "uverbs-file.h"

#include <errno.h>
#include <string.h>

#include "command.h"
#include "exchange.h"
#include "fork.h"
#include "raw-call.h"

#define EXTENDED_COMMAND 0x80000000u
#define COMMAND_GET_CONTEXT 0u
#define COMMAND_CREATE_CQ 18u
#define COMMAND_CREATE_QP 24u
#define COMMAND_DESTROY_QP 27u
#define COMMAND_POST_SEND 28u

#define HEADER_BYTES 8u
#define RESPONSE_OFFSET 8u
#define EXTENDED_HEADER_BYTES 24u
#define CQ_CHANNEL_OFFSET 32u
#define QP_HANDLE_OFFSET 16u
#define POST_SEND_WR_COUNT_OFFSET 20u
#define POST_SEND_BYTES 32u
#define POST_SEND_RESPONSE_BYTES 4u
#define CREATED_QP_HANDLE_OFFSET 0u
#define CREATED_QP_SQ_KEY_OFFSET 48u

int uverbs_open(unsigned index, dev_t device_number) {
  struct welcome welcome;
  uint8_t token[TOKEN_BYTES] = {0};
  uint32_t device = index + 1;
  memcpy(token, &device, sizeof device);
  int fd = daemon_connect(ROLE_UVERBS, token, &welcome);
  if (fd < 0) return fd;
  struct device_file *file = device_file_create(ROLE_UVERBS, fd, true, &welcome);
  int error = errno;
  if (file != NULL) {
    struct endpoint *endpoint = endpoint_create(ENDPOINT_UVERBS, fd, file);
    error = ENOMEM;
    bool installed = false;
    if (endpoint != NULL) {
      endpoint->device_number = device_number;
      installed = descriptor_install(fd, endpoint);
      if (!installed) error = errno;
      endpoint_put(endpoint);
    }
    device_file_put(file);
    if (installed) {
      fork_grant_daemon(welcome.daemon);
      return fd;
    }
  }
  raw_close(fd);
  return -error;
}

/* Where the response goes. Commands without a response have no room for one, and there the octets
 * at the pointer's place mean something else. */
static void locate_response(struct command *command) {
  if (command->length < RESPONSE_OFFSET + sizeof(uint64_t)) return;
  size_t room = (size_t)command_u16(command, 6) * 4;
  if ((command_u32(command, 0) & EXTENDED_COMMAND) != 0) {
    if (command->length < EXTENDED_HEADER_BYTES) return;
    room = ((size_t)command_u16(command, 6) + command_u16(command, 18)) * 8;
  }
  command->response = (uint8_t *)(uintptr_t)command_u64(command, RESPONSE_OFFSET);
  command->response_room = room;
}

/* CREATE_CQ names its completion channel by descriptor; the daemon knows it by number. */
static int translate_channel(struct command *command) {
  int fd = (int)command_u32(command, CQ_CHANNEL_OFFSET);
  if (fd < 0) return 0;
  struct endpoint *channel = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
  bool known = channel != NULL && channel->kind == ENDPOINT_COMPLETION &&
               channel->file == command->endpoint->file;
  if (known) command_replace(command, CQ_CHANNEL_OFFSET, channel->queue_number);
  if (channel != NULL) endpoint_put(channel);
  return known ? 0 : -EBADF;
}

static void queue_pair_created(const struct command *command, const uint8_t *response,
                               size_t length) {
  uint32_t handle;
  uint64_t key;
  if (length < CREATED_QP_SQ_KEY_OFFSET + sizeof key) return;
  memcpy(&handle, response + CREATED_QP_HANDLE_OFFSET, sizeof handle);
  memcpy(&key, response + CREATED_QP_SQ_KEY_OFFSET, sizeof key);
  doorbell_expect(&command->endpoint->file->doorbells, handle, key);
}

static void queue_pair_destroyed(const struct command *command, const uint8_t *response,
                                 size_t length) {
  (void)response;
  (void)length;
  if (command->length < QP_HANDLE_OFFSET + sizeof(uint32_t)) return;
  doorbell_forget(&command->endpoint->file->doorbells, command_u32(command, QP_HANDLE_OFFSET));
}

/* The doorbell of a connected queue pair. False: to be sent as any other command. */
static bool ring(struct command *command) {
  if (command->length != POST_SEND_BYTES) return false;
  if (command_u32(command, POST_SEND_WR_COUNT_OFFSET) != 0) return false;
  if (command->response_room < POST_SEND_RESPONSE_BYTES) return false;
  uint32_t handle = command_u32(command, QP_HANDLE_OFFSET);
  struct device_file *file = command->endpoint->file;
  if (!doorbell_is_connected(&file->doorbells, handle)) return false;
  if (!memory_takes(command->response, POST_SEND_RESPONSE_BYTES)) return false;
  if (!exchange_send_one_way(file, OP_DOORBELL, handle)) return false;
  memset(command->response, 0, POST_SEND_RESPONSE_BYTES);
  return true;
}

ssize_t uverbs_write(int fd, struct endpoint *endpoint, const void *buffer, size_t length) {
  int saved = errno;
  struct command command = {.fd = fd,
                            .endpoint = endpoint,
                            .octets = buffer,
                            .length = length,
                            .event_kind = ENDPOINT_COMPLETION};
  int error = 0;
  if (length < HEADER_BYTES || length > REQUEST_PAYLOAD_MAX) {
    error = -EINVAL;
  } else {
    locate_response(&command);
    switch (command_u32(&command, 0)) {
      case COMMAND_GET_CONTEXT:
        command.event_kind = ENDPOINT_ASYNC;
        break;
      case COMMAND_CREATE_CQ:
        if (length >= CQ_CHANNEL_OFFSET + sizeof(uint32_t)) error = translate_channel(&command);
        break;
      case COMMAND_CREATE_QP:
        command.completed = queue_pair_created;
        break;
      case COMMAND_DESTROY_QP:
        command.completed = queue_pair_destroyed;
        break;
      case COMMAND_POST_SEND:
        if (ring(&command)) return (ssize_t)length;
        break;
      default:
        break;
    }
  }
  if (error == 0) error = command_run(&command);
  errno = error == 0 ? saved : -error;
  return error == 0 ? (ssize_t)length : -1;
}

void *uverbs_mmap(struct endpoint *endpoint, void *address, size_t length, int protection,
                  int flags, off_t offset) {
  int saved = errno;
  struct device_file *file = endpoint->file;
  struct exchange exchange;
  uint64_t wanted = length;
  exchange_init(&exchange, OP_MMAP, (uint64_t)offset);
  exchange_add(&exchange, &wanted, sizeof wanted);
  exchange_run(file, &exchange);
  int error = exchange.status < 0 ? -exchange.status : 0;
  if (error == 0 && exchange.descriptor < 0) error = EIO;
  void *mapping = MAP_FAILED;
  if (error == 0) {
    struct stat status;
    /* Touching what the file lacks would be a SIGBUS. */
    bool covered = raw_fstat(exchange.descriptor, &status) == 0 && status.st_size >= 0 &&
                   (uint64_t)status.st_size >= length;
    if (covered) mapping = raw_mmap(address, length, protection, flags, exchange.descriptor, 0);
    error = covered ? errno : EIO;
    if (mapping != MAP_FAILED) {
      doorbell_mapped(&file->doorbells, (uint64_t)offset, exchange.descriptor, length);
    }
  }
  if (exchange.descriptor >= 0) raw_close(exchange.descriptor);
  exchange_end(file, &exchange);
  errno = mapping == MAP_FAILED ? error : saved;
  return mapping;
}
