/*
 * Threads that sleep until a completion channel wakes them: events DEVICE ROUNDS [forever]. Several
 * queue pairs share a channel, which two threads read. Each queue pair's thread arms its completion
 * queue, posts a send, which completes because the queue pair is in the error state, and waits for
 * the event; now and then it destroys its queues while their event is at any stage of delivery.
 * Ends with 1 if an event does not come, or if the channel is readable after all of them.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "program.h"

#define WORKERS 4
#define READERS 2
#define ROUNDS_OF_QUEUES 40
#define STALL_MAX_S 20
#define RUN_MAX_S 20

struct worker {
  pthread_t thread;
  sem_t woken;
  struct ibv_cq *cq;
  struct ibv_qp *qp;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct worker workers[WORKERS];
static int rounds;
static bool forever;
static atomic_bool ended;
static time_t began;

static void make_queues(struct worker *worker) {
  worker->cq = MADE(ibv_create_cq(context, 8, worker, channel, 0));
  struct ibv_qp_init_attr init = plain_init(worker->cq, 4);
  init.sq_sig_all = 1;
  worker->qp = create_qp(pd, init);
  to_init(worker->qp, 0);
  to_state(worker->qp, IBV_QPS_ERR);
}

/* Returns only once every event that was read is acknowledged. */
static void destroy_queues(struct worker *worker) {
  CHECK(ibv_destroy_qp(worker->qp) == 0);
  CHECK(ibv_destroy_cq(worker->cq) == 0);
  while (sem_trywait(&worker->woken) == 0) continue;
}

static void post(struct worker *worker) {
  struct ibv_send_wr work = {.opcode = IBV_WR_SEND}, *bad;
  CHECK(ibv_req_notify_cq(worker->cq, 0) == 0);
  CHECK(ibv_post_send(worker->qp, &work, &bad) == 0);
}

static void await_event(struct worker *worker) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += STALL_MAX_S;
  CHECK(sem_timedwait(&worker->woken, &limit) == 0);
  struct ibv_wc done;
  CHECK(ibv_poll_cq(worker->cq, 1, &done) == 1);
  CHECK(done.status == IBV_WC_WR_FLUSH_ERR);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  for (int round = 0; forever || (round < rounds && time(NULL) - began < RUN_MAX_S); round++) {
    post(worker);
    if (round % ROUNDS_OF_QUEUES != ROUNDS_OF_QUEUES - 1) {
      await_event(worker);
      continue;
    }
    destroy_queues(worker);
    make_queues(worker);
  }
  destroy_queues(worker);
  return NULL;
}

static void *read_events(void *argument) {
  struct pollfd entry = {.fd = channel->fd, .events = POLLIN};
  (void)argument;
  while (!atomic_load(&ended)) {
    struct ibv_cq *cq;
    void *owner;
    if (poll(&entry, 1, 20) == 0 || ibv_get_cq_event(channel, &cq, &owner) != 0) continue;
    sem_post(&((struct worker *)owner)->woken);
    ibv_ack_cq_events(cq, 1);
  }
  return NULL;
}

int main(int count, char **words) {
  CHECK(count >= 3);
  context = open_device(words[1]);
  rounds = atoi(words[2]);
  forever = count > 3;
  pd = MADE(ibv_alloc_pd(context));
  channel = MADE(ibv_create_comp_channel(context));
  CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
  began = time(NULL);
  pthread_t readers[READERS];
  for (int at = 0; at < WORKERS; at++) {
    CHECK(sem_init(&workers[at].woken, 0, 0) == 0);
    make_queues(&workers[at]);
    CHECK(pthread_create(&workers[at].thread, NULL, work, &workers[at]) == 0);
  }
  for (int at = 0; at < READERS; at++) {
    CHECK(pthread_create(&readers[at], NULL, read_events, NULL) == 0);
  }
  printf("under way\n");
  fflush(stdout);
  for (int at = 0; at < WORKERS; at++) pthread_join(workers[at].thread, NULL);
  atomic_store(&ended, true);
  for (int at = 0; at < READERS; at++) pthread_join(readers[at], NULL);
  struct pollfd entry = {.fd = channel->fd, .events = POLLIN};
  CHECK(poll(&entry, 1, 200) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
  printf("all came\n");
  return 0;
}
