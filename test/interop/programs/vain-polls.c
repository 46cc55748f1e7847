/*
 * Counts how often polls of an empty completion queue yield to other threads: vain-polls DEVICE. A
 * seccomp filter passes each sched_yield to the program, which counts it.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "program.h"

#define POLLS 1000
/* A round in which the thread was interrupted for long does not count. */
#define ROUNDS 5
/* Other work between two polls. */
#define WORK_NS 20000

static volatile sig_atomic_t yields;

/* The system call returns its own number, which is in the result register and ignored. */
static void count_yield(int number) {
  (void)number;
  yields++;
}

static void watch_yields(void) {
  struct sigaction action = {.sa_handler = count_yield};
  CHECK(sigaction(SIGSYS, &action, NULL) == 0);
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof steps / sizeof steps[0], .filter = steps};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Polls both queues in turn; returns the number of yields. */
static int poll_in_vain(struct ibv_cq *first, struct ibv_cq *second, int64_t work) {
  int before = yields;
  for (int poll = 0; poll < POLLS; poll++) {
    struct ibv_wc found;
    if (work > 0) spin(work);
    CHECK(ibv_poll_cq(poll % 2 == 0 ? first : second, 1, &found) == 0);
  }
  return yields - before;
}

static int most_yields(struct ibv_cq *first, struct ibv_cq *second, int64_t work) {
  int most = 0;
  for (int round = 0; round < ROUNDS; round++) {
    /* After this long without a poll, the library treats the thread as a new poller. */
    spin(25 * SECOND_NS / 1000);
    int count = poll_in_vain(first, second, work);
    if (count > most) most = count;
  }
  return most;
}

int main(int count, char **words) {
  CHECK(count == 2);
  struct ibv_context *context = open_device(words[1]);
  struct ibv_cq *first = MADE(ibv_create_cq(context, 4, NULL, NULL, 0));
  struct ibv_cq *second = MADE(ibv_create_cq(context, 4, NULL, NULL, 0));
  watch_yields();
  printf("one %d\n", most_yields(first, first, 0));
  printf("two %d\n", most_yields(first, second, 0));
  printf("working %d\n", most_yields(first, first, WORK_NS));
  return 0;
}
