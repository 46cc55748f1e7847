/* Shared by the probes: small programs that make the calls of libibverbs and librdmacm under the
 * shim, against a daemon that the test plays. A probe that ends with status 0 found what it
 * expects. Commands of 128 and above tell the played daemon what to do next. */
#ifndef PROBE_H
#define PROBE_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: not true: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition,      \
              errno, strerror(errno));                                                             \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

/* The call fails with this errno. */
#define CHECK_FAILS(expected, call)                                                                \
  do {                                                                                             \
    errno = 0;                                                                                     \
    CHECK((call) == -1);                                                                           \
    CHECK(errno == (expected));                                                                    \
  } while (0)

enum told {
  /* Puts records into a queue: u32 queue (0 the asynchronous one, n the nth channel, or an rdma_cm
   * file's own), u32 count, u64 first value, u32 delay in milliseconds. */
  TELL_PUSH = 128,
  /* Never answers. */
  TELL_SILENCE = 129,
  /* Ends every connection and the daemon. */
  TELL_DIE = 130,
  /* Answers with a broken frame: u32 which. */
  TELL_BREAK = 131,
  /* Removes all records of a queue: u32 queue. */
  TELL_PURGE = 132,
  /* Sets the word after the send queue. */
  TELL_CONNECTED = 133,
  /* Answers after so many milliseconds: u32. */
  TELL_SLOW = 134,
  /* Wants one more agent started where there are no more than so many, then answers: u32. */
  TELL_AGENT = 135,
  /* Answers once the agent has done: u32 operation, u32 length, u64 address, u32 fill. The response
   * is u32 errno of the agent, u32 sum of the bytes read. */
  TELL_AGENT_COPY = 136,
};

static inline int open_device(void) {
  int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  return fd;
}

static inline int open_manager(void) {
  int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  return fd;
}

/* Writes an uverbs command: header, response pointer, then `words` of u32. */
static inline ssize_t command(int fd, uint32_t number, void *response, size_t response_bytes,
                              const uint32_t *words, size_t count) {
  uint8_t buffer[512] = {0};
  size_t length = 16 + 4 * count;
  uint16_t in_words = (uint16_t)(length / 4);
  uint16_t out_words = (uint16_t)(response_bytes / 4);
  memcpy(buffer, &number, 4);
  memcpy(buffer + 4, &in_words, 2);
  memcpy(buffer + 6, &out_words, 2);
  memcpy(buffer + 8, &response, 8);
  memcpy(buffer + 16, words, 4 * count);
  ssize_t written = write(fd, buffer, length);
  CHECK(written == -1 || written == (ssize_t)length);
  return written < 0 ? -1 : 0;
}

/* Tells the played daemon something. */
static inline int tell(int fd, uint32_t what, uint32_t first, uint32_t second, uint64_t value,
                       uint32_t last) {
  uint32_t words[5] = {first, second, (uint32_t)value, (uint32_t)(value >> 32), last};
  return (int)command(fd, what, NULL, 0, words, 5);
}

static inline void push(int fd, uint32_t queue, uint32_t count, uint64_t value) {
  CHECK(tell(fd, TELL_PUSH, queue, count, value, 0) == 0);
}

static inline void push_later(int fd, uint32_t queue, uint64_t value, uint32_t delay_ms) {
  CHECK(tell(fd, TELL_PUSH, queue, 1, value, delay_ms) == 0);
}

/* GET_CONTEXT; returns the asynchronous descriptor. */
static inline int get_context(int fd) {
  uint32_t response[4] = {~0u, ~0u, ~0u, ~0u};
  CHECK(command(fd, 0, response, sizeof response, NULL, 0) == 0);
  CHECK(response[1] == 1 && response[2] == 0x1234);
  return (int)response[0];
}

static inline int create_channel(int fd) {
  uint32_t channel = ~0u;
  CHECK(command(fd, 17, &channel, sizeof channel, NULL, 0) == 0);
  return (int)channel;
}

/* ALLOC_PD, which the played daemon answers with handle 7. */
static inline void alloc_pd(int fd) {
  uint32_t handle[2] = {0, 0xa5a5a5a5};
  CHECK(command(fd, 3, handle, 4, NULL, 0) == 0);
  CHECK(handle[0] == 7);
  CHECK(handle[1] == 0xa5a5a5a5);
}

/* The next record of a completion channel. */
static inline uint64_t read_completion(int fd) {
  uint64_t value = 0;
  CHECK(read(fd, &value, sizeof value) == sizeof value);
  return value;
}

static inline void set_nonblocking(int fd, bool on) {
  int flags = fcntl(fd, F_GETFL);
  CHECK(flags >= 0);
  CHECK(fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) == 0);
}

static inline bool is_readable(int fd) {
  struct pollfd entry = {.fd = fd, .events = POLLIN};
  int ready = poll(&entry, 1, 0);
  CHECK(ready >= 0);
  return ready == 1 && (entry.revents & POLLIN) != 0;
}

static inline void sleep_ms(long milliseconds) {
  struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
  while (nanosleep(&pause, &pause) != 0) {
  }
}

static inline double now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The child ended with status 0. */
static inline void check_child(pid_t child) {
  int status;
  CHECK(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static inline void limit_descriptors(rlim_t count) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = count;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Runs several threads to their end. */
static inline void run_threads(int count, void *(*run)(void *), void *argument) {
  pthread_t threads[8];
  for (int index = 0; index < count; index++) {
    CHECK(pthread_create(&threads[index], NULL, run, argument) == 0);
  }
  for (int index = 0; index < count; index++) CHECK(pthread_join(threads[index], NULL) == 0);
}

/* Anonymous pages to read and write. */
static inline char *map_pages(size_t count) {
  char *memory =
      mmap(NULL, count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return memory;
}

/* Descriptors of this process. */
static inline int count_descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 4096; fd++) count += syscall(SYS_fcntl, fd, F_GETFD) >= 0;
  return count;
}

/* Those that the program was started with. */
static int initial_descriptors;

struct scenario {
  const char *name;
  void (*run)(void);
};

static inline int run_scenario(int argc, char **argv, const struct scenario *scenarios) {
  initial_descriptors = argc > 2 ? atoi(argv[2]) : count_descriptors();
  /* Nothing here may hang: this ends any endless wait. */
  alarm(20);
  for (; scenarios->name != NULL; scenarios++) {
    if (argc < 2 || strcmp(argv[1], scenarios->name) != 0) continue;
    scenarios->run();
    return 0;
  }
  fprintf(stderr, "no scenario %s\n", argc < 2 ? "given" : argv[1]);
  return 2;
}

#endif
