/* Checks the data of an MPI library's transfers between all processes: sends of sizes on both sides
 * of every protocol's threshold, allreduce, alltoall, and one-sided puts, gets and accumulates. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static uint32_t word(int from, int to, uint32_t index) {
  return (uint32_t)from * 2654435761u ^ (uint32_t)to * 40503u ^ index * 2246822519u;
}

static void fail(const char *what, uint32_t index) {
  printf("rank %d: wrong data in %s at %u\n", rank, what, index);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(uint32_t *buffer, int from, int to, uint32_t count) {
  for (uint32_t index = 0; index < count; index++) buffer[index] = word(from, to, index);
}

static void check(const char *what, const uint32_t *buffer, int from, int to, uint32_t count) {
  for (uint32_t index = 0; index < count; index++) {
    if (buffer[index] != word(from, to, index)) fail(what, index);
  }
}

static uint32_t *words(uint32_t count) {
  uint32_t *buffer = malloc((size_t)count * sizeof *buffer + 1);
  if (buffer == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  return buffer;
}

/* Every process sends to every other one at once. */
static void sends(uint32_t count) {
  uint32_t *out = words(count), *in = words(count);
  for (int distance = 1; distance < ranks; distance++) {
    int to = (rank + distance) % ranks, from = (rank + ranks - distance) % ranks;
    fill(out, rank, to, count);
    MPI_Sendrecv(out, (int)count, MPI_UINT32_T, to, distance, in, (int)count, MPI_UINT32_T, from,
                 distance, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    check("a send", in, from, rank, count);
  }
  free(out);
  free(in);
}

static void allreduce(uint32_t count) {
  uint32_t *out = words(count), *in = words(count);
  fill(out, rank, 0, count);
  MPI_Allreduce(out, in, (int)count, MPI_UINT32_T, MPI_SUM, MPI_COMM_WORLD);
  for (uint32_t index = 0; index < count; index++) {
    uint32_t sum = 0;
    for (int from = 0; from < ranks; from++) sum += word(from, 0, index);
    if (in[index] != sum) fail("an allreduce", index);
  }
  free(out);
  free(in);
}

static void alltoall(uint32_t count) {
  uint32_t *out = words(count * (uint32_t)ranks), *in = words(count * (uint32_t)ranks);
  for (int to = 0; to < ranks; to++) fill(out + (uint32_t)to * count, rank, to, count);
  MPI_Alltoall(out, (int)count, MPI_UINT32_T, in, (int)count, MPI_UINT32_T, MPI_COMM_WORLD);
  for (int from = 0; from < ranks; from++) {
    check("an alltoall", in + (uint32_t)from * count, from, rank, count);
  }
  free(out);
  free(in);
}

/* Each process owns a counter, and one piece of memory for each other process. */
static void one_sided(uint32_t count) {
  uint32_t *out = words(count), *in = words(count), *memory;
  MPI_Win window;
  /* In MPICH 4.0, windows of two processes overlap if their sizes are odd. */
  MPI_Aint bytes = ((MPI_Aint)count * ranks + 16) / 16 * 16 * (MPI_Aint)sizeof(uint32_t);
  MPI_Win_allocate(bytes, sizeof(uint32_t), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  memory[(uint32_t)ranks * count] = 0;
  MPI_Win_unlock(rank, window);
  MPI_Barrier(MPI_COMM_WORLD);
  uint32_t one = 1;
  for (int to = 0; to < ranks; to++) {
    fill(out, rank, to, count);
    MPI_Win_lock(MPI_LOCK_SHARED, to, 0, window);
    MPI_Put(out, (int)count, MPI_UINT32_T, to, (MPI_Aint)rank * count, (int)count, MPI_UINT32_T,
            window);
    MPI_Accumulate(&one, 1, MPI_UINT32_T, to, (MPI_Aint)count * ranks, 1, MPI_UINT32_T, MPI_SUM,
                   window);
    MPI_Win_unlock(to, window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
  for (int from = 0; from < ranks; from++) {
    check("a put", memory + (uint32_t)from * count, from, rank, count);
  }
  if (memory[(uint32_t)ranks * count] != (uint32_t)ranks) {
    fail("an accumulate", memory[(uint32_t)ranks * count]);
  }
  MPI_Win_unlock(rank, window);
  int from = (rank + 1) % ranks;
  MPI_Win_lock(MPI_LOCK_SHARED, from, 0, window);
  MPI_Get(in, (int)count, MPI_UINT32_T, from, (MPI_Aint)rank * count, (int)count, MPI_UINT32_T,
          window);
  MPI_Win_unlock(from, window);
  check("a get", in, rank, from, count);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&window);
  free(out);
  free(in);
}

int main(int argc, char **argv) {
  static const uint32_t counts[] = {0, 1, 63, 1000, 2500, 40000, 500000};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (size_t index = 0; index < sizeof counts / sizeof *counts; index++) sends(counts[index]);
  allreduce(3);
  allreduce(100000);
  alltoall(10);
  alltoall(20000);
  one_sided(10);
  one_sided(20000);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks, all data right\n", ranks);
  MPI_Finalize();
  return 0;
}
