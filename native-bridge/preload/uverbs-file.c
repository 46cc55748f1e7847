/* See uverbs-file.h. */
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

/* Locates the response. Commands without a response have other fields at the place of its
 * address. */
static void locate_response(struct command *command) {
  const union kernel_request *request = &command->request;
  uint32_t number = request->header.number;
  uint64_t response = request->plain.response;
  size_t room = (size_t)request->header.out * 4;
  if (!COMMAND_HAS(command, plain)) return;
  if ((number & UVERBS_EXTENDED) != 0) {
    if (!COMMAND_HAS(command, extended)) return;
    room = ((size_t)request->header.out + request->extended.provider_out) * 8;
  }
  if (number == UVERBS_MODIFY_SRQ) {
    if (!COMMAND_HAS(command, modify_srq)) return;
    response = request->modify_srq.place;
    room = sizeof(struct rxe_place);
  }
  command->response = (uint8_t *)(uintptr_t)response;
  command->response_room = room;
}

static int get_context(struct command *command) {
  command->event_kind = ENDPOINT_ASYNC;
  return command_run(command);
}

static void context_opened(const struct command *command, const uint8_t *response, size_t length) {
  (void)response;
  command->endpoint->file->index_rings = length <= GET_CONTEXT_BYTES;
}

/* CREATE_CQ names its completion channel by descriptor; the daemon knows it by number. */
static int create_completion_queue(struct command *command) {
  int fd = command->request.create_cq.comp_channel;
  if (!COMMAND_HAS(command, create_cq.comp_channel) || fd < 0) return command_run(command);
  struct endpoint *channel = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
  command->changed = channel != NULL && channel->kind == ENDPOINT_COMPLETION &&
                     channel->file == command->endpoint->file;
  if (command->changed) command->request.create_cq.comp_channel = (int32_t)channel->queue_number;
  if (channel != NULL) endpoint_put(channel);
  return command->changed ? command_run(command) : -EBADF;
}

static void completion_queue_created(const struct command *command, const uint8_t *response,
                                     size_t length) {
  struct device_file *file = command->endpoint->file;
  struct mapped_queue queue = {.kind = QUEUE_COMPLETION, .indexed = file->index_rings};
  if (file->index_rings) {
    struct rxe_created_cq created;
    if (length < sizeof created) return;
    memcpy(&created, response, sizeof created);
    queue.handle = created.handle;
    queue.key = created.place.offset;
    queue.memory_bytes = created.place.bytes;
  } else {
    struct siw_created_cq created;
    if (length < sizeof created) return;
    memcpy(&created, response, sizeof created);
    queue.handle = created.handle;
    queue.key = created.key;
    queue.memory_bytes = queue_memory_bytes(QUEUE_COMPLETION, created.count);
    queue.count = created.count;
  }
  queue_add(&file->queues, &queue, command->fd);
}

static void completion_queue_resized(const struct command *command, const uint8_t *response,
                                     size_t length) {
  struct rxe_created_cq resized = {0};
  if (!COMMAND_HAS(command, resize_cq.handle)) return;
  if (length >= sizeof resized) memcpy(&resized, response, sizeof resized);
  queue_move(command->endpoint->file->queues, command->request.resize_cq.handle,
             resized.place.offset, resized.place.bytes, command->fd);
}

static void pair_added(const struct command *command, const struct mapped_queue *sends,
                       const struct mapped_queue *receives) {
  struct device_file *file = command->endpoint->file;
  doorbell_created(&file->doorbells, sends->handle, command->fd, sends->key + sends->memory_bytes);
  /* The queue that is added last is flushed first. */
  queue_add(&file->queues, receives, command->fd);
  queue_add(&file->queues, sends, command->fd);
  loss_watch_start(file);
}

/* A queue pair of rxe's provider, whose rings have indices. */
static void indexed_pair_created(const struct command *command, const uint8_t *response,
                                 size_t length) {
  const union kernel_request *request = &command->request;
  bool extended = request->header.number == UVERBS_EX_CREATE_QP;
  size_t at = extended ? offsetof(struct rxe_ex_created_qp, places)
                       : offsetof(struct rxe_created_qp, places);
  struct rxe_created_qp created;
  if (length < at + sizeof created.places || !COMMAND_HAS(command, create_qp)) return;
  memcpy(&created, response, sizeof created);
  memcpy(&created.places, response + at, sizeof created.places);
  struct mapped_queue sends = {
      .kind = QUEUE_SEND,
      .indexed = true,
      .handle = created.handle,
      .key = created.places.sends.offset,
      .memory_bytes = created.places.sends.bytes,
      .qpn = created.qpn,
      .completion_handle = extended ? request->ex_create_qp.send_cq : request->create_qp.send_cq};
  struct mapped_queue receives = sends;
  receives.kind = QUEUE_RECEIVE;
  receives.key = created.places.receives.offset;
  /* None with a shared receive queue. */
  receives.memory_bytes = created.places.receives.bytes;
  receives.completion_handle =
      extended ? request->ex_create_qp.recv_cq : request->create_qp.recv_cq;
  pair_added(command, &sends, &receives);
}

static void queue_pair_created(const struct command *command, const uint8_t *response,
                               size_t length) {
  struct siw_created_qp created;
  if (command->endpoint->file->index_rings) {
    indexed_pair_created(command, response, length);
    return;
  }
  if (length < sizeof created || !COMMAND_HAS(command, create_qp)) return;
  memcpy(&created, response, sizeof created);
  struct mapped_queue sends = {.kind = QUEUE_SEND,
                               .handle = created.handle,
                               .key = created.send_key,
                               .memory_bytes = queue_memory_bytes(QUEUE_SEND, created.send_count),
                               .count = created.send_count,
                               .qpn = created.qpn,
                               .completion_handle = command->request.create_qp.send_cq};
  struct mapped_queue receives = sends;
  receives.kind = QUEUE_RECEIVE;
  receives.key = created.receive_key;
  receives.count = created.receive_count;
  receives.memory_bytes = queue_memory_bytes(QUEUE_RECEIVE, created.receive_count);
  receives.completion_handle = command->request.create_qp.recv_cq;
  pair_added(command, &sends, &receives);
}

static void queue_destroyed(const struct command *command, const uint8_t *response, size_t length) {
  (void)response;
  (void)length;
  struct device_file *file = command->endpoint->file;
  uint32_t handle = command->request.destroy.handle;
  if (!COMMAND_HAS(command, destroy.handle)) return;
  if (command->request.header.number == UVERBS_DESTROY_QP) {
    doorbell_forget(&file->doorbells, handle);
  }
  queue_forget(&file->queues, handle);
}

/* The memory named by REG_MR. False if it cannot be valid. */
static bool named_range(const struct command *command, struct registered_range *range) {
  const struct uverbs_reg_mr *request = &command->request.reg_mr;
  if (!COMMAND_HAS(command, reg_mr)) return false;
  range->start = request->start;
  range->end = request->start + request->length;
  range->writable = (request->access & ACCESS_WRITES) != 0;
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
  if (!COMMAND_HAS(command, dereg_mr)) return;
  registration_remove(&command->endpoint->file->registrations, command->request.dereg_mr.handle);
}

/* REG_MR: the device may access the memory from here on, unless the daemon rejects the command. */
static int register_memory(struct command *command) {
  struct starting_registration starting;
  int cancel_state;
  if (!named_range(command, &starting.range)) return command_run(command);
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
  registration_begin(&starting);
  int error = command_run(command);
  registration_end(&starting);
  pthread_setcancelstate(cancel_state, NULL);
  return error;
}

/* Rings the doorbell of a connected queue pair. False: send it like any other command. */
static bool ring(struct command *command) {
  const struct uverbs_post_send *request = &command->request.post_send;
  struct device_file *file = command->endpoint->file;
  if (command->length != sizeof *request || request->wr_count != 0) return false;
  if (command->response_room < POST_SEND_RESPONSE_BYTES) return false;
  if (!memory_takes(command->response, POST_SEND_RESPONSE_BYTES)) return false;
  /* The word outlives the daemon, so a thread must watch for its death; a child rings on its own
   * connection. */
  if (atomic_load(&file->watch_fd) < 0) return false;
  if (atomic_load(&file->state) != CONNECTION_OPEN) return false;
  enum doorbell_kind kind = doorbell_begin(&file->doorbells, request->handle);
  if (kind == DOORBELL_COMMAND) return false;
  /* Read the state again: the daemon may have died, and the queue been flushed, before the
   * doorbell. */
  if (kind == DOORBELL_NONE && atomic_load(&file->state) != CONNECTION_OPEN) return false;
  if (kind == DOORBELL_ONE_WAY && !exchange_send_one_way(file, OP_DOORBELL, request->handle)) {
    return false;
  }
  memset(command->response, 0, POST_SEND_RESPONSE_BYTES);
  return true;
}

static int post_send(struct command *command) {
  /* In a child, this would send the parent's bytes. The kernel refuses it as well: the provider
   * write(2)s this command itself, while libibverbs sends the others by ioctl. */
  if (command->endpoint->file->inherited) return -EACCES;
  return ring(command) ? 0 : command_run(command);
}

/* Arms a completion queue whose ring has indices in that ring. Only if a completion came meanwhile
 * the daemon is told, with how many completions the program can have seen before: if it has not
 * fired for that one, it does then. False: send it like any other command. */
static bool arm(const struct command *command) {
  const struct uverbs_notify *request = &command->request.notify;
  struct device_file *file = command->endpoint->file;
  if (!file->index_rings || command->length != sizeof *request) return false;
  if (file->inherited || request->handle >= ARM_HANDLES) return false;
  /* The word outlives the daemon, so a thread must watch for its death. */
  if (atomic_load(&file->watch_fd) < 0) return false;
  if (atomic_load(&file->state) != CONNECTION_OPEN) return false;
  struct index_ring ring;
  uint32_t seen;
  /* Under the lock, so the queue is not resized meanwhile. */
  pthread_mutex_lock(&file->command_lock);
  bool armed =
      queue_completions(file->queues, request->handle, &ring) &&
      (index_ring_arm(&ring, request->solicited_only != 0, &seen) ||
       exchange_send_one_way(file, OP_ARM, request->handle | (uint64_t)seen << ARM_SEEN_SHIFT));
  pthread_mutex_unlock(&file->command_lock);
  return armed;
}

static int request_notify(struct command *command) {
  return arm(command) ? 0 : command_run(command);
}

/* The commands that this library takes part in: how each is run, and what happens after success. */
static const struct {
  uint32_t number;
  int (*run)(struct command *command);
  void (*completed)(const struct command *command, const uint8_t *response, size_t length);
} commands[] = {
    {UVERBS_POST_SEND, post_send, NULL},
    {UVERBS_REQUEST_NOTIFY, request_notify, NULL},
    {UVERBS_GET_CONTEXT, get_context, context_opened},
    {UVERBS_REG_MR, register_memory, memory_registered},
    {UVERBS_DEREG_MR, command_run, memory_deregistered},
    {UVERBS_CREATE_CQ, create_completion_queue, completion_queue_created},
    {UVERBS_RESIZE_CQ, command_run, completion_queue_resized},
    {UVERBS_DESTROY_CQ, command_run, queue_destroyed},
    {UVERBS_CREATE_QP, command_run, queue_pair_created},
    {UVERBS_EX_CREATE_QP, command_run, indexed_pair_created},
    {UVERBS_DESTROY_QP, command_run, queue_destroyed},
};

static int run(struct command *command) {
  for (size_t index = 0; index < sizeof commands / sizeof *commands; index++) {
    if (commands[index].number != command->request.header.number) continue;
    command->completed = commands[index].completed;
    return commands[index].run(command);
  }
  return command_run(command);
}

ssize_t uverbs_write(int fd, struct endpoint *endpoint, const void *buffer, size_t length) {
  int saved = errno;
  struct command command;
  int error = command_parse(&command, buffer, length, REQUEST_PAYLOAD_MAX);
  if (error == 0) {
    command.fd = fd;
    command.endpoint = endpoint;
    locate_response(&command);
    error = run(&command);
  }
  errno = error == 0 ? saved : -error;
  return error == 0 ? (ssize_t)length : -1;
}
