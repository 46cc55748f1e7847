/*
 * Uses a device after dropping privileges: dropped-rights DEVICE HOW [forked|forks], where HOW is
 * nothing, chroot, setuid or seteuid. Opens the device and rdma_cm, drops privileges, and then
 * makes a queue pair with a completion channel, memory and an id, and prints "all made". With
 * "forked", a child drops privileges and makes these, except the id, which only the process that
 * opened rdma_cm may make. With "forks", the program drops them before it forks that child.
 */
#define _GNU_SOURCE
#include <rdma/rdma_cma.h>
#include <sys/wait.h>

#include "program.h"

#define NOBODY 65534

static void drop(const char *how) {
  if (strcmp(how, "chroot") == 0) CHECK(chroot("/sys") == 0 && chdir("/") == 0);
  if (strcmp(how, "setuid") == 0) CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
  if (strcmp(how, "seteuid") == 0) CHECK(seteuid(NOBODY) == 0);
}

int main(int count, char **words) {
  static char memory[4096];
  struct ibv_cq *signalled;
  void *context;
  CHECK(count == 3 || count == 4);
  bool forks = count == 4;
  bool forks_late = forks && strcmp(words[3], "forks") == 0;
  struct ibv_context *verbs = open_device(words[1]);
  struct rdma_event_channel *events = MADE(rdma_create_event_channel());
  if (forks_late) drop(words[2]);
  pid_t child = forks ? fork() : 0;
  CHECK(child >= 0);
  if (child > 0) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
  }
  if (!forks_late) drop(words[2]);
  struct ibv_pd *pd = ibv_alloc_pd(verbs);
  CHECK(pd != NULL);
  struct ibv_mr *mr = MADE(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(verbs));
  struct ibv_cq *cq = MADE(ibv_create_cq(verbs, 8, NULL, channel, 0));
  struct ibv_qp *qp = create_qp(pd, plain_init(cq, 4));
  struct rdma_cm_id *id;
  CHECK(forks || rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
  /* The channel reports a flushed receive. */
  to_init(qp, 0);
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  post_recv(qp, 0, piece(mr, memory, 8));
  to_state(qp, IBV_QPS_ERR);
  CHECK(ibv_get_cq_event(channel, &signalled, &context) == 0 && signalled == cq);
  ibv_ack_cq_events(cq, 1);
  puts("all made");
  return 0;
}
