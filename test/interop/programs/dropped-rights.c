/*
 * The devices of a program that dropped its privileges: dropped-rights DEVICE HOW [forked|forks],
 * where HOW is nothing, chroot, setuid or seteuid. It opens the device and rdma_cm before, and makes a queue
 * pair with a completion channel, memory and an id. Then it prints "all made". With "forked", a child
 * of it gives up rights and does so, but for the id, which only the process that opened rdma_cm may make;
 * with "forks", the program gives them up before it forks that child.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(holds) \
  do { \
    if (!(holds)) { \
      printf("line %d: not %s (%s)\n", __LINE__, #holds, strerror(errno)); \
      exit(1); \
    } \
  } while (0)

#define NOBODY 65534

static struct ibv_context *open_named(const char *name) {
  int count;
  struct ibv_device **devices = ibv_get_device_list(&count);
  for (int at = 0; at < count; at++) {
    if (strcmp(ibv_get_device_name(devices[at]), name) == 0) return ibv_open_device(devices[at]);
  }
  return NULL;
}

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
  struct ibv_context *verbs = open_named(words[1]);
  struct rdma_event_channel *events = rdma_create_event_channel();
  CHECK(verbs != NULL && events != NULL);
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
  struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != NULL);
  struct ibv_comp_channel *channel = ibv_create_comp_channel(verbs);
  CHECK(channel != NULL);
  struct ibv_cq *cq = ibv_create_cq(verbs, 8, NULL, channel, 0);
  CHECK(cq != NULL);
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
  struct ibv_qp *qp = ibv_create_qp(pd, &init);
  CHECK(qp != NULL);
  struct rdma_cm_id *id;
  CHECK(forks || rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0);
  /* The channel reports a flushed receive. */
  struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 8, .lkey = mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  CHECK(ibv_modify_qp(qp, &attr,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
  attr.qp_state = IBV_QPS_ERR;
  CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  CHECK(ibv_get_cq_event(channel, &signalled, &context) == 0 && signalled == cq);
  ibv_ack_cq_events(cq, 1);
  puts("all made");
  return 0;
}
