/* See daemon-connection.h. */
#include "daemon-connection.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "explain.h"
#include "raw-call.h"

_Static_assert(ECONNREFUSED == 111, "see daemon_is_absent");

/* Concatenates `parts`. False when they do not fit. */
static bool join_path(char *target, size_t size, const char *const *parts, size_t count) {
  size_t at = 0;
  for (size_t part = 0; part < count; part++) {
    size_t length = strlen(parts[part]);
    if (at + length >= size) return false;
    memcpy(target + at, parts[part], length);
    at += length;
  }
  target[at] = '\0';
  return true;
}

static void number_text(uint32_t number, char text[static 12]) {
  char reversed[12];
  int digits = 0;
  do {
    reversed[digits++] = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  for (int digit = 0; digit < digits; digit++) text[digit] = reversed[digits - 1 - digit];
  text[digits] = '\0';
}

static const char *environment(const char *name) {
  const char *value = secure_getenv(name);
  return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Where the daemon listens, as daemon/contract/protocol/ipc-admin.ts has it. */
static bool socket_address(struct sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  size_t size = sizeof address->sun_path;
  const char *named = environment("IWARPD_SOCKET");
  if (named != NULL) return join_path(address->sun_path, size, &named, 1);
  const char *runtime = environment("XDG_RUNTIME_DIR");
  if (runtime != NULL) {
    const char *parts[] = {runtime, "/iwarpd/iwarpd.sock"};
    return join_path(address->sun_path, size, parts, 2);
  }
  const char *temporary = environment("TMPDIR");
  if (temporary == NULL) temporary = environment("TMP");
  if (temporary == NULL) temporary = environment("TEMP");
  if (temporary == NULL) temporary = "/tmp";
  char user[12];
  number_text(geteuid(), user);
  size_t length = strlen(temporary);
  bool slash = length > 1 && temporary[length - 1] == '/';
  const char *parts[] = {temporary, slash ? "iwarpd-" : "/iwarpd-", user, "/iwarpd.sock"};
  return join_path(address->sun_path, size, parts, 4);
}

int receive_exactly(int fd, void *target, size_t length) {
  size_t done = 0;
  while (done < length) {
    /* Receive all in one call: while it waits, the descriptor may move and its number may become
     * the program's. */
    ssize_t received = raw_recv(fd, (char *)target + done, length - done, MSG_WAITALL);
    if (received > 0) done += (size_t)received;
    else if (received == 0) return -ECONNRESET;
    else if (errno != EINTR) return -errno;
  }
  return 0;
}

bool message_advance(struct msghdr *message, size_t sent) {
  size_t rest = sent;
  while (message->msg_iovlen > 0 && rest >= message->msg_iov->iov_len) {
    rest -= message->msg_iov->iov_len;
    message->msg_iov++;
    message->msg_iovlen--;
  }
  if (message->msg_iovlen == 0) return true;
  message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + rest;
  message->msg_iov->iov_len -= rest;
  return false;
}

int send_all(int fd, struct msghdr *message) {
  for (;;) {
    ssize_t sent = raw_sendmsg(fd, message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) return -errno;
      /* The program may have made its descriptor of this socket non-blocking. */
      int ready = raw_poll(fd, POLLOUT, DAEMON_TIMEOUT_S * 1000);
      if (ready == 0) return -ETIMEDOUT;
      if (ready < 0 && errno != EINTR) return -errno;
      continue;
    }
    if (message_advance(message, (size_t)sent)) return 0;
  }
}

static void set_timeouts(int fd, time_t seconds) {
  struct timeval limit = {.tv_sec = seconds};
  raw_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  raw_setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

/* The listening process, as the kernel recorded it. */
static struct ucred listener(int fd) {
  struct ucred peer = {.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
  socklen_t length = sizeof peer;
  syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
  return peer;
}

/* The user whose daemon is trusted besides this user's and root's: $IWARPD_ALLOW_DAEMON_UID in
 * decimal. False if that is not a user id. */
static bool allowed_user(uid_t *user) {
  const char *text = environment("IWARPD_ALLOW_DAEMON_UID");
  if (text == NULL) return false;
  uint64_t number = 0;
  size_t digits = 0;
  for (; text[digits] >= '0' && text[digits] <= '9'; digits++) {
    if (digits == 10) return false;
    number = number * 10 + (uint64_t)(text[digits] - '0');
  }
  if (text[digits] != '\0' || number >= (uid_t)-1) return false;
  *user = (uid_t)number;
  return true;
}

/* A daemon reads and writes the memory of its programs, and anyone may own a socket in a shared
 * directory or named by the environment. */
static bool is_trusted(uid_t user) {
  uid_t allowed;
  if (user == geteuid() || user == 0) return true;
  return allowed_user(&allowed) && user == allowed;
}

static void report_other_user(const char *path, uid_t user) {
  char listener_text[12];
  char own_text[12];
  number_text(user, listener_text);
  number_text(geteuid(), own_text);
  const char *parts[] = {"refusing the daemon at ",
                         path,
                         ": it runs as uid ",
                         listener_text,
                         ", not as you (uid ",
                         own_text,
                         ") or root; if you trust it, set IWARPD_ALLOW_DAEMON_UID=",
                         listener_text};
  explain_absence(parts, sizeof parts / sizeof *parts);
}

static void report_other_version(uint16_t version) {
  char daemon_text[12];
  char own_text[12];
  number_text(version, daemon_text);
  number_text(IPC_VERSION, own_text);
  const char *parts[] = {"the daemon speaks version ",
                         daemon_text,
                         " of the protocol, the preload library ",
                         own_text,
                         ": use both from the same release"};
  explain_absence(parts, sizeof parts / sizeof *parts);
}

/* Only if the environment names a daemon: programs without RDMA never connect, and those that may
 * use the machine's own devices have no IWARPD_SOCKET. */
static void report_unreachable(const char *path, int error) {
  if (environment("IWARPD_SOCKET") == NULL) return;
  const char *absent[] = {"no daemon at ", path, "; start it with: iwarpd start --socket ", path};
  const char *barred[] = {"cannot reach the daemon at ", path,
                          ": permission denied; it is another user's: start one of your own"};
  if (error == EACCES || error == EPERM) explain_absence(barred, sizeof barred / sizeof *barred);
  else explain_absence(absent, sizeof absent / sizeof *absent);
}

/* For a forked child whose program gave up its rights before the fork. */
static void report_barred_child(const char *path) {
  const char *parts[] = {"cannot reach the daemon at ", path,
                         " to use an inherited device: the program had given up its user, root "
                         "directory or namespaces before it forked this process; fork first"};
  explain_absence(parts, sizeof parts / sizeof *parts);
}

static void report_silent(void) {
  const char *parts[] = {
      "the daemon accepts connections but does not answer; see its log, or start it again"};
  explain_absence(parts, 1);
}

/* The daemon refused this program and sent the reason. */
static void report_refused(const char *text, size_t length) {
  char reason[WELCOME_TEXT_MAX + 1];
  memcpy(reason, text, length);
  reason[length] = '\0';
  const char *parts[] = {"the daemon refuses this program: ", reason};
  explain_absence(parts, sizeof parts / sizeof *parts);
}

/* Connects to the daemon. Returns a socket or a negative errno. `barred`: a failure means that this
 * process lacks rights, since the daemon is alive. */
static int connect_socket(bool barred, pid_t *daemon) {
  struct sockaddr_un address;
  if (!socket_address(&address)) return -ECONNREFUSED;
  int fd = (int)syscall(SYS_socket, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  set_timeouts(fd, DAEMON_TIMEOUT_S);
  while (syscall(SYS_connect, fd, &address, sizeof address) != 0) {
    if (errno == EINTR) continue;
    if (barred) report_barred_child(address.sun_path);
    else report_unreachable(address.sun_path, errno);
    raw_close(fd);
    return -ECONNREFUSED;
  }
  struct ucred peer = listener(fd);
  *daemon = peer.pid;
  if (is_trusted(peer.uid)) return fd;
  report_other_user(address.sun_path, peer.uid);
  raw_close(fd);
  return -ECONNREFUSED;
}

/* Parses the number at `*at`, 0 if there is none, and advances past the character after it. */
static uint64_t parse_number(const char *text, size_t length, size_t *at) {
  uint64_t number = 0;
  while (*at < length && text[*at] >= '0' && text[*at] <= '9') {
    number = number * 10 + (uint64_t)(text[*at] - '0');
    ++*at;
  }
  if (*at < length) ++*at;
  return number;
}

/* The errno of a refusal: -ECONNREFUSED if the program is to continue as without the shim. */
static int refusal(uint32_t error) {
  if (error == EACCES || error == EPROTO || error == ETIMEDOUT || error > 4095)
    return -ECONNREFUSED;
  return -(int)error;
}

static int greet(int fd, enum role role, const uint8_t *token, struct welcome *welcome) {
  struct hello hello = {
      .frame = {.payload_bytes = sizeof hello - sizeof hello.frame, .type = FRAME_HELLO},
      .magic = IPC_MAGIC,
      .version = IPC_VERSION,
      .role = (uint8_t)role,
  };
  if (token != NULL) memcpy(hello.token, token, TOKEN_BYTES);
  struct iovec vector = {.iov_base = &hello, .iov_len = sizeof hello};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  struct frame_header frame;
  struct {
    struct welcome_head head;
    char text[WELCOME_TEXT_MAX];
  } answer;
  /* A daemon that refuses at once may have closed the socket; its answer can still be read. */
  int sent = send_all(fd, &message);
  int received = receive_exactly(fd, &frame, sizeof frame);
  if (received == -EAGAIN) report_silent();
  if (received != 0) return -ECONNREFUSED;
  if (frame.type != FRAME_WELCOME || frame.payload_bytes < sizeof answer.head ||
      frame.payload_bytes > sizeof answer) {
    return -ECONNREFUSED;
  }
  if (receive_exactly(fd, &answer, frame.payload_bytes) != 0) return -ECONNREFUSED;
  if (answer.head.magic != IPC_MAGIC) return -ECONNREFUSED;
  if (answer.head.version != IPC_VERSION) {
    report_other_version(answer.head.version);
    return -ECONNREFUSED;
  }
  size_t text_bytes = frame.payload_bytes - sizeof answer.head;
  if (answer.head.error != 0) {
    int error = refusal(answer.head.error);
    if (daemon_is_absent(error)) report_refused(answer.text, text_bytes);
    return error;
  }
  if (sent != 0) return -ECONNREFUSED;
  memcpy(welcome->token, answer.head.token, TOKEN_BYTES);
  size_t at = 0;
  welcome->number = (uint32_t)parse_number(answer.text, text_bytes, &at);
  welcome->place = parse_number(answer.text, text_bytes, &at);
  return 0;
}

int daemon_greet(int fd, enum role role, const uint8_t *token, struct welcome *welcome) {
  int saved = errno;
  set_timeouts(fd, DAEMON_TIMEOUT_S);
  int error = greet(fd, role, token, welcome);
  if (error == 0) {
    /* A program may wait for an event without limit, and a timeout would
     * break SA_RESTART. */
    if (role == ROLE_EVENT || role == ROLE_AGENT) set_timeouts(fd, 0);
  } else {
    raw_close(fd);
  }
  errno = saved;
  return error == 0 ? fd : error;
}

int daemon_connect(enum role role, const uint8_t *token, struct welcome *welcome) {
  return daemon_rejoin(role, token, false, welcome);
}

int daemon_rejoin(enum role role, const uint8_t *token, bool daemon_lives,
                  struct welcome *welcome) {
  int saved = errno;
  memset(welcome, 0, sizeof *welcome);
  int fd = connect_socket(daemon_lives, &welcome->daemon);
  if (fd >= 0) fd = daemon_greet(fd, role, token, welcome);
  errno = saved;
  return fd;
}
