/* See poll-pause.h. The offsets are those of `struct verbs_context` (which ends with an
 * `ibv_context`), `struct ibv_context`, `struct ibv_cq` and `struct ibv_cq_ex` (which starts like
 * an `ibv_cq`) in infiniband/verbs.h. No release of rdma-core may move them. */
#include "poll-pause.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "descriptor-table.h"
#include "device-file.h"
#include "queue-flush.h"
#include "raw-call.h"

#define CONTEXT_POLL_OFFSET 96
#define CONTEXT_FD_OFFSET 264
#define CONTEXT_ABI_OFFSET 320
#define CONTEXT_BYTES 328
/* Offsets before the context: the size of the surrounding struct, and a function in it. */
#define SIZE_BEFORE_CONTEXT 8
#define CREATE_CQ_EX_BEFORE_CONTEXT 120
/* __VERBS_ABI_IS_EXTENDED */
#define ABI_IS_EXTENDED UINTPTR_MAX
#define CQ_EX_START_POLL_OFFSET 144
#define CQ_CONTEXT_OFFSET 0
#define CQ_HANDLE_OFFSET 24

#define MICROSECOND 1000LL
/* A thread that polls again later than this, after an empty poll, does other work in between. */
#define POLL_SPIN_NS (2 * MICROSECOND)
/* If sched_yield returns sooner, no other thread wants the core: wait as long before the next
 * yield, since a completion should not wait for a system call. */
#define POLL_ALONE_NS 1500LL
/* A thread polls this long before it first checks its send queues, and between checks. */
#define POLL_LOOK_NS (20 * MICROSECOND)
/* A thread that polls less often than this, on average, does other work and does not spin. */
#define POLL_INTERVAL_NS (20 * MICROSECOND)
/* A gap this long starts a new run of empty polls; no scheduler preempts a thread for that long. */
#define POLL_ABSENCE_NS (20000 * MICROSECOND)
/* How long a thread polls before it sleeps, with few or no sends outstanding: longer than a
 * scheduler makes the daemon wait, so a latency benchmark never sleeps. */
#define POLL_PATIENCE_NS (10000 * MICROSECOND)
/* Minimum number of outstanding sends for a pause. A rate is measured over at least as many
 * finished sends, or POLL_RATE_MIN_NS. */
#define POLL_SENDS_MIN 16u
/* Maximum delay of a completion by a pause. */
#define POLL_PAUSE_MAX_NS (250 * MICROSECOND)
/* Linux lets threads sleep this much longer than requested, by default. */
#define POLL_SLACK_NS (50 * MICROSECOND)
/* Shorter pauses cost more than they gain. */
#define POLL_PAUSE_MIN_NS (POLL_SLACK_NS + 20 * MICROSECOND)
/* Minimum and maximum time over which a rate is measured. */
#define POLL_RATE_MIN_NS (100 * MICROSECOND)
#define POLL_RATE_MAX_NS (20000 * MICROSECOND)

/* `ibv_poll_cq` of the providers, in the order of their first open device. */
#define PROVIDERS 2
static _Atomic(poll_function) provider_polls[PROVIDERS];
/* `ibv_start_poll` of their extended completion queues, and the function that creates these. */
typedef int (*start_poll_function)(void *cq, void *attributes);
typedef void *(*create_cq_ex_function)(void *context, void *attributes);
static _Atomic(start_poll_function) provider_start_polls[PROVIDERS];
static _Atomic(create_cq_ex_function) provider_creates[PROVIDERS];

/* A run of empty polls of one thread: the completion queue that was empty first. */
static _Thread_local struct {
  const void *cq;
  /* When the run started, or 0 if the last poll found something; its number of polls; when the last
   * one ended; how long other threads had the core meanwhile. */
  int64_t since;
  int64_t polls;
  int64_t last;
  int64_t yielded;
  /* When the thread may yield again. */
  int64_t next_yield;
  /* The last check of the sends led to a pause: the thread waits for something slow. */
  bool slow;
  /* When the sends were checked. */
  int64_t looked;
  /* How many sends the daemon had taken, and when. */
  int64_t rate_since;
  uint32_t taken;
} idle __attribute__((tls_model("initial-exec")));

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int fd_of(const char *context) {
  int fd;
  memcpy(&fd, context + CONTEXT_FD_OFFSET, sizeof fd);
  return fd;
}

/* The sends that complete to `cq`. False if this would have to wait. */
static bool look_at_sends(const char *cq, struct sends *sends) {
  const char *context;
  uint32_t handle;
  memcpy(&context, cq + CQ_CONTEXT_OFFSET, sizeof context);
  memcpy(&handle, cq + CQ_HANDLE_OFFSET, sizeof handle);
  struct endpoint *endpoint = endpoint_get(fd_of(context));
  if (endpoint == NULL) return false;
  bool free = endpoint->kind == ENDPOINT_UVERBS &&
              pthread_mutex_trylock(&endpoint->file->command_lock) == 0;
  if (free) {
    *sends = queues_sends(endpoint->file->queues, handle);
    pthread_mutex_unlock(&endpoint->file->command_lock);
  }
  endpoint_put(endpoint);
  return free;
}

/* How long a quarter of the outstanding sends will take at the rate so far; 0 if unknown. */
static int64_t quarter_of(const struct sends *sends, int64_t now) {
  int64_t elapsed = now - idle.rate_since;
  uint32_t done = (sends->taken - idle.taken) & 0xffff;
  if (elapsed < POLL_RATE_MIN_NS && done < POLL_SENDS_MIN) return 0;
  idle.rate_since = now;
  idle.taken = sends->taken;
  if (elapsed > POLL_RATE_MAX_NS || done == 0) return 0;
  return elapsed / done * (sends->outstanding / 4);
}

static int64_t pause_of(const char *cq, int64_t now) {
  int64_t waited = now - idle.since;
  if (idle.polls < (waited - idle.yielded) / POLL_INTERVAL_NS) return 0;
  if (waited >= POLL_PATIENCE_NS) return POLL_PAUSE_MAX_NS;
  struct sends sends;
  if (!look_at_sends(cq, &sends) || sends.outstanding < POLL_SENDS_MIN) return 0;
  return quarter_of(&sends, now);
}

static void sleep_for(int64_t duration) {
  struct timespec time = {.tv_sec = 0, .tv_nsec = (long)duration};
  int saved = errno;
  /* Not libc's function, which is a cancellation point. */
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
  errno = saved;
}

/* Yields the core, mainly for the daemon. Returns the time. */
static int64_t yield_core(int64_t now) {
  int saved = errno;
  syscall(SYS_sched_yield);
  errno = saved;
  int64_t after = now_ns();
  idle.yielded += after - now;
  if (after - now < POLL_ALONE_NS) idle.next_yield = after + POLL_ALONE_NS;
  return after;
}

/* Called when a poll found the queue empty. */
static void found_empty(const void *cq) {
  int64_t now = now_ns();
  bool first = idle.since == 0 || now - idle.last > POLL_ABSENCE_NS;
  if (first) {
    if (idle.cq != cq) {
      idle.rate_since = 0;
      idle.slow = false;
    }
    idle.cq = cq;
    idle.since = now;
    idle.looked = now;
    idle.polls = 0;
    idle.yielded = 0;
  }
  idle.polls++;
  /* A thread that sleeps wakes up in time; one that yields waits for the daemon to finish. */
  bool spins = !first && now - idle.last <= POLL_SPIN_NS;
  if (spins && !idle.slow && now >= idle.next_yield) now = yield_core(now);
  idle.last = now;
  /* A thread that polls several queues in turn pauses once per round. */
  if (idle.cq != cq || now - idle.looked < POLL_LOOK_NS) return;
  int64_t pause = pause_of(cq, now);
  if (pause > POLL_PAUSE_MAX_NS) pause = POLL_PAUSE_MAX_NS;
  idle.slow = pause >= POLL_PAUSE_MIN_NS;
  if (idle.slow) {
    sleep_for(pause - POLL_SLACK_NS);
    now = now_ns();
  }
  idle.last = now;
  idle.looked = now;
}

static inline int poll_with_pauses(unsigned provider, void *cq, int count, void *completions) {
  poll_function poll = atomic_load_explicit(&provider_polls[provider], memory_order_relaxed);
  int found = poll(cq, count, completions);
  if (found == 0) found_empty(cq);
  else idle.since = 0;
  return found;
}

/* On success, and only then, the provider holds the queue's lock until the end of the poll. */
static inline int start_with_pauses(unsigned provider, void *cq, void *attributes) {
  start_poll_function start =
      atomic_load_explicit(&provider_start_polls[provider], memory_order_relaxed);
  int error = start(cq, attributes);
  if (error == ENOENT) found_empty(cq);
  else idle.since = 0;
  return error;
}

static int poll_first(void *cq, int count, void *completions) {
  return poll_with_pauses(0, cq, count, completions);
}

static int poll_second(void *cq, int count, void *completions) {
  return poll_with_pauses(1, cq, count, completions);
}

static int start_first(void *cq, void *attributes) { return start_with_pauses(0, cq, attributes); }

static int start_second(void *cq, void *attributes) { return start_with_pauses(1, cq, attributes); }

static void *create_with_pauses(unsigned provider, void *context, void *attributes) {
  static const start_poll_function paused[PROVIDERS] = {start_first, start_second};
  create_cq_ex_function create =
      atomic_load_explicit(&provider_creates[provider], memory_order_relaxed);
  char *cq = create(context, attributes);
  if (cq == NULL) return NULL;
  start_poll_function found;
  start_poll_function known = NULL;
  memcpy(&found, cq + CQ_EX_START_POLL_OFFSET, sizeof found);
  if (found == NULL) return cq;
  bool first = atomic_compare_exchange_strong(&provider_start_polls[provider], &known, found);
  if (first || known == found) {
    memcpy(cq + CQ_EX_START_POLL_OFFSET, &paused[provider], sizeof paused[provider]);
  }
  return cq;
}

static void *create_first(void *context, void *attributes) {
  return create_with_pauses(0, context, attributes);
}

static void *create_second(void *context, void *attributes) {
  return create_with_pauses(1, context, attributes);
}

/* Replaces the function by which this context creates extended completion queues. */
static void install_extended(char *context, unsigned provider) {
  static const create_cq_ex_function paused[PROVIDERS] = {create_first, create_second};
  uintptr_t abi;
  size_t size;
  create_cq_ex_function found;
  create_cq_ex_function known = NULL;
  memcpy(&abi, context + CONTEXT_ABI_OFFSET, sizeof abi);
  if (abi != ABI_IS_EXTENDED) return;
  memcpy(&size, context - SIZE_BEFORE_CONTEXT, sizeof size);
  if (size < CREATE_CQ_EX_BEFORE_CONTEXT + CONTEXT_BYTES) return;
  memcpy(&found, context - CREATE_CQ_EX_BEFORE_CONTEXT, sizeof found);
  if (found == NULL) return;
  bool first = atomic_compare_exchange_strong(&provider_creates[provider], &known, found);
  if (!first && known != found) return;
  memcpy(context - CREATE_CQ_EX_BEFORE_CONTEXT, &paused[provider], sizeof paused[provider]);
}

void poll_pause_install(void *context) {
  char *bytes = context;
  const char *wish = getenv("IWARPD_POLL");
  if (wish != NULL && strcmp(wish, "spin") == 0) return;
  int fd = fd_of(bytes);
  if (!descriptor_is_marked(fd)) return;
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return;
  bool ours = endpoint->kind == ENDPOINT_UVERBS;
  endpoint_put(endpoint);
  if (!ours) return;
  poll_function found;
  memcpy(&found, bytes + CONTEXT_POLL_OFFSET, sizeof found);
  static const poll_function paused[PROVIDERS] = {poll_first, poll_second};
  for (unsigned provider = 0; provider < PROVIDERS; provider++) {
    poll_function known = NULL;
    bool first = atomic_compare_exchange_strong(&provider_polls[provider], &known, found);
    if (!first && known != found) continue;
    memcpy(bytes + CONTEXT_POLL_OFFSET, &paused[provider], sizeof paused[provider]);
    install_extended(bytes, provider);
    return;
  }
}
