/* See memory-agent.h.
 *
 * The daemon may request anything. The agent accesses only memory that the
 * program registered, only while it is registered, and must not crash: bytes
 * enter the program's memory by pread() and leave it by pwrite(), which respect
 * its protections and return EFAULT if an access would fault. */
#include "memory-agent.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>

#include "exchange.h"
#include "hidden-descriptor.h"
#include "raw-call.h"
#include "registered-memory.h"
#include "registry.h"
#include "shim-thread.h"

/* If the number became the program's, a wait on it must end: soon while there is work; later for an
 * idle agent, at no measurable cost. */
#define NUMBER_LOOK_FIRST_MS 1
#define NUMBER_LOOK_FACTOR 4
#define NUMBER_LOOK_LAST_MS 2000

/* Looks for another order before the agent sleeps: some tens of microseconds. */
#define ORDER_LOOKS 64

/* The shortest slice that Linux grants. */
#define SLICE_NS 100000u

struct memory_agent {
  /* Hidden descriptors: the connection, and memory through which all bytes pass. */
  _Atomic int connection;
  _Atomic int staging;
  uint8_t *staged;
  /* Orders of the daemon to copy, or NULL; and how many are carried out. */
  struct copy_ring *copies;
  uint32_t copied;
  /* The order that failed last, until the daemon has freed its slot. */
  struct copy_order *failed;
  struct memory_agent *next;
};

/* Under the registry lock. */
static struct memory_agent *agents;

/* Waits until the connection may be ready, at most `limit_ms`. Its number may have become the
 * program's, so this neither reads nor writes. Returns the next limit. */
static int await(struct memory_agent *agent, short events, int limit_ms) {
  raw_poll(atomic_load(&agent->connection), events, limit_ms);
  int longer = limit_ms * NUMBER_LOOK_FACTOR;
  return longer < NUMBER_LOOK_LAST_MS ? longer : NUMBER_LOOK_LAST_MS;
}

/* As `receive_exactly`. */
static int receive(struct memory_agent *agent, void *target, size_t length) {
  size_t done = 0;
  int limit_ms = NUMBER_LOOK_FIRST_MS;
  while (done < length) {
    hidden_pin();
    int fd = atomic_load(&agent->connection);
    ssize_t received = raw_recv(fd, (char *)target + done, length - done, MSG_DONTWAIT);
    int error = errno;
    hidden_unpin();
    if (received > 0) done += (size_t)received;
    else if (received == 0) return -ECONNRESET;
    else if (error == EAGAIN) limit_ms = await(agent, POLLIN, limit_ms);
    else if (error != EINTR) return -error;
  }
  return 0;
}

static int send_reply(struct memory_agent *agent, struct msghdr *message) {
  int limit_ms = NUMBER_LOOK_FIRST_MS;
  for (;;) {
    hidden_pin();
    int fd = atomic_load(&agent->connection);
    ssize_t sent = raw_sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    int error = errno;
    hidden_unpin();
    if (sent >= 0 && message_advance(message, (size_t)sent)) return 0;
    if (sent >= 0 || error == EINTR) continue;
    if (error != EAGAIN) return -error;
    limit_ms = await(agent, POLLOUT, limit_ms);
  }
}

static int reply(struct memory_agent *agent, uint32_t id, int error, uint32_t length) {
  struct agent_reply head = {.id = id, .error = (uint32_t)error, .length = length};
  struct iovec vectors[2] = {{.iov_base = &head, .iov_len = sizeof head},
                             {.iov_base = agent->staged, .iov_len = length}};
  struct msghdr message = {.msg_iov = vectors, .msg_iovlen = length > 0 ? 2 : 1};
  return send_reply(agent, &message);
}

/* Moves all of the request between staging memory and registered memory by `call`, pwrite or pread.
 * Returns 0 or EFAULT. */
static int move(struct memory_agent *agent, const struct agent_request *request, long call) {
  size_t done = 0;
  if (request->length == 0) return 0;
  if (!registered_memory_hold(request->address, request->length, call == SYS_pread64)) {
    return EFAULT;
  }
  hidden_pin();
  int staging = atomic_load(&agent->staging);
  int error = 0;
  while (done < request->length && error == 0) {
    ssize_t moved = syscall(call, staging, request->address + done, request->length - done,
                            (off_t)done);
    if (moved > 0) done += (size_t)moved;
    else if (moved == 0 || errno != EINTR) error = EFAULT;
  }
  hidden_unpin();
  registered_memory_release();
  return error;
}

static int serve_read(struct memory_agent *agent, const struct agent_request *request) {
  int error = move(agent, request, SYS_pwrite64);
  return reply(agent, request->id, error, error == 0 ? request->length : 0);
}

/* Receive all bytes before placing any: a daemon that pauses blocks nothing, and cannot write after
 * the registration has ended. */
static int serve_write(struct memory_agent *agent, const struct agent_request *request) {
  int error = receive(agent, agent->staged, request->length);
  if (error != 0) return error;
  return reply(agent, request->id, move(agent, request, SYS_pread64), 0);
}

/* Receives and serves a request. Returns 0, AGENT_COPY if there are orders to carry out, or a
 * negative errno. */
static int serve_request(struct memory_agent *agent) {
  struct agent_request request;
  int error = receive(agent, &request, sizeof request);
  if (error != 0) return error;
  if (request.length > AGENT_TRANSFER_MAX) return -EPROTO;
  if (request.operation == AGENT_READ) return serve_read(agent, &request);
  if (request.operation == AGENT_WRITE) return serve_write(agent, &request);
  return request.operation == AGENT_COPY && agent->copies != NULL ? AGENT_COPY : -EPROTO;
}

/* Serves a request if one waits: orders may keep coming for as long as a program sends. Returns a
 * negative errno once the daemon is gone: programs reuse memory without its consent. The number
 * must not become the program's meanwhile, whose file may have hung up. */
static int look_at_connection(struct memory_agent *agent) {
  struct pollfd entry = {.events = POLLIN};
  hidden_pin();
  entry.fd = atomic_load(&agent->connection);
  int ready = entry.fd < 0 ? 1 : raw_poll_all(&entry, 1, 0);
  hidden_unpin();
  if (ready <= 0) return 0;
  if (entry.revents != POLLIN) return -ECONNRESET;
  int result = serve_request(agent);
  return result == AGENT_COPY ? 0 : result;
}

static _Atomic uint32_t *shared_word(uint32_t *word) { return (_Atomic uint32_t *)word; }

/* Copies registered memory into another process; the kernel decides whether this one may write
 * there. Returns 0 or an errno. */
static int copy_out(uint64_t source, uint64_t target, uint32_t length, pid_t process) {
  if (length > COPY_BYTES_MAX) return EINVAL;
  if (!registered_memory_hold(source, length, false)) return EFAULT;
  int error = 0;
  for (uint32_t done = 0; done < length && error == 0;) {
    struct iovec from = {.iov_base = (void *)(uintptr_t)(source + done), .iov_len = length - done};
    struct iovec to = {.iov_base = (void *)(uintptr_t)(target + done), .iov_len = length - done};
    ssize_t moved = syscall(SYS_process_vm_writev, process, &from, 1ul, &to, 1ul, 0ul);
    if (moved > 0) done += (uint32_t)moved;
    else error = moved == 0 ? EFAULT : errno;
  }
  registered_memory_release();
  return error;
}

/* True if the next order is to be carried out, or passed. */
static bool has_order(const struct memory_agent *agent) {
  if (agent->failed != NULL) {
    return atomic_load(shared_word(&agent->failed->state)) != COPY_DONE;
  }
  struct copy_order *next = &agent->copies->orders[agent->copied % COPY_ORDERS];
  uint32_t state = atomic_load(shared_word(&next->state));
  return state == COPY_POSTED || state == COPY_CANCELLED;
}

/* Carries out the next order. False if there is none, or it failed: then the daemon may cancel
 * those after it before it frees its slot. */
static bool carry_out(struct memory_agent *agent) {
  struct copy_order *order = &agent->copies->orders[agent->copied % COPY_ORDERS];
  uint32_t state = COPY_POSTED;
  int error = ECANCELED;
  if (agent->failed != NULL && !has_order(agent)) return false;
  agent->failed = NULL;
  if (atomic_compare_exchange_strong(shared_word(&order->state), &state, COPY_STARTED)) {
    error = copy_out(order->source, order->target, order->length, (pid_t)order->process);
  } else if (state != COPY_CANCELLED) {
    return false;
  }
  order->error = error;
  atomic_store(shared_word(&order->state), COPY_DONE);
  agent->copied++;
  agent->failed = error != 0 && error != ECANCELED ? order : NULL;
  return agent->failed == NULL;
}

/* Tells the daemon, if it waits for that, that orders are done. */
static int report_copies(struct memory_agent *agent) {
  if (atomic_load(shared_word(&agent->copies->awaited)) == 0) return 0;
  if (atomic_exchange(shared_word(&agent->copies->awaited), 0) == 0) return 0;
  return reply(agent, AGENT_COPIED_ID, 0, 0);
}

/* Waits for another order, which mostly comes soon. Lets other threads have the core. Returns 1 if
 * there is one, 0 if not, or a negative errno. */
static int await_order(struct memory_agent *agent) {
  for (int look = 0; look < ORDER_LOOKS; look++) {
    if (has_order(agent)) return 1;
    int error = look_at_connection(agent);
    if (error != 0) return error;
    syscall(SYS_sched_yield);
  }
  return 0;
}

/* Carries out orders until there are none, and serves requests meanwhile. */
static int serve_copies(struct memory_agent *agent) {
  for (;;) {
    int waits;
    atomic_store(shared_word(&agent->copies->idle), 0);
    do {
      bool more;
      do {
        int error = look_at_connection(agent);
        if (error != 0) return error;
        more = carry_out(agent);
        error = report_copies(agent);
        if (error != 0) return error;
      } while (more);
      waits = await_order(agent);
    } while (waits > 0);
    if (waits < 0) return waits;
    /* The daemon posts, then looks whether the agent is idle. */
    atomic_store(shared_word(&agent->copies->idle), 1);
    if (!has_order(agent)) return 0;
    uint32_t idle = 1;
    if (!atomic_compare_exchange_strong(shared_word(&agent->copies->idle), &idle, 0)) return 0;
  }
}

/* Maps the ring of orders; without it, the daemon copies. */
static void open_copies(struct memory_agent *agent, struct device_file *file) {
  int fd = exchange_descriptor(file, OP_COPIES);
  if (fd < 0) return;
  void *ring = raw_mmap(NULL, sizeof *agent->copies, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  raw_close(fd);
  if (ring == MAP_FAILED) return;
  agent->copies = ring;
}

static void agent_free(struct memory_agent *agent) {
  descriptor_close_hidden(&agent->connection);
  descriptor_close_hidden(&agent->staging);
  if (agent->staged != NULL) raw_munmap(agent->staged, AGENT_TRANSFER_MAX);
  if (agent->copies != NULL) raw_munmap(agent->copies, sizeof *agent->copies);
  raw_munmap(agent, sizeof *agent);
}

/* Removes the agent from the list. */
static void agent_unlink(struct memory_agent *agent) {
  registry_lock();
  for (struct memory_agent **link = &agents; *link != NULL; link = &(*link)->next) {
    if (*link != agent) continue;
    *link = agent->next;
    break;
  }
  registry_unlock();
}

/* The daemon waits for this thread, and this thread waits for the program's threads if they poll on
 * every core. Linux 6.12 and later schedules a thread with short slices sooner; older kernels
 * ignore the request. */
static void request_short_slices(void) {
  struct {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns;
    uint64_t deadline_ns;
    uint64_t period_ns;
  } attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  attributes.runtime_ns = SLICE_NS;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void *agent_main(void *argument) {
  struct memory_agent *agent = argument;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  request_short_slices();
  if (agent->copies != NULL) {
    agent->copies->thread = (uint32_t)syscall(SYS_gettid);
    atomic_store(shared_word(&agent->copies->idle), 1);
    atomic_store(shared_word(&agent->copies->served), 1);
  }
  int result;
  do {
    result = serve_request(agent);
    if (result == AGENT_COPY) result = serve_copies(agent);
  } while (result == 0);
  agent_unlink(agent);
  agent_free(agent);
  return NULL;
}

/* Staging memory as a file: only the kernel touches the addresses that the daemon names. */
static int open_staging(struct memory_agent *agent) {
  int fd = (int)syscall(SYS_memfd_create, "iwarpd-agent", 1u /* MFD_CLOEXEC */);
  if (fd < 0) return -errno;
  if (syscall(SYS_ftruncate, fd, (off_t)AGENT_TRANSFER_MAX) != 0) {
    raw_close(fd);
    return -ENOMEM;
  }
  void *staged = raw_mmap(NULL, AGENT_TRANSFER_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (staged == MAP_FAILED) {
    raw_close(fd);
    return -ENOMEM;
  }
  agent->staged = staged;
  return descriptor_hide(fd, false, NULL, &agent->staging) < 0 ? -errno : 0;
}

int memory_agent_start(struct device_file *file, bool copies) {
  struct welcome welcome;
  struct memory_agent *agent = raw_allocate(sizeof *agent);
  if (agent == NULL) return -ENOMEM;
  atomic_store(&agent->connection, -1);
  atomic_store(&agent->staging, -1);
  int error = open_staging(agent);
  int fd = error == 0 ? exchange_connect(file, ROLE_AGENT, file->token, &welcome) : error;
  /* Another thread of this process has started one meanwhile. */
  bool served = fd == -EBUSY;
  if (fd < 0) error = fd;
  else if (descriptor_hide(fd, false, NULL, &agent->connection) < 0) error = -errno;
  if (error == 0) {
    if (copies) open_copies(agent, file);
    registry_lock();
    agent->next = agents;
    agents = agent;
    registry_unlock();
    error = shim_thread_start(agent_main, agent);
    if (error == 0) return 0;
    agent_unlink(agent);
  }
  agent_free(agent);
  return served ? 0 : error;
}

static void stop_all(void) {
  registry_lock();
  for (struct memory_agent *agent = agents; agent != NULL; agent = agent->next) {
    hidden_lock();
    int fd = atomic_load(&agent->connection);
    if (fd >= 0) syscall(SYS_shutdown, fd, SHUT_RDWR);
    hidden_unlock();
    /* Close them now, since the thread that this wakes may run later. No registration is left, so
     * no copy takes long. */
    hidden_pin();
    descriptor_close_hidden(&agent->connection);
    descriptor_close_hidden(&agent->staging);
    hidden_unpin();
  }
  registry_unlock();
}

void memory_agents_file_shut(struct device_file *file) {
  registrations_free(&file->registrations);
  if (file->role == ROLE_UVERBS && !device_files_any(ROLE_UVERBS)) stop_all();
}

void memory_agents_forget(void) {
  registrations_forget();
  struct memory_agent *agent = agents;
  agents = NULL;
  while (agent != NULL) {
    struct memory_agent *next = agent->next;
    agent_free(agent);
    agent = next;
  }
}
