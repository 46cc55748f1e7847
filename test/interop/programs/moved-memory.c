/*
 * Memory that moves while it is registered: moved-memory DEVICE (RoCE) HOW, where HOW is moved or
 * unmapped. A queue pair is connected to itself. With "moved" the program moves the memory of two regions
 * by mremap, then sends from one into the other, and writes and reads by RDMA. With "unmapped" it
 * unmaps the first one, and prints the status of a send from there.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "program.h"

#define PAGE 4096
#define PAGES 4
#define BYTES (PAGES * PAGE)

static struct ibv_cq *cq;
static struct ibv_qp *qp;

static char *map_memory(void) {
  char *memory =
      mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

static char *move(char *memory) {
  /* mremap gets the target, so it must move the mapping. */
  char *room = map_memory();
  char *moved = mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, room);
  CHECK(moved == room);
  /* A device that keeps using the old addresses finds other bytes. */
  CHECK(mmap(memory, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == memory);
  memset(memory, 'x', BYTES);
  return moved;
}

static void post(enum ibv_wr_opcode opcode, char *local, struct ibv_mr *mr, char *remote,
                 struct ibv_mr *remote_mr) {
  CHECK(post_send(qp, opcode, piece(mr, local, 2 * PAGE), remote, remote_mr->rkey) == 0);
}

static void fill(char *memory, int first) {
  for (int at = 0; at < BYTES; at++) memory[at] = (char)(first + at / 7);
}

int main(int count, char **words) {
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  CHECK(count == 3);
  struct ibv_context *verbs = open_device(words[1]);
  struct ibv_pd *pd = MADE(ibv_alloc_pd(verbs));
  cq = MADE(ibv_create_cq(verbs, 8, NULL, NULL, 0));
  qp = create_qp(pd, plain_init(cq, 4));
  connect_qp(qp, qp->qp_num, 1, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  char *from = map_memory();
  char *to = map_memory();
  /* Two regions in one mapping, one of which does not begin where it begins. */
  struct ibv_mr *source = MADE(ibv_reg_mr(pd, from, BYTES, access));
  struct ibv_mr *target = MADE(ibv_reg_mr(pd, to + PAGE, 2 * PAGE, access));
  if (strcmp(words[2], "unmapped") == 0) {
    CHECK(munmap(from, BYTES) == 0);
    printf("%p\n", (void *)from);
    post(IBV_WR_RDMA_WRITE, from, source, to + PAGE, target);
    puts(ibv_wc_status_str(next_completion(cq).status));
    return 0;
  }
  char *moved_from = move(from);
  char *moved_to = move(to);
  fill(moved_from, 1);
  post_recv(qp, 0, piece(target, to + PAGE, 2 * PAGE));
  post(IBV_WR_SEND, from + PAGE, source, to, target);
  for (int at = 0; at < 2; at++) good_completion(cq);
  CHECK(memcmp(moved_to + PAGE, moved_from + PAGE, 2 * PAGE) == 0);
  fill(moved_from, 50);
  post(IBV_WR_RDMA_WRITE, from, source, to + PAGE, target);
  good_completion(cq);
  CHECK(memcmp(moved_to + PAGE, moved_from, 2 * PAGE) == 0);
  fill(moved_to, 90);
  post(IBV_WR_RDMA_READ, from, source, to + PAGE, target);
  good_completion(cq);
  CHECK(memcmp(moved_to + PAGE, moved_from, 2 * PAGE) == 0);
  for (int at = 0; at < BYTES; at++) CHECK(from[at] == 'x' && to[at] == 'x');
  CHECK(ibv_dereg_mr(source) == 0 && ibv_dereg_mr(target) == 0);
  puts("all continued");
  return 0;
}
