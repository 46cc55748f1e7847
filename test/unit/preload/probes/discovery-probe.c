/* Finding devices, with and without a daemon; a daemon that ends or lies. */
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <sys/xattr.h>

#include "probe.h"

static int open_netlink(void) { return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA); }

static void netlink(void) {
  int fd = open_netlink();
  CHECK(fd >= 0);
  CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
  int size = 32768;
  CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size) == 0);
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size) == 0);
  CHECK(setsockopt(fd, 270, 11, &size, sizeof size) == 0);
  struct sockaddr_nl local = {.nl_family = AF_NETLINK, .nl_pid = 0x400123};
  CHECK(bind(fd, (struct sockaddr *)&local, sizeof local) == 0);
  struct sockaddr_nl name;
  socklen_t name_bytes = sizeof name;
  memset(&name, 0xff, sizeof name);
  CHECK(getsockname(fd, (struct sockaddr *)&name, &name_bytes) == 0);
  CHECK(name_bytes == 12 && name.nl_family == AF_NETLINK && name.nl_pid == 0x400123);

  /* The played daemon answers a message with two datagrams: the message, and "second". */
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  char part_one[20] = "0123456789abcdefghi";
  char part_two[4] = "tail";
  struct iovec parts[2] = {{part_one, sizeof part_one}, {part_two, sizeof part_two}};
  struct msghdr message = {
      .msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = parts, .msg_iovlen = 2};
  CHECK(sendmsg(fd, &message, 0) == 24);
  char received[64];
  struct iovec vector = {received, 10};
  memset(&name, 0xff, sizeof name);
  struct msghdr answer = {
      .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &vector, .msg_iovlen = 1};
  CHECK(recvmsg(fd, &answer, MSG_PEEK | MSG_TRUNC) == 24);
  CHECK((answer.msg_flags & MSG_TRUNC) != 0);
  vector.iov_len = sizeof received;
  answer.msg_namelen = sizeof name;
  CHECK(recvmsg(fd, &answer, 0) == 24);
  CHECK(memcmp(received, "0123456789abcdefghi\0tail", 24) == 0);
  CHECK(answer.msg_namelen == 12 && answer.msg_controllen == 0 && answer.msg_flags == 0);
  CHECK(name.nl_family == AF_NETLINK && name.nl_pid == 0);
  socklen_t from_bytes = sizeof name;
  CHECK(recvfrom(fd, received, sizeof received, 0, (struct sockaddr *)&name, &from_bytes) == 6);
  CHECK(memcmp(received, "second", 6) == 0 && from_bytes == 12);
  /* No reply is pending, so there is nothing to wait for. */
  CHECK_FAILS(EAGAIN, recv(fd, received, sizeof received, 0));
  CHECK(sendto(fd, part_one, 20, 0, (struct sockaddr *)&kernel, sizeof kernel) == 20);
  CHECK(recv(fd, received, sizeof received, 0) == 20);
  CHECK(read(fd, received, sizeof received) == 6);
  CHECK_FAILS(EMSGSIZE, send(fd, part_one, 17 * 1024, 0));
  CHECK(close(fd) == 0);
  CHECK(count_descriptors() == initial_descriptors);
}

/* Messages that cannot be read, or not to their end, and buffers that cannot be written. */
static void bad_netlink(void) {
  int fd = open_netlink();
  CHECK(fd >= 0);
  char *pages = map_pages(2);
  CHECK(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
  void *bad[] = {pages + 4096, pages + 4096 - 8, NULL, (void *)0x1000, (void *)0xfffffffffffffffcu};
  char bytes[64] = "0123456789abcdefghi";
  for (size_t index = 0; index < sizeof bad / sizeof bad[0]; index++) {
    struct iovec vector = {.iov_base = bad[index], .iov_len = 20};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    CHECK_FAILS(EFAULT, send(fd, bad[index], 20, 0));
    CHECK_FAILS(EFAULT, write(fd, bad[index], 20));
    CHECK_FAILS(EFAULT, sendmsg(fd, bad[index], 0));
    CHECK_FAILS(EFAULT, bind(fd, bad[index], sizeof(struct sockaddr_nl)));
    socklen_t length = sizeof(struct sockaddr_nl);
    CHECK_FAILS(EFAULT, getsockname(fd, bad[index], &length));
    CHECK(send(fd, bytes, 20, 0) == 20);
    CHECK_FAILS(EFAULT, recvmsg(fd, &message, 0));
    CHECK_FAILS(EFAULT, recvmsg(fd, bad[index], 0));
    CHECK_FAILS(EFAULT, read(fd, bad[index], 20));
    message.msg_iov = bad[index];
    CHECK_FAILS(EFAULT, sendmsg(fd, &message, 0));
    CHECK_FAILS(EFAULT, recvmsg(fd, &message, 0));
    /* The data that could not be stored are still queued. */
    CHECK(recv(fd, bytes, sizeof bytes, 0) == 20 && memcmp(bytes, "0123456789abcdefghi", 20) == 0);
    CHECK(recv(fd, bytes + 32, 32, 0) == 6);
  }
  struct sockaddr_nl name;
  CHECK_FAILS(EFAULT, getsockname(fd, (struct sockaddr *)&name, (socklen_t *)(pages + 4096)));
  CHECK(close(fd) == 0);
}

#define WAKE_UP_INTERVAL "/etc/rdma/rsocket/wake_up_interval"

static bool interval_is_set(void) {
  return syscall(SYS_faccessat, AT_FDCWD, WAKE_UP_INTERVAL, R_OK) == 0;
}

/* The file that librdmacm reads when it creates its first rsocket. */
static void rsockets(void) {
  FILE *file = fopen(WAKE_UP_INTERVAL, "r");
  CHECK(file != NULL);
  int milliseconds = 0;
  CHECK(fscanf(file, "%d", &milliseconds) == 1);
  CHECK(interval_is_set() || milliseconds == 20);
  CHECK(fclose(file) == 0);
  CHECK(fopen("/etc/rdma/rsocket/no-such-setting", "r") == NULL && errno == ENOENT);
  CHECK(interval_is_set() || (fopen(WAKE_UP_INTERVAL, "r+") == NULL && errno == ENOENT));
  CHECK(count_descriptors() == initial_descriptors);
}

/* Without a daemon, the results are those of the system. */
static void absent(void) {
  struct stat status;
  struct statx extended;
  bool exists =
      syscall(SYS_statx, AT_FDCWD, "/dev/infiniband/uverbs0", 0, STATX_TYPE, &extended) == 0;
  CHECK((stat("/dev/infiniband/uverbs0", &status) == 0) == exists);
  int real = (int)syscall(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
  int real_errno = errno;
  int fd = open_netlink();
  CHECK((fd >= 0) == (real >= 0));
  CHECK(fd >= 0 || errno == real_errno);
  if (!exists) {
    CHECK_FAILS(ENOENT, open("/dev/infiniband/uverbs0", O_RDWR));
    CHECK_FAILS(ENOENT, open("/dev/infiniband/rdma_cm", O_RDWR));
    CHECK_FAILS(ENOENT, access("/dev/infiniband/rdma_cm", F_OK));
  }
  CHECK((fopen(WAKE_UP_INTERVAL, "r") != NULL) == interval_is_set());
}

static int dying;

static void *blocked_command(void *argument) {
  CHECK_FAILS(EIO, tell(dying, TELL_SILENCE, 0, 0, 0, 0));
  return argument;
}

static void *blocked_read(void *argument) {
  uint64_t value;
  CHECK_FAILS(EIO, read(*(int *)argument, &value, sizeof value));
  return argument;
}

static void dies(void) {
  dying = open_device();
  int other = open_device();
  int events = get_context(dying);
  int channel = create_channel(dying);
  int manager = open("/dev/infiniband/rdma_cm", O_RDWR);
  int netlink_fd = open_netlink();
  pthread_t threads[2];
  CHECK(pthread_create(&threads[0], NULL, blocked_command, NULL) == 0);
  CHECK(pthread_create(&threads[1], NULL, blocked_read, &channel) == 0);
  sleep_ms(100);
  CHECK_FAILS(EIO, tell(other, TELL_DIE, 0, 0, 0, 0));
  for (int index = 0; index < 2; index++) CHECK(pthread_join(threads[index], NULL) == 0);
  CHECK_FAILS(EIO, tell(dying, TELL_SLOW, 0, 0, 0, 0));
  /* The device is reported dead once. */
  uint32_t record[4];
  CHECK(is_readable(events));
  set_nonblocking(events, true);
  CHECK(read(events, record, sizeof record) == sizeof record);
  CHECK(record[2] == 8);
  CHECK_FAILS(EIO, read(events, record, sizeof record));
  uint64_t event[42];
  void *pointer = event;
  uint32_t get_event[4] = {12, 8 | 336u << 16};
  memcpy(&get_event[2], &pointer, 8);
  CHECK_FAILS(EIO, write(manager, get_event, sizeof get_event));
  CHECK_FAILS(EIO, send(netlink_fd, event, 16, 0));
  pid_t child = fork();
  if (child == 0) {
    CHECK_FAILS(EIO, tell(dying, TELL_SLOW, 0, 0, 0, 0));
    _exit(0);
  }
  check_child(child);
  /* A new query finds no device. */
  absent();
  CHECK(close(dying) == 0 && close(channel) == 0 && close(events) == 0 && close(manager) == 0);
}

/* Whatever the daemon answers, the program gets an error and its memory stays whole. */
static void lies(void) {
  for (uint32_t kind = 0; kind < 12; kind++) {
    int fd = open_device();
    uint64_t guarded[6] = {1, 2, 3, 4, 5, 6};
    uint32_t words[2] = {kind, 0};
    int result = (int)command(fd, TELL_BREAK, &guarded[2], 8, words, 2);
    if (result != -1 || errno != EIO) fprintf(stderr, "lie %u was believed\n", kind);
    CHECK(result == -1 && errno == EIO);
    CHECK(guarded[1] == 2 && guarded[3] == 4);
    CHECK_FAILS(EIO, tell(fd, TELL_SLOW, 0, 0, 0, 0));
    CHECK(close(fd) == 0);
  }
  CHECK(count_descriptors() == initial_descriptors);
  alloc_pd(open_device());
}

static void sysfs(void) {
  char text[64] = {0};
  int fd = open("/sys/class/infiniband/iwarp0/node_type", O_RDONLY);
  CHECK(fd >= 0);
  CHECK(read(fd, text, sizeof text) == 8 && memcmp(text, "4: RNIC\n", 8) == 0);
  FILE *file = fopen("/sys/class/infiniband_verbs/abi_version", "r");
  CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && text[0] == '6');
  struct stat status;
  CHECK(stat("/sys/class/infiniband/iwarp0", &status) == 0 && S_ISDIR(status.st_mode));
  CHECK(access("/sys/class/infiniband/iwarp0/node_type", R_OK) == 0);
  CHECK_FAILS(ENOENT, access("/sys/class/infiniband/other", F_OK));
  CHECK(stat("/sys/class", &status) == 0);
  CHECK(access("/sys/class/infiniband_other", F_OK) == -1);
  CHECK(access("//sys//class/./infiniband///iwarp0/node_type", R_OK) == 0);
  CHECK(access("/sys/./class/infiniband/iwarp0/./node_type", R_OK) == 0);
  CHECK_FAILS(ENOENT, access("/sys//class/infiniband/other", F_OK));
  /* All programs see the tree, and root has every right. */
  const char *type = "/sys/class/infiniband/iwarp0/node_type";
  CHECK_FAILS(EACCES, open(type, O_WRONLY | O_CREAT | O_TRUNC, 0644));
  CHECK_FAILS(EACCES, open(type, O_RDWR));
  CHECK_FAILS(EACCES, open("/sys/class/infiniband/mine", O_WRONLY | O_CREAT, 0644));
  CHECK(fopen(type, "w") == NULL && errno == EACCES);
  CHECK(fopen(type, "r+") == NULL && errno == EACCES);
}

#define FUNCTION "/sys/devices/pci1000:01/1000:01:00.0"

/* The ways by which programs find the PCI function of a device: links, descriptors of "/", and functions of
 * libc that open directories themselves. */
static void rails(void) {
  char path[PATH_MAX];
  CHECK(realpath("/sys/class/infiniband/roce0", path) == path);
  CHECK(strcmp(path, FUNCTION "/infiniband/roce0") == 0);
  char *allocated = realpath("/sys/class/infiniband/roce0/../..", NULL);
  CHECK(allocated != NULL && strcmp(allocated, FUNCTION) == 0);
  free(allocated);
  allocated = canonicalize_file_name("/sys/class/net/rail0");
  CHECK(allocated != NULL && strcmp(allocated, FUNCTION "/net/rail0") == 0);
  free(allocated);
  CHECK(realpath("/sys/class/infiniband/iwarp0", path) == path);
  CHECK(strcmp(path, "/sys/class/infiniband/iwarp0") == 0);
  CHECK(realpath("/sys/class/infiniband/other", path) == NULL && errno == ENOENT);
  CHECK(realpath("/usr/../etc/passwd", path) == path && strcmp(path, "/etc/passwd") == 0);
  CHECK(access(FUNCTION "/net", F_OK) == 0);
  CHECK_FAILS(ENOENT, access("/sys/devices/pci1000:02", F_OK));

  glob_t found;
  CHECK(glob("/sys/class/infiniband/r*/node_type", 0, NULL, &found) == 0 && found.gl_pathc == 1);
  CHECK(strcmp(found.gl_pathv[0], "/sys/class/infiniband/roce0/node_type") == 0);
  globfree(&found);
  struct dirent **names;
  CHECK(scandir("/sys/class/infiniband", &names, NULL, alphasort) == 4);
  CHECK(strcmp(names[2]->d_name, "iwarp0") == 0 && strcmp(names[3]->d_name, "roce0") == 0);

  int root = open("/", O_RDONLY | O_DIRECTORY);
  int other = open("/usr", O_RDONLY | O_DIRECTORY);
  CHECK(readlinkat(root, "sys/class/infiniband/roce0", path, sizeof path) > 0);
  CHECK_FAILS(ENOENT, openat(other, "sys/class/infiniband/roce0/node_type", O_RDONLY));
  CHECK_FAILS(EBADF, openat(-1, "sys/class/infiniband/roce0/node_type", O_RDONLY));
  CHECK(openat(root, "sys/class/infiniband/roce0/node_type", O_RDONLY) >= 0);
  CHECK(chdir("/") == 0 && open("sys/class/infiniband/roce0/node_type", O_RDONLY) >= 0);
  CHECK(chdir("/sys/class/infiniband/roce0") == 0 && access("node_type", F_OK) == 0);
  CHECK(access("sys/class/infiniband/roce0/node_type", F_OK) == -1);
  CHECK(lgetxattr("/sys/class/infiniband/roce0", "user.none", path, sizeof path) == -1);
  CHECK(errno != ENOENT);

  CHECK(if_nametoindex("rail0") == 7 && if_nametoindex("lo") > 0);
  CHECK(if_nametoindex("rail1") == 0 && errno == ENODEV);
  CHECK(if_nametoindex("../net/rail0") == 0 && if_nametoindex("") == 0);
}

static int visits;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status;
  (void)kind;
  CHECK(strncmp(path, FUNCTION, strlen(FUNCTION)) == 0);
  CHECK(place->level < 1 || path[place->base - 1] == '/');
  if (strcmp(path + place->base, "node_type") == 0) visits++;
  return 0;
}

static int visit_file(const char *path, const struct stat *status, int kind) {
  (void)status;
  if (kind == FTW_F) CHECK(strcmp(path, "/sys/class/infiniband/iwarp0/node_type") == 0);
  return 0;
}

/* Walks through directories, and the list of device nodes. */
static void walks(void) {
  CHECK(nftw(FUNCTION, visit, 8, FTW_PHYS) == 0 && visits == 1);
  CHECK(ftw("/sys/class/infiniband/iwarp0", visit_file, 8) == 0);
  CHECK(nftw("/no/such/folder", visit, 8, 0) == -1);

  DIR *nodes = opendir("/dev/infiniband");
  CHECK(nodes != NULL);
  int found = 0;
  for (struct dirent *entry; (entry = readdir(nodes)) != NULL;) {
    if (strcmp(entry->d_name, "rdma_cm") == 0) found++;
  }
  CHECK(closedir(nodes) == 0 && found == 1);
  struct stat status;
  CHECK(stat("/dev/infiniband/", &status) == 0 && S_ISDIR(status.st_mode));
  CHECK(stat("/dev/infiniband/rdma_cm", &status) == 0 && S_ISCHR(status.st_mode));
  char *folder = realpath("/dev/infiniband", NULL);
  CHECK(folder != NULL && strcmp(folder, "/dev/infiniband") == 0);
  glob_t matches;
  CHECK(glob("/dev/infiniband/*", 0, NULL, &matches) == 0 && matches.gl_pathc == 1);
  CHECK(strcmp(matches.gl_pathv[0], "/dev/infiniband/rdma_cm") == 0);
}

static double nanoseconds_of(void (*call)(void)) {
  const int rounds = 20000;
  double best = 1e9;
  for (int batch = 0; batch < 20; batch++) {
    double start = now_ms();
    for (int round = 0; round < rounds; round++) call();
    double each = (now_ms() - start) * 1e6 / rounds;
    if (each < best) best = each;
  }
  return best;
}

static int null_device;

static void write_byte(void) { CHECK(write(null_device, "", 1) == 1); }

static void close_nothing(void) { CHECK(close(-1) == -1); }

/* Time of calls on ordinary descriptors: the best of several batches. */
static void cost(void) {
  null_device = open("/dev/null", O_RDWR);
  printf("%.1f %.1f\n", nanoseconds_of(write_byte), nanoseconds_of(close_nothing));
}

int main(int argc, char **argv) {
  static const struct scenario scenarios[] = {
      {"netlink", netlink}, {"bad-netlink", bad_netlink}, {"rsockets", rsockets},
      {"absent", absent}, {"dies", dies}, {"lies", lies}, {"sysfs", sysfs}, {"rails", rails}, {"walks", walks},
      {"cost", cost}, {NULL, NULL}};
  return run_scenario(argc, argv, scenarios);
}
