/* Device nodes, commands, queues and doorbells. */
#include "probe.h"

static void check_node(const struct stat *status, dev_t number) {
  CHECK(S_ISCHR(status->st_mode));
  CHECK((status->st_mode & 0777) == 0666);
  CHECK(status->st_rdev == number);
}

static void nodes(void) {
  const dev_t device = makedev(231, 192);
  const dev_t manager = makedev(10, 58);
  struct stat status;
  struct stat64 status64;
  struct statx extended;
  CHECK(stat("/dev/infiniband/uverbs0", &status) == 0);
  check_node(&status, device);
  CHECK(lstat("/dev/infiniband/rdma_cm", &status) == 0);
  check_node(&status, manager);
  CHECK(stat64("/dev/char/231:192", &status64) == 0);
  CHECK(status64.st_rdev == device);
  CHECK(fstatat(AT_FDCWD, "/dev/infiniband/uverbs0", &status, 0) == 0);
  check_node(&status, device);
  CHECK(statx(AT_FDCWD, "/dev/infiniband/uverbs0", 0, STATX_BASIC_STATS, &extended) == 0);
  CHECK(S_ISCHR(extended.stx_mode) && extended.stx_rdev_major == 231 &&
        extended.stx_rdev_minor == 192);
  CHECK(access("/dev/infiniband/uverbs0", R_OK | W_OK) == 0);
  CHECK_FAILS(EACCES, access("/dev/infiniband/uverbs0", X_OK));
  CHECK_FAILS(ENOENT, stat("/dev/infiniband/uverbs1", &status));
  CHECK_FAILS(ENOENT, access("/dev/infiniband/uverbs1", F_OK));
  CHECK_FAILS(ENOENT, stat("/dev/infiniband/uverbs", &status));
  CHECK_FAILS(ENOENT, stat("/dev/infiniband/uverbs0x", &status));
  CHECK_FAILS(ENOENT, open("/dev/infiniband/issm0", O_RDWR));

  int fd = open_device();
  CHECK(fstat(fd, &status) == 0);
  check_node(&status, device);
  CHECK(fstat64(fd, &status64) == 0 && status64.st_rdev == device);
  CHECK(fstatat(fd, "", &status, AT_EMPTY_PATH) == 0);
  check_node(&status, device);
  CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0);
  CHECK(extended.stx_rdev_minor == 192);
  CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
  CHECK(close(fd) == 0);
  CHECK_FAILS(EBADF, fstat(fd, &status));

  fd = openat(AT_FDCWD, "/dev/char/10:58", O_RDWR | O_NONBLOCK);
  CHECK(fd >= 0);
  CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  CHECK(fstat(fd, &status) == 0);
  check_node(&status, manager);
  CHECK(close(fd) == 0);
  CHECK_FAILS(ENODEV, open("/dev/infiniband/uverbs1", O_RDWR));
}

/* The names that fortified, older and large-file builds call. */
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __xstat(int version, const char *path, struct stat *status);
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
ssize_t __read_chk(int fd, void *buffer, size_t length, size_t buffer_bytes);
ssize_t __write(int fd, const void *buffer, size_t length);

/* The version that programs of this architecture pass to these functions. */
#ifdef __x86_64__
#define STAT_VERSION 1
#else
#define STAT_VERSION 0
#endif

static void aliases(void) {
  struct stat status;
  struct stat64 status64;
  int fds[] = {open64("/dev/infiniband/uverbs0", O_RDWR),
               __open_2("/dev/infiniband/uverbs0", O_RDWR),
               __open64_2("/dev/infiniband/uverbs0", O_RDWR),
               openat64(AT_FDCWD, "/dev/infiniband/uverbs0", O_RDWR),
               __openat_2(AT_FDCWD, "/dev/infiniband/uverbs0", O_RDWR)};
  for (size_t index = 0; index < sizeof fds / sizeof fds[0]; index++) {
    CHECK(fds[index] >= 0);
    CHECK(__fxstat(STAT_VERSION, fds[index], &status) == 0 && S_ISCHR(status.st_mode));
    CHECK(__fxstat64(STAT_VERSION, fds[index], &status64) == 0 && S_ISCHR(status64.st_mode));
    CHECK(fcntl64(fds[index], F_GETFD) == FD_CLOEXEC);
    CHECK(close(fds[index]) == 0);
  }
  CHECK(__xstat(STAT_VERSION, "/dev/infiniband/uverbs0", &status) == 0 && S_ISCHR(status.st_mode));
  CHECK(__xstat(STAT_VERSION, "/", &status) == 0 && S_ISDIR(status.st_mode));
  int fd = open_device();
  int events = get_context(fd);
  push(fd, 0, 1, 99);
  uint64_t record[2];
  CHECK(__read_chk(events, record, sizeof record, sizeof record) == sizeof record);
  CHECK(record[0] == 99);
  uint32_t refused[4] = {4, 4, 0, 0};
  CHECK_FAILS(ENOENT, __write(fd, refused, sizeof refused));
}

static void null_paths(void) {
  const char *volatile path = NULL;
  char target[16];
  struct stat status;
  struct statx extended;
  CHECK_FAILS(EFAULT, open(path, O_RDONLY));
  CHECK_FAILS(EFAULT, openat(AT_FDCWD, path, O_RDONLY));
  CHECK_FAILS(EFAULT, stat(path, &status));
  CHECK_FAILS(EFAULT, lstat(path, &status));
  CHECK_FAILS(EFAULT, fstatat(AT_FDCWD, path, &status, 0));
  CHECK_FAILS(EFAULT, statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended));
  CHECK_FAILS(EFAULT, access(path, F_OK));
  CHECK_FAILS(EFAULT, readlink(path, target, sizeof target));
  CHECK(fopen(path, "r") == NULL && errno == EFAULT);
}

static void commands(void) {
  int fd = open_device();
  errno = 4321;
  alloc_pd(fd);
  CHECK(errno == 4321);
  /* DEALLOC_PD: no response, and its handle is in the place of the response pointer. */
  uint32_t dealloc[3] = {4, 3, 12};
  CHECK_FAILS(ENOENT, write(fd, dealloc, sizeof dealloc));
  CHECK_FAILS(EINVAL, write(fd, dealloc, 7));
  CHECK_FAILS(EINVAL, write(fd, dealloc, 17 * 1024));
  CHECK_FAILS(EOPNOTSUPP, tell(fd, 77, 0, 0, 0, 0));
  CHECK_FAILS(ENOTTY, ioctl(fd, 0xc0181b01UL, dealloc));
  int on = 1;
  CHECK(ioctl(fd, FIONBIO, &on) == 0);
  /* A non-blocking descriptor changes nothing: commands are synchronous. */
  CHECK(tell(fd, TELL_SLOW, 50, 0, 0, 0) == 0);
  char byte;
  CHECK_FAILS(EINVAL, read(fd, &byte, 1));
  /* An extended command: the response pointer lies at the same place, lengths are in 8 bytes. */
  uint32_t response[4] = {0, 0, 0, 0xa5a5a5a5};
  uint32_t extended[8] = {0x80000001u};
  void *pointer = response;
  memcpy((char *)extended + 8, &pointer, 8);
  uint16_t core = 1;
  memcpy((char *)extended + 6, &core, 2);
  CHECK(write(fd, extended, sizeof extended) == sizeof extended);
  CHECK(response[0] == 0x01010101 && response[1] == 0x01010101 && response[2] == 0);
  CHECK(response[3] == 0xa5a5a5a5);
  alloc_pd(fd);
}

static void bad_addresses(void) {
  int fd = open_device();
  char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(page != MAP_FAILED);
  int manager = open_manager();
  /* Commands that cannot be read, or only in part: at the end of a page, and above it. */
  char *pages = map_pages(2);
  CHECK(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
  /* ALLOC_PD, POST_SEND, CREATE_CQ, CREATE_QP, and an extended one. */
  for (const uint32_t *next = (const uint32_t[]){3, 28, 18, 24, 0x80000001u, 0}; *next != 0; next++) {
    memcpy(pages + 4096 - 8, next, 4);
    void *bad[] = {page, pages + 4096 - 8, NULL, (void *)0x1000, (void *)0xfffffffffffffff8u};
    for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++) {
      CHECK_FAILS(EFAULT, write(fd, bad[index], 40));
      CHECK_FAILS(EFAULT, write(fd, bad[index], 4097));
      CHECK_FAILS(EFAULT, write(manager, bad[index], 40));
      CHECK_FAILS(EINVAL, write(fd, bad[index], 7));
    }
  }
  /* SET_OPTION with a value that cannot be read. */
  uint32_t option[8] = {14, 24, 0, 0, 0, 0, 0, 4};
  memcpy(&option[2], &page, 8);
  CHECK_FAILS(EFAULT, write(manager, option, sizeof option));
  uint32_t again = 1;
  void *value = &again;
  memcpy(&option[2], &value, 8);
  CHECK(write(manager, option, sizeof option) == sizeof option);
  alloc_pd(fd);
}

/* Responses, and an event, to memory that accepts none of their bytes, or only the first. */
static void bad_responses(void) {
  int fd = open_device();
  char *pages = mmap(NULL, 3 * 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED);
  CHECK(mprotect(pages, 4096, PROT_READ | PROT_WRITE) == 0);
  CHECK(mprotect(pages + 8192, 4096, PROT_NONE) == 0);
  void *bad[] = {pages + 4096, pages + 8192, NULL, (void *)0x1000, (void *)0xfffffffffffffffcu};
  for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++) {
    CHECK_FAILS(EFAULT, (int)command(fd, 3, bad[index], 4, NULL, 0));
    alloc_pd(fd);
  }
  uint32_t queue[6] = {0, 0, 16, 0, ~0u, 0};
  CHECK_FAILS(EFAULT, (int)command(fd, 18, pages + 4096 - 8, 24, queue, 6));
  int descriptors = count_descriptors();
  CHECK_FAILS(EFAULT, (int)command(fd, 17, pages + 4096, 4, NULL, 0));
  CHECK(count_descriptors() == descriptors);
  int manager = open_manager();
  uint32_t create[8] = {0, 24 | 4 << 16};
  memcpy(&create[4], &bad[0], 8);
  CHECK_FAILS(EFAULT, write(manager, create, sizeof create));
  int events = get_context(fd);
  push(fd, 0, 2, 41);
  uint64_t record[2];
  CHECK_FAILS(EFAULT, read(events, pages + 4096 - 8, 16));
  CHECK(read(events, record, sizeof record) == sizeof record && record[0] == 42);
}

static void create_cq(int fd, int32_t channel, int expected_errno) {
  uint32_t response[6];
  uint32_t words[6] = {0, 0, 16, 0, (uint32_t)channel, 0};
  if (expected_errno == 0) CHECK(command(fd, 18, response, sizeof response, words, 6) == 0);
  else CHECK_FAILS(expected_errno, (int)command(fd, 18, response, sizeof response, words, 6));
}

static void channels(void) {
  int fd = open_device();
  int other = open_device();
  get_context(fd);
  get_context(other);
  int channel = create_channel(fd);
  int foreign = create_channel(other);
  CHECK(fcntl(channel, F_GETFD) == FD_CLOEXEC);
  create_cq(fd, channel, 0);
  create_cq(fd, -1, 0);
  create_cq(fd, dup(channel), 0);
  create_cq(fd, foreign, EBADF);
  create_cq(fd, fd, EBADF);
  create_cq(fd, 0, EBADF);
  create_cq(fd, 999, EBADF);
  CHECK(close(channel) == 0);
  create_cq(fd, channel, EBADF);
}

static void *map_queue(int fd, size_t bytes, uint64_t key) {
  void *queue = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)key);
  CHECK(queue != MAP_FAILED);
  return queue;
}

static void queues(void) {
  int fd = open_device();
  int before = count_descriptors();
  /* The played daemon's queue at 0x1000 has two pages that hold their own offset. */
  uint32_t *queue = map_queue(fd, 5000, 0x1000);
  CHECK(queue[0] == 0x1000 && queue[1024] == 0x1000 + 4096);
  queue[1] = 0x600d;
  CHECK(count_descriptors() == before);
  /* As in programs whose mmap() another library replaces. */
  uint32_t *same = (uint32_t *)syscall(SYS_mmap, NULL, 5000, PROT_READ, MAP_SHARED, fd, 0x1000);
  CHECK(same != MAP_FAILED && same[1] == 0x600d);
  int copy = dup(fd);
  CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, copy, 0x2000) != MAP_FAILED);
  CHECK(ftruncate(fd, 0) == -1 && errno == EPERM);
  int manager = open_manager();
  CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, manager, 0) == MAP_FAILED && errno == ENODEV);
  CHECK(munmap(queue, 5000) == 0);
}

static ssize_t doorbell(int fd, uint32_t handle, uint32_t *bad) {
  uint32_t words[4] = {handle, 0, 0, 128};
  return command(fd, 28, bad, sizeof *bad, words, 4);
}

static void doorbells(void) {
  int fd = open_device();
  uint32_t response[16];
  CHECK(command(fd, 24, response, sizeof response, (uint32_t[12]){0}, 12) == 0);
  uint32_t handle = response[0];
  uint64_t key;
  memcpy(&key, &response[12], 8);
  CHECK(handle == 5 && key == 0x4000);
  uint32_t bad = 0xffffffff;
  CHECK_FAILS(ENOTCONN, (int)doorbell(fd, handle, &bad));
  void *queue = map_queue(fd, 4 * 120, key);
  CHECK_FAILS(ENOTCONN, (int)doorbell(fd, handle, &bad));
  CHECK(tell(fd, TELL_CONNECTED, 1, 0, 0, 0) == 0);
  /* Two without a round trip; the queue may be unmapped meanwhile. */
  CHECK(doorbell(fd, handle, &bad) == 0);
  CHECK(bad == 0);
  const void *text = "read-only";
  CHECK_FAILS(ENOTCONN, (int)doorbell(fd, handle, (void *)text));
  CHECK(munmap(queue, 4 * 120) == 0);
  /* The daemon has not yet reported that it read the first. */
  CHECK(doorbell(fd, handle, &bad) == 0);
  CHECK(tell(fd, TELL_CONNECTED, 1, 0, 0, 0) == 0);
  CHECK(doorbell(fd, handle, &bad) == 0);
  CHECK(command(fd, 27, response, 4, (uint32_t[2]){handle, 0}, 2) == 0);
  CHECK_FAILS(ENOTCONN, (int)doorbell(fd, handle, &bad));
}

static void post(char *queue, size_t element_bytes, uint32_t slot, uint64_t wr_id, uint8_t opcode,
                 uint8_t flags) {
  char *element = queue + slot * element_bytes;
  memcpy(element, &wr_id, 8);
  element[11] = (char)opcode;
  element[8] = (char)flags;
}

/* Work that is not completed when the daemon ends; `last_flags` are those of the element that it took
 * last: it may have ended before it cleared them. */
static void flush_with(uint8_t last_flags) {
  int fd = open_device();
  uint32_t response[16];
  uint32_t wanted[6] = {0, 0, 8, 0, ~0u, 0};
  CHECK(command(fd, 18, response, 24, wanted, 6) == 0);
  CHECK(response[0] == 9 && response[3] == 8);
  char *completions = map_queue(fd, 8 * 32 + 8, response[4]);
  CHECK(command(fd, 24, response, 64, (uint32_t[12]){0, 0, 0, 9, 9}, 12) == 0);
  char *sends = map_queue(fd, 4 * 120, response[12]);
  char *receives = map_queue(fd, 4 * 112, response[14]);
  /* A Write and a Read that the daemon has taken, a Send that it has not. */
  post(sends, 120, 3, 103, 0, 0);
  post(sends, 120, 0, 100, 1, last_flags);
  post(sends, 120, 1, 101, 3, 1);
  const uint32_t progress = 5 | 2 << 16;
  memcpy(sends + 4096 - 4, &progress, 4);
  post(receives, 112, 2, 202, 0, 1);
  post(receives, 112, 3, 203, 0, 1);
  post(receives, 112, 0, 200, 0, 1);
  CHECK(munmap(sends, 4 * 120) == 0 && munmap(receives, 4 * 112) == 0);
  const uint32_t written = 6;
  memcpy(completions + 8 * 32 + 4, &written, 4);
  CHECK_FAILS(EIO, tell(fd, TELL_DIE, 0, 0, 0, 0));
  const uint64_t ids[] = {103, 100, 101, 202, 203, 200};
  const uint8_t opcodes[] = {0, 1, 3, 8, 8, 8};
  for (uint32_t index = 0; index < 6; index++) {
    volatile char *flags = completions + (6 + index) % 8 * 32 + 8;
    while (*flags == 0) sleep_ms(1);
    char *completion = completions + (6 + index) % 8 * 32;
    uint8_t expected[32] = {0};
    memcpy(expected, &ids[index], 8);
    expected[8] = 1;
    expected[9] = opcodes[index];
    expected[10] = 4;
    expected[24] = 6;
    CHECK(memcmp(completion, expected, 32) == 0);
  }
  sleep_ms(50);
  CHECK(completions[4 * 32 + 8] == 0 && completions[5 * 32 + 8] == 0);
}

static void flushes(void) { flush_with(0); }

static void flushes_last(void) { flush_with(1); }

/* The thread that waits for the daemon's end exits with the file, in forked children, too, and its
 * descriptor before the program can count. */
static void unwatched(void) {
  int before = count_descriptors();
  for (int round = 0; round < 3; round++) {
    int fd = open_device();
    uint32_t response[16];
    CHECK(command(fd, 24, response, 64, (uint32_t[12]){0}, 12) == 0);
    pid_t child = fork();
    if (child == 0) {
      alloc_pd(fd);
      CHECK(close(fd) == 0 && count_descriptors() == before);
      _exit(0);
    }
    check_child(child);
    alloc_pd(fd);
    CHECK(close(fd) == 0 && count_descriptors() == before);
  }
}

static void *many_commands(void *argument) {
  int fd = *(int *)argument;
  for (int round = 0; round < 200; round++) alloc_pd(fd);
  return NULL;
}

static void threads(void) {
  int fd = open_device();
  run_threads(4, many_commands, &fd);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      {"nodes", nodes}, {"aliases", aliases}, {"null-paths", null_paths}, {"commands", commands},
      {"bad-addresses", bad_addresses}, {"bad-responses", bad_responses}, {"channels", channels},
      {"queues", queues}, {"doorbells", doorbells}, {"flushes", flushes},
      {"flushes-last", flushes_last}, {"unwatched", unwatched}, {"threads", threads}, {NULL, NULL}};
  return run_scenario(argc, argv, scenarios);
}
