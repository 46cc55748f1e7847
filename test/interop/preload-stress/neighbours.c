/* Load beside the traffic: devices, processes, and descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stress.h"

/* Where the preload library keeps its own descriptors, when the limit allows. */
#define HIDDEN_FIRST 1024
#define HIDDEN_LAST 1100

extern char **environ;

struct ibv_context *open_first(void) {
  int count = 0;
  struct ibv_device **devices = ibv_get_device_list(&count);
  struct ibv_context *context = devices == NULL || count == 0 ? NULL : ibv_open_device(devices[0]);
  if (devices != NULL) ibv_free_device_list(devices);
  return context;
}

static void use(struct ibv_context *context, struct chance *chance) {
  static uint8_t memory[4][8192];
  struct ibv_mr *regions[4] = {NULL};
  struct ibv_cq *cq = NULL;
  struct ibv_qp *qp = NULL;
  struct ibv_comp_channel *channel = NULL;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  if (!EXPECT(pd != NULL)) return;
  unsigned count = below(chance, 5);
  for (unsigned index = 0; index < count; index++) {
    regions[index] = ibv_reg_mr(pd, memory[index], 8192, IBV_ACCESS_LOCAL_WRITE);
    EXPECT(regions[index] != NULL);
  }
  if (below(chance, 2) == 0) EXPECT((channel = ibv_create_comp_channel(context)) != NULL);
  EXPECT((cq = ibv_create_cq(context, 16, NULL, channel, 0)) != NULL);
  if (cq != NULL && below(chance, 2) == 0) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
    EXPECT((qp = ibv_create_qp(pd, &attributes)) != NULL);
  }
  if (qp != NULL) EXPECT(ibv_destroy_qp(qp) == 0);
  if (cq != NULL) EXPECT(ibv_destroy_cq(cq) == 0);
  if (channel != NULL) EXPECT(ibv_destroy_comp_channel(channel) == 0);
  for (unsigned index = 0; index < count; index++) {
    if (regions[index] != NULL) EXPECT(ibv_dereg_mr(regions[index]) == 0);
  }
  EXPECT(ibv_dealloc_pd(pd) == 0);
}

void *open_and_close(void *chance) {
  while (!stopping) {
    struct ibv_context *context = open_first();
    if (!EXPECT(context != NULL)) break;
    use(context, chance);
    EXPECT(ibv_close_device(context) == 0);
    tally.devices++;
  }
  return NULL;
}

static void await_child(pid_t child) {
  int status;
  if (!EXPECT(child > 0)) return;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  EXPECT(WEXITSTATUS(status) == 0);
}

/* A child with its parent's devices, to which it talks directly. */
static void fork_child(struct chance *chance) {
  unsigned what = below(chance, 3);
  pid_t child = fork();
  if (child == 0) {
    struct ibv_device_attr attributes;
    alarm(WAIT_LIMIT_MS / 1000);
    if (what == 1) close_range(3, ~0u, 0);
    bool asked = ibv_query_device(standing, &attributes) == 0;
    _exit(asked == (what != 1) ? 0 : 3);
  }
  await_child(child);
  tally.forks++;
}

static void execute(struct chance *chance) {
  char *words[] = {"/proc/self/exe", "leaf", NULL};
  pid_t child = -1;
  switch (below(chance, 3)) {
    case 0:
      child = vfork();
      if (child == 0) {
        close_range(3, ~0u, 0);
        execve(words[0], words, environ);
        _exit(4);
      }
      break;
    case 1:
      child = vfork();
      if (child == 0) {
        dup2(1, HIDDEN_FIRST);
        execl("/bin/true", "true", (char *)NULL);
        _exit(4);
      }
      break;
    default:
      if (posix_spawn(&child, words[0], NULL, NULL, words, environ) != 0) child = -1;
      break;
  }
  await_child(child);
  tally.executions++;
}

void *spawn_processes(void *chance) {
  while (!stopping) {
    if (below(chance, 4) > 0) fork_child(chance);
    else execute(chance);
    usleep(below(chance, 20000));
  }
  return NULL;
}

void *take_numbers(void *chance) {
  int pipes[2];
  REQUIRE(pipe(pipes) == 0);
  while (!stopping) {
    int number = HIDDEN_FIRST + (int)below(chance, HIDDEN_LAST - HIDDEN_FIRST);
    if (syscall(SYS_fcntl, number, F_GETFD) >= 0) {
      bool replaced = below(chance, 2) == 0 ? dup2(pipes[1], number) == number
                                            : dup3(pipes[1], number, O_CLOEXEC) == number;
      REQUIRE(replaced);
      /* Unless the other thread's range covered it. */
      close(number);
      tally.moves++;
    }
    switch (below(chance, 16)) {
      case 0:
        /* The program itself has nothing there. */
        REQUIRE(close_range(HIDDEN_FIRST, ~0u, 0) == 0);
        tally.ranges++;
        break;
      case 1: {
        int copy = below(chance, 2) == 0 ? dup(standing->cmd_fd)
                                         : fcntl(standing->async_fd, F_DUPFD_CLOEXEC, 3);
        REQUIRE(copy >= 0);
        int other = dup(pipes[1]);
        REQUIRE(other >= 0 && dup2(other, copy) == copy);
        REQUIRE(close(copy) == 0 && close(other) == 0);
        tally.duplicates++;
        break;
      }
      default:
        usleep(below(chance, 300));
    }
  }
  /* No command was written to a descriptor that replaced a connection. */
  fcntl(pipes[0], F_SETFL, O_NONBLOCK);
  char byte;
  REQUIRE(read(pipes[0], &byte, 1) == -1 && errno == EAGAIN);
  REQUIRE(close(pipes[0]) == 0 && close(pipes[1]) == 0);
  return NULL;
}

void *watch_events(void *chance) {
  (void)chance;
  struct ibv_async_event event;
  fcntl(standing->async_fd, F_SETFL, fcntl(standing->async_fd, F_GETFL) | O_NONBLOCK);
  while (!stopping) {
    struct pollfd entry = {.fd = standing->async_fd, .events = POLLIN};
    if (poll(&entry, 1, 20) <= 0) continue;
    if (ibv_get_async_event(standing, &event) == 0) {
      EXPECT(event.event_type != IBV_EVENT_DEVICE_FATAL);
      ibv_ack_async_event(&event);
      tally.events++;
    } else {
      EXPECT(errno == EAGAIN);
    }
  }
  return NULL;
}
