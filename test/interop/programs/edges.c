/*
 * Edge-triggered waits: edges DEVICE ADDRESS. An epoll with EPOLLET watches each event descriptor,
 * which gets a second and a third event while the first is unread: each must wake the program. Once
 * all are read, the descriptor must not be readable. Prints "every event woke".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/epoll.h>

#include "program.h"

#define EVENTS 3
#define PATIENCE_MS 20000

static int watch(int fd) {
  struct epoll_event interest = {.events = EPOLLIN | EPOLLET};
  int epoll = epoll_create1(0);
  CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &interest) == 0);
  CHECK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0);
  return epoll;
}

static void expect_edge(int epoll) {
  struct epoll_event event;
  CHECK(epoll_wait(epoll, &event, 1, PATIENCE_MS) == 1);
}

static void expect_quiet(int fd) {
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  CHECK(poll(&entry, 1, 0) == 0);
}

/* A flushed receive is a completion at once. */
static void complete_one(struct ibv_pd *pd, struct ibv_cq *cq) {
  static char memory[8];
  struct ibv_mr *mr = MADE(ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE));
  struct ibv_qp *qp = create_qp(pd, plain_init(cq, 4));
  to_init(qp, 0);
  CHECK(ibv_req_notify_cq(cq, 0) == 0);
  post_recv(qp, 0, piece(mr, memory, sizeof memory));
  to_state(qp, IBV_QPS_ERR);
}

static void try_completions(struct ibv_context *verbs) {
  struct ibv_pd *pd = MADE(ibv_alloc_pd(verbs));
  struct ibv_comp_channel *channel = MADE(ibv_create_comp_channel(verbs));
  struct ibv_cq *cqs[EVENTS], *cq;
  void *context;
  int epoll = watch(channel->fd);
  for (int round = 0; round < 2; round++) {
    for (int at = 0; at < EVENTS; at++) {
      cqs[at] = MADE(ibv_create_cq(verbs, 8, NULL, channel, 0));
      complete_one(pd, cqs[at]);
      expect_edge(epoll);
    }
    for (int at = 0; at < EVENTS; at++) {
      CHECK(ibv_get_cq_event(channel, &cq, &context) == 0 && cq == cqs[at]);
      ibv_ack_cq_events(cq, 1);
    }
    expect_quiet(channel->fd);
    CHECK(ibv_get_cq_event(channel, &cq, &context) == -1 && errno == EAGAIN);
  }
}

static void try_addresses(struct sockaddr *address) {
  struct rdma_event_channel *channel = MADE(rdma_create_event_channel());
  struct rdma_cm_id *ids[EVENTS];
  struct rdma_cm_event *event;
  int epoll = watch(channel->fd);
  for (int at = 0; at < EVENTS; at++) {
    CHECK(rdma_create_id(channel, &ids[at], NULL, RDMA_PS_TCP) == 0);
    CHECK(rdma_resolve_addr(ids[at], NULL, address, 5000) == 0);
    expect_edge(epoll);
  }
  for (int at = 0; at < EVENTS - 1; at++) {
    CHECK(rdma_get_cm_event(channel, &event) == 0 && event->id == ids[at]);
    CHECK(rdma_ack_cm_event(event) == 0);
  }
  /* The last one is removed with its id. */
  CHECK(rdma_destroy_id(ids[EVENTS - 1]) == 0);
  expect_quiet(channel->fd);
  CHECK(rdma_get_cm_event(channel, &event) == -1 && errno == EAGAIN);
}

int main(int count, char **words) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
  CHECK(count == 3 && inet_pton(AF_INET, words[2], &address.sin_addr) == 1);
  struct ibv_context *verbs = open_device(words[1]);
  try_completions(verbs);
  try_addresses((struct sockaddr *)&address);
  puts("every event woke");
  return 0;
}
