/* See stress.h. Arguments: `steady` or `dying`, the seed, milliseconds; or `leaf`, with which it
 * starts itself. With `dying` it prints `running`, then attributes failures to the daemon. */
#include "stress.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define THREADS 12
/* Every two seconds, the library looks for descriptors that moved. */
#define SETTLE_MS 3000

atomic_bool stopping;
atomic_bool closing;
struct tally tally;
struct ibv_context *standing;
static bool dying;
static atomic_bool lost;

void wrong(const char *file, int line, const char *what) {
  fprintf(stderr, "%s:%d: not true: %s (errno %d: %s)\n", file, line, what, errno, strerror(errno));
  abort();
}

void failed(const char *file, int line, const char *what) {
  if (!dying) wrong(file, line, what);
  lost = true;
  stopping = true;
}

struct chance chance_of(uint64_t seed, unsigned thread) {
  return (struct chance){.state = (seed + 1) * 0x9e3779b97f4a7c15u + thread * 0xbf58476d1ce4e5b9u};
}

unsigned below(struct chance *chance, unsigned bound) {
  chance->state = chance->state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(chance->state >> 33) % bound;
}

int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int count_descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  REQUIRE(folder != NULL);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

/* The number of open descriptors once the library's threads have ended. Returns `expected` as
 * soon as it is reached, or else the number that stays the same for a while. */
static int settled(int expected) {
  int before = -1;
  for (int64_t since = now_ms(); before != expected && now_ms() < since + SETTLE_MS;) {
    int now = count_descriptors();
    if (now != before) since = now_ms();
    before = now;
    usleep(10000);
  }
  return before;
}

/* A program started by another one: opens a device of its own. */
static int leaf(void) {
  struct ibv_context *context = open_first();
  /* The parent knows whether the daemon is meant to be there. */
  return context != NULL && ibv_close_device(context) == 0 ? 0 : 3;
}

static void run(uint64_t seed, int64_t milliseconds) {
  static const struct {
    void *(*run)(void *chance);
    unsigned count;
  } kinds[] = {{serve, 1},        {converse, 3},     {open_and_close, 2}, {spawn_processes, 2},
               {take_numbers, 2}, {watch_events, 1}};
  struct chance chances[THREADS];
  pthread_t threads[THREADS];
  unsigned started = 0;
  stopping = false;
  closing = false;
  listening_port = 0;
  for (unsigned kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    for (unsigned index = 0; index < kinds[kind].count; index++) {
      chances[started] = chance_of(seed, started);
      REQUIRE(pthread_create(&threads[started], NULL, kinds[kind].run, &chances[started]) == 0);
      started++;
    }
    while (listening_port == 0 && !stopping) usleep(1000);
  }
  int64_t end = now_ms() + milliseconds;
  bool announced = false;
  while (!stopping && now_ms() < end) {
    usleep(2000);
    if (dying && !announced && tally.connections > 0) {
      puts("running");
      fflush(stdout);
      announced = true;
    }
  }
  stopping = true;
  for (unsigned index = started; index-- > 1;) REQUIRE(pthread_join(threads[index], NULL) == 0);
  /* Until here, other threads connected to the listener. */
  closing = true;
  REQUIRE(pthread_join(threads[0], NULL) == 0);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "leaf") == 0) return leaf();
  REQUIRE(argc == 4);
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max >= 4096);
  limit.rlim_cur = 4096;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  uint64_t seed = strtoull(argv[2], NULL, 10);
  standing = open_first();
  REQUIRE(standing != NULL);
  /* librdmacm keeps its first descriptors open. */
  run(seed, 300);
  int before = settled(-1);
  dying = strcmp(argv[1], "dying") == 0;
  run(seed + 1, atoll(argv[3]));
  if (!dying) REQUIRE(settled(before) == before);
  printf("%s: connections %u messages %u devices %u forks %u executions %u moves %u ranges %u "
         "duplicates %u events %u\n",
         lost ? "lost" : "steady", tally.connections, tally.messages, tally.devices, tally.forks,
         tally.executions, tally.moves, tally.ranges, tally.duplicates, tally.events);
  return 0;
}
