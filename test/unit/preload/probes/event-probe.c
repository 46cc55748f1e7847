/* Event descriptors: completion channels, asynchronous events, rdma_cm events. */
#include "probe.h"

static int device;
static int async_fd;
static int channel;

static void open_all(void) {
  device = open_device();
  async_fd = get_context(device);
  channel = create_channel(device);
}

static void records(void) {
  open_all();
  char small[7];
  uint64_t record[2];
  set_nonblocking(channel, true);
  set_nonblocking(async_fd, true);
  CHECK(!is_readable(channel));
  CHECK_FAILS(EAGAIN, read(channel, record, 8));
  CHECK_FAILS(EAGAIN, read(async_fd, record, 16));
  push(device, 1, 3, 100);
  push(device, 0, 1, 7);
  CHECK(is_readable(channel) && is_readable(async_fd));
  CHECK_FAILS(EINVAL, read(channel, small, sizeof small));
  CHECK_FAILS(EINVAL, read(async_fd, record, 15));
  errno = 1234;
  CHECK(read_completion(channel) == 100);
  CHECK(errno == 1234);
  CHECK(is_readable(channel));
  /* One record for each read, whatever room there is. */
  CHECK(read(channel, record, 16) == 8 && record[0] == 101);
  CHECK(read_completion(channel) == 102);
  CHECK(!is_readable(channel));
  CHECK_FAILS(EAGAIN, read(channel, record, 8));
  CHECK(read(async_fd, record, 64) == 16 && record[0] == 7);
  CHECK(!is_readable(async_fd));
  CHECK_FAILS(EINVAL, write(channel, record, 8));
  CHECK_FAILS(ENOTTY, ioctl(channel, 0xc0181b01UL, record));
}

static void waiting(void) {
  open_all();
  double start = now_ms();
  push_later(device, 1, 55, 150);
  CHECK(read_completion(channel) == 55);
  CHECK(now_ms() - start >= 100);
  /* The wait costs no processor time. */
  struct timespec used;
  CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0);
  CHECK(used.tv_sec == 0 && used.tv_nsec < 100000000);
}

static void duplicates(void) {
  open_all();
  int copy = dup(channel);
  int high = fcntl(channel, F_DUPFD_CLOEXEC, 100);
  CHECK(high >= 100);
  int placed = dup3(channel, 200, O_CLOEXEC);
  CHECK(placed == 200);
  push(device, 1, 4, 10);
  CHECK(read_completion(copy) == 10);
  CHECK(read_completion(high) == 11);
  CHECK(close(channel) == 0);
  CHECK(read_completion(placed) == 12);
  CHECK(is_readable(copy));
  /* Another descriptor takes over a number that referred to the channel. */
  CHECK(dup2(async_fd, copy) == copy);
  uint64_t record[2];
  push(device, 0, 1, 77);
  CHECK(read(copy, record, sizeof record) == 16 && record[0] == 77);
  CHECK(read_completion(high) == 13);
  CHECK(!is_readable(high) && !is_readable(placed));
}

static void epolled(void) {
  open_all();
  int set = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = channel};
  CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, channel, &event) == 0);
  set_nonblocking(channel, true);
  uint64_t value;
  for (uint64_t round = 0; round < 3; round++) {
    CHECK(epoll_wait(set, &event, 1, 0) == 0);
    push(device, 1, 2, round);
    CHECK(epoll_wait(set, &event, 1, 1000) == 1);
    CHECK(read_completion(channel) == round);
    CHECK(read_completion(channel) == round + 1);
    CHECK_FAILS(EAGAIN, read(channel, &value, sizeof value));
  }
}

static void purged(void) {
  open_all();
  push(device, 1, 3, 5);
  push(device, 0, 1, 6);
  CHECK(is_readable(channel));
  CHECK(tell(device, TELL_PURGE, 1, 0, 0, 0) == 0);
  CHECK(!is_readable(channel));
  CHECK(is_readable(async_fd));
  /* A purge of an empty queue takes nothing; the next record shows. */
  CHECK(tell(device, TELL_PURGE, 1, 0, 0, 0) == 0);
  push(device, 1, 1, 8);
  CHECK(is_readable(channel));
  CHECK(read_completion(channel) == 8);
}

static void interrupted_by(int signal_number) { (void)signal_number; }

static void signals(void) {
  open_all();
  struct sigaction action = {.sa_handler = interrupted_by};
  uint64_t value;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  pid_t child = fork();
  if (child == 0) {
    for (int round = 0; round < 3; round++) {
      sleep_ms(100);
      kill(getppid(), SIGUSR1);
    }
    _exit(0);
  }
  CHECK_FAILS(EINTR, read(channel, &value, sizeof value));
  /* With SA_RESTART it keeps waiting despite the same signals. */
  action.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  push_later(device, 1, 9, 400);
  CHECK(read_completion(channel) == 9);
  check_child(child);
}

static void *interrupted_command(void *argument) {
  (void)argument;
  CHECK(tell(device, TELL_SLOW, 300, 0, 0, 0) == 0);
  return NULL;
}

static void signals_in_commands(void) {
  open_all();
  struct sigaction action = {.sa_handler = interrupted_by};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, interrupted_command, NULL) == 0);
  for (int round = 0; round < 5; round++) {
    sleep_ms(30);
    CHECK(pthread_kill(thread, SIGUSR1) == 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
}

static void expect_cancelled(pthread_t thread) {
  void *result;
  sleep_ms(100);
  CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
}

static void *blocked_reader(void *argument) {
  uint64_t value;
  ssize_t length = read(*(int *)argument, &value, sizeof value);
  fprintf(stderr, "the cancelled read returned %zd\n", length);
  _exit(1);
}

static void cancelled(void) {
  open_all();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, blocked_reader, &channel) == 0);
  expect_cancelled(thread);
  /* Nothing stayed locked or referenced. */
  push(device, 1, 1, 3);
  CHECK(read_completion(channel) == 3);
  CHECK(close(channel) == 0 && close(async_fd) == 0 && close(device) == 0);
  CHECK(tell(device, TELL_SLOW, 0, 0, 0, 0) == -1 && errno == EBADF);
}

static void *counting_reader(void *argument) {
  uintptr_t count = 0;
  (void)argument;
  while (read_completion(channel) != 999) count++;
  return (void *)count;
}

static void several_readers(void) {
  open_all();
  pthread_t readers[3];
  for (int index = 0; index < 3; index++) {
    CHECK(pthread_create(&readers[index], NULL, counting_reader, NULL) == 0);
  }
  for (int round = 0; round < 100; round++) push(device, 1, 1 + (uint32_t)round % 3, 1);
  for (int index = 0; index < 3; index++) push(device, 1, 1, 999);
  uintptr_t sum = 0;
  for (int index = 0; index < 3; index++) {
    void *count;
    CHECK(pthread_join(readers[index], &count) == 0);
    sum += (uintptr_t)count;
  }
  CHECK(sum == 199);
  CHECK(!is_readable(channel));
}

/* The program has reached its limit of descriptors. */
static void crowded(void) {
  device = open_device();
  limit_descriptors(64);
  int last = -1;
  for (int fd = 0; fd >= 0; fd = open("/dev/null", O_RDONLY)) last = fd;
  CHECK(errno == EMFILE);
  uint32_t made;
  CHECK(command(device, 17, &made, sizeof made, NULL, 0) == -1 && errno == EMFILE);
  CHECK(close(last) == 0);
  channel = create_channel(device);
  CHECK(channel == last);
  /* Its queue is the second one: the first is in the daemon, without a descriptor. */
  push(device, 2, 1, 3);
  CHECK(read_completion(channel) == 3);
}

/* rdma_cm */

static int manager;

static ssize_t cm_command(uint32_t number, void *response, uint16_t room, const uint32_t *words,
                          size_t count) {
  uint32_t buffer[64] = {number, (uint32_t)(8 + 4 * count) | (uint32_t)room << 16};
  memcpy(&buffer[2], &response, 8);
  memcpy(&buffer[4], words, 4 * count);
  return write(manager, buffer, 16 + 4 * count);
}

static ssize_t get_event(uint64_t event[42]) { return cm_command(12, event, 336, NULL, 0); }

static void *event_reader(void *argument) {
  uint64_t *event = argument;
  CHECK(get_event(event) == 16);
  return NULL;
}

static void cm_events(void) {
  manager = open_manager();
  uint64_t event[42];
  /* CREATE_ID: the program's identifier precedes the response pointer. */
  uint32_t id = ~0u;
  void *response = &id;
  uint32_t create[8] = {0, 24 | 4 << 16, 0xabcd, 0, 0, 0, 0x0106, 0};
  memcpy(&create[4], &response, 8);
  CHECK(write(manager, create, sizeof create) == sizeof create);
  CHECK(id == 41);
  set_nonblocking(manager, true);
  for (int round = 0; round < 50; round++) CHECK_FAILS(EAGAIN, get_event(event));
  set_nonblocking(manager, false);
  /* While one thread waits for an event, others use the file. */
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, event_reader, event) == 0);
  sleep_ms(50);
  id = ~0u;
  CHECK(write(manager, create, sizeof create) == sizeof create);
  CHECK(id == 41);
  CHECK(cm_command(TELL_PUSH, NULL, 0, (uint32_t[5]){0, 1, 4711, 0, 0}, 5) == 36);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(event[0] == 4711);
  CHECK(!is_readable(manager));
  /* A purge takes the byte of rdma_cm's own descriptor. */
  CHECK(cm_command(TELL_PUSH, NULL, 0, (uint32_t[5]){0, 2, 1, 0, 0}, 5) == 36);
  CHECK(is_readable(manager));
  CHECK(cm_command(TELL_PURGE, NULL, 0, (uint32_t[5]){0}, 5) == 36);
  CHECK(!is_readable(manager));
  char byte;
  CHECK_FAILS(EINVAL, read(manager, &byte, 1));
  CHECK_FAILS(ENOTTY, ioctl(manager, TCGETS, event));
  CHECK_FAILS(EINVAL, write(manager, create, 7));
}

/* An event of the id that the program calls `uid`, which has number `uid` + 1000. */
static void cm_event(uint32_t uid, uint32_t type) {
  uint64_t event[42];
  CHECK(cm_command(TELL_PUSH, NULL, 0, (uint32_t[5]){0, 1, uid | type << 16, 0, 0}, 5) == 36);
  CHECK(get_event(event) == 16);
  CHECK(event[0] == uid && event[1] == (uid + 1000 | (uint64_t)type << 32));
}

/* Ids that are connected when the daemon ends lose their device, and are disconnected. */
static void cm_disconnects(void) {
  manager = open_manager();
  uint64_t event[42];
  uint32_t reported;
  for (uint32_t uid = 1; uid <= 300; uid++) cm_event(uid, 9);
  for (uint32_t uid = 1; uid <= 298; uid++) cm_event(uid, 10);
  CHECK(cm_command(1, &reported, 4, (uint32_t[2]){1299, 0}, 2) == 24);
  CHECK_FAILS(EIO, cm_command(TELL_DIE, NULL, 0, (uint32_t[5]){0}, 5));
  while (!is_readable(manager)) sleep_ms(1);
  CHECK_FAILS(EFAULT, cm_command(12, (void *)0x1000, 336, NULL, 0));
  CHECK_FAILS(ENOSPC, cm_command(12, event, 323, NULL, 0));
  memset(event, 0xa5, sizeof event);
  CHECK(cm_command(12, event, 324, NULL, 0) == 16);
  CHECK(event[0] == 300 && event[1] == (1300 | 11ull << 32));
  for (int word = 2; word < 40; word++) CHECK(event[word] == 0);
  CHECK(event[41] == 0xa5a5a5a5a5a5a5a5u);
  CHECK(get_event(event) == 16);
  CHECK(event[0] == 300 && event[1] == (1300 | 10ull << 32) && event[41] == 0);
  CHECK_FAILS(EIO, get_event(event));
  CHECK_FAILS(EIO, get_event(event));
}

static void *cancelled_event_reader(void *argument) {
  uint64_t event[42];
  get_event(event);
  return argument;
}

static void cm_cancelled(void) {
  manager = open_manager();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, cancelled_event_reader, NULL) == 0);
  expect_cancelled(thread);
  CHECK(cm_command(TELL_SLOW, NULL, 0, (uint32_t[5]){0}, 5) == 36);
  CHECK(close(manager) == 0);
}

static void cm_arguments(void) {
  int first = open_manager();
  manager = open_manager();
  /* SET_OPTION: a pointer leads to the value. */
  uint32_t value = 0x11223344;
  uint32_t option[8] = {14, 24, 0, 0, 1, 0, 2, sizeof value};
  void *pointer = &value;
  memcpy(&option[2], &pointer, 8);
  CHECK(write(manager, option, sizeof option) == sizeof option);
  option[7] = 4097;
  CHECK_FAILS(EINVAL, write(manager, option, sizeof option));
  /* MIGRATE_ID: a descriptor names the file of the id. */
  uint32_t reported = ~0u;
  uint32_t migrate[6] = {18, 16 | 4 << 16, 0, 0, 3, (uint32_t)first};
  pointer = &reported;
  memcpy(&migrate[2], &pointer, 8);
  CHECK(write(manager, migrate, sizeof migrate) == sizeof migrate);
  CHECK(reported == 2);
  migrate[5] = 999;
  CHECK_FAILS(ENOENT, write(manager, migrate, sizeof migrate));
  migrate[5] = 0;
  CHECK_FAILS(EINVAL, write(manager, migrate, sizeof migrate));
  migrate[5] = (uint32_t)open_device();
  CHECK_FAILS(EINVAL, write(manager, migrate, sizeof migrate));
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      {"records", records}, {"waiting", waiting}, {"duplicates", duplicates},
      {"epolled", epolled}, {"purged", purged}, {"signals", signals},
      {"signals-in-commands", signals_in_commands}, {"cancelled", cancelled},
      {"several-readers", several_readers}, {"crowded", crowded}, {"cm-events", cm_events},
      {"cm-cancelled", cm_cancelled}, {"cm-arguments", cm_arguments},
      {"cm-disconnects", cm_disconnects}, {NULL, NULL}};
  return run_scenario(argc, argv, scenarios);
}
