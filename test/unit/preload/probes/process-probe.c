/* Descriptors and processes: close, fork, vfork, exec, and numbers that are used again. */
#include "probe.h"

static void forked(void) {
  int fd = open_device();
  int events = get_context(fd);
  int channel = create_channel(fd);
  int before = count_descriptors();
  pid_t child = fork();
  if (child == 0) {
    /* The child has the program's descriptors, and one of the shim's that keeps the file open. */
    CHECK(count_descriptors() == before);
    for (int round = 0; round < 50; round++) alloc_pd(fd);
    push(fd, 1, 1, 21);
    CHECK(read_completion(channel) == 21);
    CHECK(close(channel) == 0 && close(events) == 0 && close(fd) == 0);
    /* Only the program's initial descriptors are left. */
    CHECK(count_descriptors() == initial_descriptors);
    _exit(0);
  }
  for (int round = 0; round < 50; round++) alloc_pd(fd);
  check_child(child);
  push(fd, 1, 1, 22);
  CHECK(read_completion(channel) == 22);
  CHECK(count_descriptors() == before);
}

/* Forks a child that does the same, for so many generations. */
static void fork_and_allocate(int fd, int generations) {
  pid_t child = generations == 0 ? -1 : fork();
  if (child == 0) {
    fork_and_allocate(fd, generations - 1);
    _exit(0);
  }
  if (child > 0) check_child(child);
  alloc_pd(fd);
}

static void grandchildren(void) { fork_and_allocate(open_device(), 2); }

/* A child that has not used the device keeps it open when its parent closes it; so does a grandchild
 * when the child is gone. */
static void outlived(void) {
  int fd = open_device();
  int closed[2];
  CHECK(pipe(closed) == 0);
  pid_t child = fork();
  if (child == 0) {
    if (fork() != 0) _exit(0);
    char byte;
    CHECK(close(closed[1]) == 0 && read(closed[0], &byte, 1) == 0);
    alloc_pd(fd);
    uint32_t *queue = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0x1000);
    CHECK(queue != MAP_FAILED && queue[0] == 0x1000);
    CHECK(close(fd) == 0 && count_descriptors() == initial_descriptors + 1);
    _exit(0);
  }
  check_child(child);
  CHECK(close(fd) == 0 && close(closed[1]) == 0);
  CHECK(count_descriptors() == initial_descriptors + 1);
}

static volatile bool stop;

static void *busy(void *argument) {
  int fd = *(int *)argument;
  while (!stop) alloc_pd(fd);
  return NULL;
}

static void forked_while_busy(void) {
  int fd = open_device();
  pthread_t threads[2];
  for (int index = 0; index < 2; index++)
    CHECK(pthread_create(&threads[index], NULL, busy, &fd) == 0);
  for (int round = 0; round < 20; round++) {
    pid_t child = fork();
    if (child == 0) {
      alloc_pd(fd);
      CHECK(close(fd) == 0);
      CHECK(count_descriptors() == initial_descriptors);
      _exit(0);
    }
    check_child(child);
  }
  stop = true;
  for (int index = 0; index < 2; index++) CHECK(pthread_join(threads[index], NULL) == 0);
}

static void forked_manager(void) {
  int manager = open_manager();
  uint32_t slow[9] = {TELL_SLOW, 28};
  CHECK(write(manager, slow, sizeof slow) == sizeof slow);
  pid_t child = fork();
  if (child == 0) {
    CHECK_FAILS(EACCES, (int)write(manager, slow, sizeof slow));
    CHECK_FAILS(EACCES, (int)write(manager, slow, 1));
    manager = open_manager();
    CHECK(write(manager, slow, sizeof slow) == sizeof slow);
    _exit(0);
  }
  check_child(child);
  CHECK(write(manager, slow, sizeof slow) == sizeof slow);
}

/* A child's posts stay out of its parent's send queue, and its doorbells are refused. Receives may be
 * anyone's. */
static void inherited(void) {
  int fd = open_device();
  uint32_t response[16];
  CHECK(command(fd, 24, response, sizeof response, (uint32_t[12]){0}, 12) == 0);
  CHECK(tell(fd, TELL_CONNECTED, 1, 0, 0, 0) == 0);
  /* The receive queue and the send queue after it, in one mapping; and the latter on its own. */
  volatile uint32_t *both = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x3000);
  volatile uint32_t *sends = mmap(NULL, 480, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x4000);
  CHECK(both != MAP_FAILED && sends != MAP_FAILED);
  both[0] = 1;
  sends[0] = 2;
  CHECK(both[1024] == 2);
  pid_t child = fork();
  if (child == 0) {
    uint32_t words[4] = {response[0], 0, 0, 128};
    uint32_t bad = 7;
    CHECK(both[0] == 1 && both[1024] == 2 && sends[0] == 2);
    both[0] = 3;
    both[1024] = 4;
    sends[0] = 5;
    for (int round = 0; round < 2; round++) {
      CHECK_FAILS(EACCES, command(fd, 28, &bad, sizeof bad, words, 4));
      alloc_pd(fd);
    }
    pid_t grandchild = fork();
    if (grandchild == 0) {
      CHECK(both[0] == 3 && both[1024] == 2 && sends[0] == 2);
      both[1024] = 6;
      _exit(0);
    }
    check_child(grandchild);
    CHECK(both[1024] == 4 && sends[0] == 5);
    _exit(0);
  }
  check_child(child);
  CHECK(both[0] == 3 && both[1024] == 2 && sends[0] == 2);
}

/* The child of vfork shares this memory: a descriptor that it closes stays open in this process. */
static void vforked(void) {
  int fd = open_device();
  int channel = create_channel(fd);
  pid_t child = vfork();
  if (child == 0) {
    close(channel);
    close(fd);
    dup2(0, 100);
    close_range(3, ~0u, 0);
    execl("/bin/true", "true", (char *)NULL);
    _exit(1);
  }
  check_child(child);
  alloc_pd(fd);
  push(fd, 1, 1, 5);
  CHECK(read_completion(channel) == 5);
}

/* A process created without fork(): its copy of the connection belongs to its parent. */
static void cloned(void) {
  int fd = open_device();
  pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (child == 0) {
    uint32_t command[4] = {4, 4, 0, 0};
    if (write(fd, command, sizeof command) != -1 || errno != EACCES) _exit(1);
    if (close(fd) != 0) _exit(2);
    _exit(0);
  }
  check_child(child);
  alloc_pd(fd);
}

static void executed(void) {
  int fd = open_device();
  get_context(fd);
  create_channel(fd);
  CHECK(open("/dev/infiniband/rdma_cm", O_RDWR) >= 0);
  pid_t child = fork();
  if (child == 0) {
    alloc_pd(fd);
    char initial[12];
    snprintf(initial, sizeof initial, "%d", initial_descriptors);
    execl("/proc/self/exe", "process-probe", "after-exec", initial, (char *)NULL);
    _exit(1);
  }
  check_child(child);
  alloc_pd(fd);
}

static void after_exec(void) {
  CHECK(count_descriptors() == initial_descriptors);
  alloc_pd(open_device());
}

static void closed(void) {
  int before = count_descriptors();
  for (int round = 0; round < 20; round++) {
    int fd = open_device();
    int copy = dup(fd);
    int events = get_context(fd);
    int channel = create_channel(fd);
    CHECK(close(fd) == 0);
    alloc_pd(copy);
    CHECK(close(events) == 0 && close(copy) == 0);
    /* The file is gone, as its channel reports. */
    uint64_t value;
    set_nonblocking(channel, true);
    CHECK(read(channel, &value, 8) == -1 && (errno == EAGAIN || errno == EIO));
    CHECK(close(channel) == 0);
    int manager = open("/dev/infiniband/rdma_cm", O_RDWR);
    CHECK(close(manager) == 0);
    CHECK_FAILS(EBADF, close(manager));
    CHECK(count_descriptors() == before);
  }
}

/* The first number of the shim's own descriptors. */
static int hidden_first(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  return limit.rlim_cur >= 2048 ? 1024 : (int)limit.rlim_cur / 2;
}

/* The shim's own descriptors of this process, which no call of the program made. */
static int find_hidden(int above) {
  for (int fd = above + 1; fd < 4096; fd++) {
    if (syscall(SYS_fcntl, fd, F_GETFD) >= 0) return fd;
  }
  return -1;
}

static void hidden(void) {
  int fd = open_device();
  int manager = open("/dev/infiniband/rdma_cm", O_RDWR);
  CHECK(fd < 16 && manager < 512);
  int found = find_hidden(hidden_first() - 1);
  CHECK(found > 0);
  /* The program does not own it. */
  char byte = 0;
  CHECK_FAILS(EBADF, close(found));
  CHECK_FAILS(EBADF, write(found, &byte, 1));
  CHECK_FAILS(EBADF, read(found, &byte, 1));
  alloc_pd(fd);
  /* But it may take over the number. */
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  for (int hidden_fd = found; hidden_fd != -1; hidden_fd = find_hidden(hidden_fd)) {
    if (hidden_fd > found + 2) break;
    CHECK(dup2(pipes[1], hidden_fd) == hidden_fd);
    CHECK(write(hidden_fd, &byte, 1) == 1);
    CHECK(read(pipes[0], &byte, 1) == 1);
    CHECK(close(hidden_fd) == 0);
    alloc_pd(fd);
  }
  uint32_t slow[9] = {TELL_SLOW, 28};
  CHECK(write(manager, slow, sizeof slow) == sizeof slow);
}

/* rdma_cm files leave low numbers to a program's sockets, if there is room. */
static void numbers(void) {
  int manager = open("/dev/infiniband/rdma_cm", O_RDWR);
  CHECK(manager >= 256 && manager < FD_SETSIZE);
  CHECK(fcntl(manager, F_GETFD) == FD_CLOEXEC);
  CHECK(close(manager) == 0);
  CHECK(count_descriptors() == initial_descriptors);
  limit_descriptors(32);
  manager = open("/dev/infiniband/rdma_cm", O_RDWR);
  CHECK(manager >= 16 && manager < 32);
  int taken = manager;
  while (taken >= 0) taken = open("/dev/null", O_RDONLY);
  CHECK(errno == EMFILE);
  /* The file and the shim's own connection fit where they were. */
  CHECK(close(manager) == 0);
  CHECK(open("/dev/infiniband/rdma_cm", O_RDWR) >= 0);
}

static void ranges(void) {
  int fd = open_device();
  int manager = open("/dev/infiniband/rdma_cm", O_RDWR);
  int channel = create_channel(fd);
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  /* Everything above these three; the shim's own stay, since the program still has the files. */
  int above = pipes[0] < pipes[1] ? pipes[0] : pipes[1];
  CHECK(channel < above);
  CHECK(close_range((unsigned)above, ~0u, 0) == 0);
  CHECK_FAILS(EBADF, fcntl(pipes[0], F_GETFD));
  alloc_pd(fd);
  push(fd, 1, 1, 6);
  CHECK(read_completion(channel) == 6);
  CHECK(close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) == 0);
  alloc_pd(fd);
  CHECK(close_range((unsigned)manager, (unsigned)manager, 0) == 0);
  CHECK_FAILS(EBADF, fcntl(manager, F_GETFD));
  alloc_pd(fd);
  closefrom(3);
  CHECK(count_descriptors() == 3);
  CHECK_FAILS(EBADF, write(fd, &pipes, sizeof pipes));
  alloc_pd(open_device());
}

/* Numbers that were closed without the shim's knowledge refer to their new files. */
static void reused(void) {
  int fd = open_device();
  int channel = create_channel(fd);
  CHECK(syscall(SYS_close, fd) == 0);
  CHECK(syscall(SYS_close, channel) == 0);
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  CHECK((pipes[0] == fd && pipes[1] == channel) || (pipes[1] == fd && pipes[0] == channel));
  struct stat status;
  CHECK(fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode));
  uint32_t command[4] = {4, 4, 0, 0};
  CHECK(write(pipes[1], command, sizeof command) == sizeof command);
  CHECK(read(pipes[0], command, sizeof command) == sizeof command);
  CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
  CHECK(count_descriptors() == initial_descriptors);
}

/* Opens and closes in several threads at once. */
static void *churn(void *argument) {
  for (int round = 0; round < 40; round++) {
    int fd = open_device();
    int channel = create_channel(fd);
    int copy = dup(fd);
    alloc_pd(copy);
    CHECK(close(fd) == 0 && close(channel) == 0 && close(copy) == 0);
  }
  return argument;
}

static void churned(void) {
  run_threads(4, churn, NULL);
  CHECK(count_descriptors() == initial_descriptors);
}

/* Takes the numbers of the shim's own descriptors, as they come and go in another thread. */
static void *take_numbers(void *argument) {
  int pipes[2], first = hidden_first();
  CHECK(pipe(pipes) == 0);
  while (!stop) {
    for (int number = first; number < first + 8; number++) {
      if (syscall(SYS_fcntl, number, F_GETFD) < 0) continue;
      CHECK(dup2(pipes[1], number) == number);
      CHECK(close(number) == 0);
    }
  }
  /* No command of another thread went into it. */
  set_nonblocking(pipes[0], true);
  char byte;
  CHECK_FAILS(EAGAIN, (int)read(pipes[0], &byte, 1));
  CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
  return argument;
}

static void moved_while_closed(void) {
  pthread_t taker;
  CHECK(pthread_create(&taker, NULL, take_numbers, NULL) == 0);
  for (int round = 0; round < 1000; round++) {
    int fd = open_device();
    alloc_pd(fd);
    CHECK(close(fd) == 0);
  }
  stop = true;
  CHECK(pthread_join(taker, NULL) == 0);
  CHECK(count_descriptors() == initial_descriptors);
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      {"forked", forked}, {"grandchildren", grandchildren}, {"outlived", outlived},
      {"forked-while-busy", forked_while_busy}, {"forked-manager", forked_manager},
      {"inherited", inherited}, {"vforked", vforked}, {"cloned", cloned}, {"executed", executed},
      {"after-exec", after_exec}, {"closed", closed}, {"hidden", hidden}, {"numbers", numbers},
      {"ranges", ranges}, {"reused", reused}, {"churned", churned},
      {"moved-while-closed", moved_while_closed}, {NULL, NULL}};
  return run_scenario(argc, argv, scenarios);
}
