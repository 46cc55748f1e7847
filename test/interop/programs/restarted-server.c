/*
 * A server that is killed with many objects and restarted at once: restarted-server DEVICE ADDRESS
 * PORT QPS. A process opens the device, makes QPS queue pairs, and listens at the port. It is
 * killed, and a second process, which is already waiting, listens there and prints "listens again".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/wait.h>

#include "program.h"

static char **words;

static struct rdma_cm_id *make_id(void) {
  struct rdma_cm_id *id;
  CHECK(rdma_create_id(MADE(rdma_create_event_channel()), &id, NULL, RDMA_PS_TCP) == 0);
  return id;
}

static void listen_at_port(struct rdma_cm_id *id) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
  CHECK(inet_pton(AF_INET, words[2], &address.sin_addr) == 1);
  CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0);
  CHECK(rdma_listen(id, 1) == 0);
}

static void make_queue_pairs(void) {
  struct ibv_context *context = open_device(words[1]);
  struct ibv_pd *pd = MADE(ibv_alloc_pd(context));
  struct ibv_cq *cq = MADE(ibv_create_cq(context, 1, NULL, NULL, 0));
  for (int left = atoi(words[4]); left > 0; left--) create_qp(pd, plain_init(cq, 1));
}

static void notify(int pipe) { CHECK(write(pipe, "x", 1) == 1); }

static void await(int pipe) {
  char byte;
  CHECK(read(pipe, &byte, 1) == 1);
}

int main(int count, char **arguments) {
  int ready[2], go[2], status;
  words = arguments;
  CHECK(count == 5 && pipe(ready) == 0 && pipe(go) == 0);
  pid_t first = fork();
  if (first == 0) {
    make_queue_pairs();
    listen_at_port(make_id());
    notify(ready[1]);
    pause();
  }
  await(ready[0]);
  pid_t second = fork();
  if (second == 0) {
    struct rdma_cm_id *id = make_id();
    notify(ready[1]);
    await(go[0]);
    listen_at_port(id);
    puts("listens again");
    return 0;
  }
  await(ready[0]);
  CHECK(kill(first, SIGKILL) == 0 && waitpid(first, &status, 0) == first);
  notify(go[1]);
  CHECK(waitpid(second, &status, 0) == second);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
