/* See uverbs-file.h. The offsets are those of `struct ib_uverbs_*` in rdma/ib_user_verbs.h and of
 * of the providers' private parts, rdma/siw-abi.h and rdma/rdma_user_rxe.h; only fields that name descriptors or mappings of this process are used. */
#include "uverbs-file.h"

#include <errno.h>
#include <string.h>

#include "command-connection.h"
#include "command.h"
#include "exchange.h"
#include "loss-watch.h"
#include "private-rings.h"
#include "queue-flush.h"
#include "raw-call.h"
#include "registered-memory.h"
#include "valgrind-request.h"
#include "yama.h"

#define EXTENDED_COMMAND 0x80000000u
#define COMMAND_GET_CONTEXT 0u
#define COMMAND_REG_MR 9u
#define COMMAND_DEREG_MR 13u
#define COMMAND_CREATE_CQ 18u
#define COMMAND_RESIZE_CQ 19u
#define COMMAND_DESTROY_CQ 20u
#define COMMAND_REQ_NOTIFY_CQ 23u
#define COMMAND_CREATE_QP 24u
#define COMMAND_DESTROY_QP 27u
#define COMMAND_POST_SEND 28u
#define COMMAND_MODIFY_SRQ 33u
#define COMMAND_EX_CREATE_QP (EXTENDED_COMMAND | 24u)

#define HEADER_BYTES 8u
#define RESPONSE_OFFSET 8u
#define EXTENDED_HEADER_BYTES 24u
#define REG_MR_START_OFFSET 16u
#define REG_MR_LENGTH_OFFSET 24u
#define REG_MR_ACCESS_OFFSET 44u
#define REG_MR_BYTES 48u
#define DEREG_MR_HANDLE_OFFSET 8u
/* Rights by which the device writes: IB_ACCESS_LOCAL_WRITE, _REMOTE_WRITE, _REMOTE_ATOMIC, _MW_BIND. */
#define ACCESS_WRITES 0x1bu
#define CQ_CHANNEL_OFFSET 32u
#define NOTIFY_HANDLE_OFFSET 8u
#define NOTIFY_SOLICITED_OFFSET 12u
#define NOTIFY_BYTES 16u
#define QP_HANDLE_OFFSET 16u
#define POST_SEND_WR_COUNT_OFFSET 20u
#define POST_SEND_BYTES 32u
#define POST_SEND_RESPONSE_BYTES 4u
#define CREATE_QP_SEND_CQ_OFFSET 28u
#define CREATE_QP_RECEIVE_CQ_OFFSET 32u
#define CREATE_QP_BYTES 64u
#define EX_CREATE_QP_SEND_CQ_OFFSET 36u
#define RESIZE_CQ_HANDLE_OFFSET 16u
/* Where rxe's provider gets the places of rings: of a completion queue; of a receive queue, with the
 * send queue's behind it. */
#define RXE_CQ_PLACE_OFFSET 8u
#define RXE_QP_PLACES_OFFSET 32u
#define RXE_EX_QP_PLACES_OFFSET 40u
/* MODIFY_SRQ of rxe's provider: a pointer to where a resized queue's mapping is stored. */
#define RXE_MODIFY_SRQ_BYTES 32u
#define RXE_MODIFY_SRQ_POINTER_OFFSET 24u
#define RXE_MAPPING_BYTES 16u
/* The response of GET_CONTEXT: siw's provider has a part of its own, rxe's has none. */
#define GET_CONTEXT_BYTES 8u

/* The responses, with what siw's provider asks for behind them. */
struct created_cq {
  uint32_t handle;
  uint32_t cqe;
  uint32_t id;
  uint32_t count;
  uint64_t key;
};
_Static_assert(sizeof(struct created_cq) == 24, "response of CREATE_CQ");

struct created_qp {
  uint32_t handle;
  uint32_t number;
  uint32_t limits[6];
  uint32_t id;
  uint32_t send_count;
  uint32_t receive_count;
  uint32_t pad;
  uint64_t send_key;
  uint64_t receive_key;
};
_Static_assert(sizeof(struct created_qp) == 64, "response of CREATE_QP");

int uverbs_open(unsigned index, dev_t device_number) {
  struct welcome welcome;
  uint8_t token[TOKEN_BYTES] = {0};
  uint32_t device = index + 1;
  memcpy(token, &device, sizeof device);
  int connection = daemon_connect(ROLE_UVERBS, token, &welcome);
  if (connection < 0) return connection;
  struct device_file *file = command_connection_open(ROLE_UVERBS, connection, false, &welcome);
  if (file == NULL) return -errno;
  private_rings_prepare(file);
  int fd = exchange_descriptor(file, OP_RINGS);
  if (fd >= 0) {
    fd = endpoint_publish(fd, &(struct endpoint_traits){.kind = ENDPOINT_UVERBS,
                                                        .file = file,
                                                        .device_number = device_number});
  }
  device_file_put(file);
  if (fd >= 0) yama_permit(welcome.daemon);
  return fd;
}

/* Locates the response. Commands without a response have no field for its address, and the bytes
 * there mean something else. */
static void locate_response(struct command *command) {
  if (command->length < RESPONSE_OFFSET + sizeof(uint64_t)) return;
  size_t room = (size_t)command_u16(command, 6) * 4;
  if ((command_u32(command, 0) & EXTENDED_COMMAND) != 0) {
    if (command->length < EXTENDED_HEADER_BYTES) return;
    room = ((size_t)command_u16(command, 6) + command_u16(command, 18)) * 8;
  }
  if (command_u32(command, 0) == COMMAND_MODIFY_SRQ) {
    if (command->length < RXE_MODIFY_SRQ_BYTES) return;
    uint64_t pointer = command_u64(command, RXE_MODIFY_SRQ_POINTER_OFFSET);
    command->response = (uint8_t *)(uintptr_t)pointer;
    command->response_room = RXE_MAPPING_BYTES;
    return;
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

static void context_opened(const struct command *command, const uint8_t *response, size_t length) {
  (void)response;
  command->endpoint->file->index_rings = length <= GET_CONTEXT_BYTES;
}

/* Where a ring lies in the file of rings: struct mminfo of rxe's provider. */
struct ring_place {
  uint64_t offset;
  uint32_t bytes;
  uint32_t pad;
};

/* The place at `at` of a response; an empty one if the response is shorter. */
static struct ring_place place_in(const uint8_t *response, size_t length, size_t at) {
  struct ring_place place = {0};
  if (length >= at + sizeof place) memcpy(&place, response + at, sizeof place);
  return place;
}

static void completion_queue_created(const struct command *command, const uint8_t *response,
                                     size_t length) {
  struct device_file *file = command->endpoint->file;
  struct created_cq created;
  if (length < sizeof created) return;
  memcpy(&created, response, sizeof created);
  struct mapped_queue queue = {.kind = QUEUE_COMPLETION,
                               .indexed = file->index_rings,
                               .handle = created.handle,
                               .key = created.key,
                               .count = created.count};
  queue.memory_bytes = queue_memory_bytes(QUEUE_COMPLETION, created.count);
  if (file->index_rings) {
    struct ring_place place = place_in(response, length, RXE_CQ_PLACE_OFFSET);
    queue.key = place.offset;
    queue.memory_bytes = place.bytes;
  }
  queue_add(&file->queues, &queue, command->fd);
}

static void completion_queue_resized(const struct command *command, const uint8_t *response,
                                     size_t length) {
  if (command->length < RESIZE_CQ_HANDLE_OFFSET + sizeof(uint32_t)) return;
  struct ring_place place = place_in(response, length, RXE_CQ_PLACE_OFFSET);
  queue_move(command->endpoint->file->queues, command_u32(command, RESIZE_CQ_HANDLE_OFFSET),
             place.offset, place.bytes, command->fd);
}

static void pair_added(const struct command *command, const struct mapped_queue *sends,
                       const struct mapped_queue *receives) {
  struct device_file *file = command->endpoint->file;
  doorbell_created(&file->doorbells, sends->handle, command->fd, sends->key + sends->memory_bytes);
  /* What is added last is flushed first. */
  queue_add(&file->queues, receives, command->fd);
  queue_add(&file->queues, sends, command->fd);
  loss_watch_start(file);
}

/* A queue pair of rxe's provider, whose rings have indices. */
static void indexed_pair_created(const struct command *command, const uint8_t *response,
                                 size_t length) {
  bool extended = command_u32(command, 0) == COMMAND_EX_CREATE_QP;
  size_t places = extended ? RXE_EX_QP_PLACES_OFFSET : RXE_QP_PLACES_OFFSET;
  size_t completions = extended ? EX_CREATE_QP_SEND_CQ_OFFSET : CREATE_QP_SEND_CQ_OFFSET;
  if (length < places + 2 * sizeof(struct ring_place) || command->length < CREATE_QP_BYTES) return;
  struct ring_place place = place_in(response, length, places + sizeof(struct ring_place));
  struct mapped_queue sends = {.kind = QUEUE_SEND,
                               .indexed = true,
                               .key = place.offset,
                               .memory_bytes = place.bytes,
                               .completion_handle = command_u32(command, completions)};
  memcpy(&sends.handle, response, sizeof sends.handle);
  memcpy(&sends.qpn, response + sizeof sends.handle, sizeof sends.qpn);
  struct mapped_queue receives = sends;
  place = place_in(response, length, places);
  receives.kind = QUEUE_RECEIVE;
  receives.key = place.offset;
  /* None with a shared receive queue. */
  receives.memory_bytes = place.bytes;
  receives.completion_handle = command_u32(command, completions + sizeof(uint32_t));
  pair_added(command, &sends, &receives);
}

static void queue_pair_created(const struct command *command, const uint8_t *response,
                               size_t length) {
  struct device_file *file = command->endpoint->file;
  struct created_qp created;
  if (file->index_rings) {
    indexed_pair_created(command, response, length);
    return;
  }
  if (length < sizeof created || command->length < CREATE_QP_BYTES) return;
  memcpy(&created, response, sizeof created);
  struct mapped_queue sends = {.kind = QUEUE_SEND,
                               .handle = created.handle,
                               .key = created.send_key,
                               .memory_bytes = queue_memory_bytes(QUEUE_SEND, created.send_count),
                               .count = created.send_count,
                               .qpn = created.number,
                               .completion_handle = command_u32(command, CREATE_QP_SEND_CQ_OFFSET)};
  struct mapped_queue receives = sends;
  receives.kind = QUEUE_RECEIVE;
  receives.key = created.receive_key;
  receives.count = created.receive_count;
  receives.memory_bytes = queue_memory_bytes(QUEUE_RECEIVE, created.receive_count);
  receives.completion_handle = command_u32(command, CREATE_QP_RECEIVE_CQ_OFFSET);
  pair_added(command, &sends, &receives);
}

static void queue_destroyed(const struct command *command, const uint8_t *response, size_t length) {
  (void)response;
  (void)length;
  struct device_file *file = command->endpoint->file;
  if (command->length < QP_HANDLE_OFFSET + sizeof(uint32_t)) return;
  uint32_t handle = command_u32(command, QP_HANDLE_OFFSET);
  if (command_u32(command, 0) == COMMAND_DESTROY_QP) doorbell_forget(&file->doorbells, handle);
  queue_forget(&file->queues, handle);
}

/* The memory named by REG_MR. False if it cannot be valid. */
static bool named_range(const struct command *command, struct registered_range *range) {
  if (command->length < REG_MR_BYTES) return false;
  range->start = command_u64(command, REG_MR_START_OFFSET);
  uint64_t length = command_u64(command, REG_MR_LENGTH_OFFSET);
  range->end = range->start + length;
  range->writable = (command_u32(command, REG_MR_ACCESS_OFFSET) & ACCESS_WRITES) != 0;
  return range->end > range->start;
}

static void memory_registered(const struct command *command, const uint8_t *response,
                              size_t length) {
  struct registered_range range;
  uint32_t handle;
  if (length < sizeof handle || !named_range(command, &range)) return;
  memcpy(&handle, response, sizeof handle);
  registration_add(&command->endpoint->file->registrations, handle, &range);
  /* The daemon writes to it, which valgrind cannot see. */
  valgrind_make_defined(range.start, range.end - range.start);
}

static void memory_deregistered(const struct command *command, const uint8_t *response,
                                size_t length) {
  (void)response;
  (void)length;
  if (command->length < DEREG_MR_HANDLE_OFFSET + sizeof(uint32_t)) return;
  uint32_t handle = command_u32(command, DEREG_MR_HANDLE_OFFSET);
  registration_remove(&command->endpoint->file->registrations, handle);
}

/* REG_MR: the device may use the memory from here on, unless the daemon rejects it. */
static int run_registration(struct command *command) {
  struct starting_registration starting;
  int cancel_state;
  command->completed = memory_registered;
  if (!named_range(command, &starting.range)) return command_run(command);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  registration_begin(&starting);
  int error = command_run(command);
  registration_end(&starting);
  pthread_setcancelstate(cancel_state, NULL);
  return error;
}

/* The doorbell of a connected queue pair. False: send it like any other command. */
static bool ring(struct command *command) {
  if (command->length != POST_SEND_BYTES) return false;
  if (command_u32(command, POST_SEND_WR_COUNT_OFFSET) != 0) return false;
  if (command->response_room < POST_SEND_RESPONSE_BYTES) return false;
  uint32_t handle = command_u32(command, QP_HANDLE_OFFSET);
  struct device_file *file = command->endpoint->file;
  if (!memory_takes(command->response, POST_SEND_RESPONSE_BYTES)) return false;
  /* The word outlives the daemon, whose end a thread watches; a child rings on its own connection. */
  if (atomic_load(&file->watch_fd) < 0) return false;
  if (atomic_load(&file->state) != CONNECTION_OPEN) return false;
  enum doorbell_kind kind = doorbell_begin(&file->doorbells, handle);
  if (kind == DOORBELL_COMMAND) return false;
  /* Read once more: the end may have come in between, and the queue been flushed before. */
  if (kind == DOORBELL_NONE && atomic_load(&file->state) != CONNECTION_OPEN) return false;
  if (kind == DOORBELL_ONE_WAY && !exchange_send_one_way(file, OP_DOORBELL, handle)) return false;
  memset(command->response, 0, POST_SEND_RESPONSE_BYTES);
  return true;
}

/* Arms a completion queue whose ring has indices without waiting for the daemon, which gets the number
 * of completions that the program can have seen: it fires at once if there are more. False: send it
 * like any other command. */
static bool arm(struct command *command) {
  struct device_file *file = command->endpoint->file;
  if (!file->index_rings || command->length != NOTIFY_BYTES) return false;
  uint32_t handle = command_u32(command, NOTIFY_HANDLE_OFFSET);
  uint64_t solicited = command_u32(command, NOTIFY_SOLICITED_OFFSET) != 0;
  uint32_t seen;
  /* No resize of the queue comes between the look at its ring and the request. */
  pthread_mutex_lock(&file->command_lock);
  bool sent = handle < ARM_HANDLES && queue_shown(file->queues, handle, &seen) &&
              exchange_send_one_way(file, OP_ARM,
                                    handle | solicited << ARM_SOLICITED_BIT |
                                        (uint64_t)seen << ARM_SEEN_SHIFT);
  pthread_mutex_unlock(&file->command_lock);
  return sent;
}

ssize_t uverbs_write(int fd, struct endpoint *endpoint, const void *buffer, size_t length) {
  int saved = errno;
  struct command command = {.fd = fd,
                            .endpoint = endpoint,
                            .bytes = buffer,
                            .length = length,
                            .event_kind = ENDPOINT_COMPLETION};
  int error = 0;
  if (length < HEADER_BYTES || length > REQUEST_PAYLOAD_MAX) {
    error = -EINVAL;
  } else if (!command_is_readable(buffer, length)) {
    error = -EFAULT;
  } else {
    locate_response(&command);
    switch (command_u32(&command, 0)) {
      case COMMAND_GET_CONTEXT:
        command.event_kind = ENDPOINT_ASYNC;
        command.completed = context_opened;
        break;
      case COMMAND_CREATE_CQ:
        if (length >= CQ_CHANNEL_OFFSET + sizeof(uint32_t)) error = translate_channel(&command);
        command.completed = completion_queue_created;
        break;
      case COMMAND_RESIZE_CQ:
        command.completed = completion_queue_resized;
        break;
      case COMMAND_CREATE_QP:
        command.completed = queue_pair_created;
        break;
      case COMMAND_EX_CREATE_QP:
        command.completed = indexed_pair_created;
        break;
      case COMMAND_DEREG_MR:
        command.completed = memory_deregistered;
        break;
      case COMMAND_DESTROY_CQ:
      case COMMAND_DESTROY_QP:
        command.completed = queue_destroyed;
        break;
      case COMMAND_POST_SEND:
        /* It would send the parent's bytes. The kernel refuses it, too: the provider write(2)s this
         * command itself, while libibverbs sends the others by ioctl. */
        if (endpoint->file->inherited) error = -EACCES;
        else if (ring(&command)) return (ssize_t)length;
        break;
      case COMMAND_REQ_NOTIFY_CQ:
        if (arm(&command)) return (ssize_t)length;
        break;
      default:
        break;
    }
  }
  if (error == 0) {
    bool registers = command_u32(&command, 0) == COMMAND_REG_MR;
    error = registers ? run_registration(&command) : command_run(&command);
  }
  errno = error == 0 ? saved : -error;
  return error == 0 ? (ssize_t)length : -1;
}
