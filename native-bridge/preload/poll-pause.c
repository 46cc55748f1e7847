/* See poll-pause.h. The offsets are those of `struct ibv_context` and `struct ibv_cq` in
 * infiniband/verbs.h, which no release of rdma-core may move. */
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
#define CQ_CONTEXT_OFFSET 0
#define CQ_HANDLE_OFFSET 24

#define MICROSECOND 1000LL
/* So long a thread polls before it looks at its queues, and between two looks; and who stays away
 * for longer between two polls, does not spin. */
#define POLL_LOOK_NS (20 * MICROSECOND)
/* Bounds of the time that it polls when no or few sends are outstanding: the lower is a round trip
 * where nobody is in the way, the upper what a core is given away for when one is. */
#define POLL_PATIENCE_MIN_NS (100 * MICROSECOND)
#define POLL_PATIENCE_MAX_NS (1000 * MICROSECOND)
/* Fewer sends than these are done before a pause is over. */
#define POLL_SENDS_MIN 16u
/* What a pause may add to the time of a completion. */
#define POLL_PAUSE_MAX_NS (250 * MICROSECOND)
/* The system lets threads sleep so much longer than they ask, unless they ask otherwise. */
#define POLL_SLACK_NS (50 * MICROSECOND)
/* Shorter pauses cost more than they give. */
#define POLL_PAUSE_MIN_NS (POLL_SLACK_NS + 20 * MICROSECOND)
/* A step on the way to the time of a typical wait. */
#define POLL_LEARN_NS (5 * MICROSECOND)
/* Times between which a rate is taken. */
#define POLL_RATE_MIN_NS (100 * MICROSECOND)
#define POLL_RATE_MAX_NS (20000 * MICROSECOND)

/* Every open device has the same provider, and so the same poll. */
static _Atomic(poll_function) provider_poll;

/* What a thread knows of the completion queue that it found empty first. */
static _Thread_local struct {
  const void *cq;
  /* When it found it empty, 0 when it has found something since; when it did so again, last; when
   * it looked at the sends. */
  int64_t since;
  int64_t last;
  int64_t looked;
  /* How many sends the daemon had taken, and when. */
  int64_t rate_since;
  uint32_t taken;
  /* What half of the waits take, at most; 0 before the first. */
  int64_t typical;
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

/* The sends that complete to `cq`. False where that cannot be told without waiting. */
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

/* How long a quarter of the outstanding sends will take, at the rate of those before; 0 when that
 * is not known. */
static int64_t quarter_of(const struct sends *sends, int64_t now) {
  int64_t elapsed = now - idle.rate_since;
  uint32_t done = (sends->taken - idle.taken) & 0xffff;
  if (elapsed < POLL_RATE_MIN_NS && done < POLL_SENDS_MIN) return 0;
  idle.rate_since = now;
  idle.taken = sends->taken;
  if (elapsed > POLL_RATE_MAX_NS || done == 0) return 0;
  return elapsed / done * (sends->outstanding / 4);
}

/* Follows the median of the waits, which a few long ones do not move. */
static void learn(int64_t waited) {
  idle.typical += waited > idle.typical ? POLL_LEARN_NS : -POLL_LEARN_NS;
  if (idle.typical < 0) idle.typical = 0;
  if (idle.typical > POLL_PATIENCE_MAX_NS) idle.typical = POLL_PATIENCE_MAX_NS;
}

static int64_t patience(void) {
  int64_t twice = 2 * idle.typical;
  if (twice < POLL_PATIENCE_MIN_NS) return POLL_PATIENCE_MIN_NS;
  return twice < POLL_PATIENCE_MAX_NS ? twice : POLL_PATIENCE_MAX_NS;
}

static int64_t pause_of(const char *cq, int64_t now) {
  int64_t waited = now - idle.since;
  if (waited >= patience()) {
    int64_t part = waited / 8;
    return part > POLL_PAUSE_MIN_NS ? part : POLL_PAUSE_MIN_NS;
  }
  struct sends sends;
  if (!look_at_sends(cq, &sends) || sends.outstanding < POLL_SENDS_MIN) return 0;
  return quarter_of(&sends, now);
}

static void sleep_for(int64_t duration) {
  struct timespec time = {.tv_sec = 0, .tv_nsec = (long)duration};
  int saved = errno;
  /* Not by libc's function, which a thread may be cancelled in. */
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, NULL);
  errno = saved;
}

static int poll_with_pauses(void *cq, int count, void *completions) {
  int found = atomic_load_explicit(&provider_poll, memory_order_relaxed)(cq, count, completions);
  if (found != 0) {
    if (idle.since != 0) learn(now_ns() - idle.since);
    idle.since = 0;
    return found;
  }
  int64_t now = now_ns();
  /* Whoever does other things in between does not spin. */
  if (idle.since == 0 || now - idle.last > POLL_LOOK_NS) {
    if (idle.cq != cq) idle.rate_since = 0;
    idle.cq = cq;
    idle.since = now;
    idle.looked = now;
  }
  idle.last = now;
  /* A thread that looks at several queues in turn pauses once in each turn. */
  if (idle.cq != cq || now - idle.looked < POLL_LOOK_NS) return 0;
  int64_t pause = pause_of(cq, now);
  if (pause > POLL_PAUSE_MAX_NS) pause = POLL_PAUSE_MAX_NS;
  if (pause >= POLL_PAUSE_MIN_NS) {
    sleep_for(pause - POLL_SLACK_NS);
    now = now_ns();
  }
  idle.last = now;
  idle.looked = now;
  return 0;
}

void poll_pause_install(void *context) {
  char *octets = context;
  const char *wish = getenv("IWARPD_POLL");
  if (wish != NULL && strcmp(wish, "spin") == 0) return;
  int fd = fd_of(octets);
  if (!descriptor_is_marked(fd)) return;
  struct endpoint *endpoint = endpoint_get(fd);
  if (endpoint == NULL) return;
  bool ours = endpoint->kind == ENDPOINT_UVERBS;
  endpoint_put(endpoint);
  if (!ours) return;
  poll_function found;
  memcpy(&found, octets + CONTEXT_POLL_OFFSET, sizeof found);
  poll_function known = NULL;
  if (!atomic_compare_exchange_strong(&provider_poll, &known, found) && known != found) return;
  found = poll_with_pauses;
  memcpy(octets + CONTEXT_POLL_OFFSET, &found, sizeof found);
}
