/* The libc calls that take a path: device nodes, and the sysfs classes that some programs read at a
 * fixed path. Any other path costs a look at its first bytes. */
#include <errno.h>
#include <stdarg.h>

#include "descriptor-table.h"
#include "device-node.h"
#include "interpose.h"

typedef int (*open_call)(const char *path, int flags, ...);
typedef int (*openat_call)(int directory, const char *path, int flags, ...);

/* The mode is there only when a file may be created. */
#define TAKE_MODE(flags, mode)                                                                     \
  mode_t mode = 0;                                                                                 \
  if (((flags) & O_CREAT) != 0 || ((flags) & O_TMPFILE) == O_TMPFILE) {                            \
    va_list arguments;                                                                             \
    va_start(arguments, flags);                                                                    \
    mode = va_arg(arguments, mode_t);                                                              \
    va_end(arguments);                                                                             \
  }

/* A negative errno as a result of libc. */
static int failed(int error) {
  errno = -error;
  return -1;
}

static NOINLINE int open_special(open_call real, const char *path, int flags, mode_t mode) {
  struct device_node node;
  if (device_node_parse(path, &node)) {
    int fd = device_node_open(&node, flags);
    if (fd == NOT_OURS) return real(path, flags, mode);
    return fd < 0 ? failed(fd) : fd;
  }
  char redirected[REDIRECTED_MAX];
  return real(sysfs_redirect(path, redirected), flags, mode);
}

/* An absolute path does not depend on the directory. */
static NOINLINE int openat_special(openat_call real, int directory, const char *path, int flags,
                                   mode_t mode) {
  struct device_node node;
  if (device_node_parse(path, &node)) {
    int fd = device_node_open(&node, flags);
    if (fd == NOT_OURS) return real(directory, path, flags, mode);
    return fd < 0 ? failed(fd) : fd;
  }
  char redirected[REDIRECTED_MAX];
  return real(directory, sysfs_redirect(path, redirected), flags, mode);
}

#define OPEN(name)                                                                                 \
  EXPORT int name(const char *path, int flags, ...) {                                              \
    TAKE_MODE(flags, mode)                                                                         \
    if (likely(!path_is_special(path))) return REAL(name)(path, flags, mode);                      \
    return open_special(REAL(name), path, flags, mode);                                            \
  }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name)                                                                              \
  EXPORT int name(int directory, const char *path, int flags, ...) {                               \
    TAKE_MODE(flags, mode)                                                                         \
    if (likely(!path_is_special(path))) return REAL(name)(directory, path, flags, mode);           \
    return openat_special(REAL(name), directory, path, flags, mode);                               \
  }
OPEN_AT(openat)
OPEN_AT(openat64)

/* The same without a mode, for fortified programs: libc aborts them when one is missing. */
#define OPEN_CHECKED(name, plain)                                                                  \
  EXPORT int name(const char *path, int flags) {                                                   \
    if (likely(!path_is_special(path))) return REAL(name)(path, flags);                            \
    return open_special(REAL(plain), path, flags, 0);                                              \
  }
OPEN_CHECKED(__open_2, open)
OPEN_CHECKED(__open64_2, open64)

#define OPEN_AT_CHECKED(name, plain)                                                               \
  EXPORT int name(int directory, const char *path, int flags) {                                    \
    if (likely(!path_is_special(path))) return REAL(name)(directory, path, flags);                 \
    return openat_special(REAL(plain), directory, path, flags, 0);                                 \
  }
OPEN_AT_CHECKED(__openat_2, openat)
OPEN_AT_CHECKED(__openat64_2, openat64)

/* What old libraries call. */
EXPORT int __open(const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  return open(path, flags, mode);
}
EXPORT int __open64(const char *path, int flags, ...) {
  TAKE_MODE(flags, mode)
  return open64(path, flags, mode);
}

/* Fills in what a device node looks like. Returns 0, a negative errno or NOT_OURS. */
static int stat_node(const char *path, struct stat *status) {
  struct device_node node;
  if (!device_node_parse(path, &node)) return NOT_OURS;
  int error = device_node_exists(&node);
  if (error == 0) device_node_stat(node.number, status);
  return error;
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit machines");

/* Each of the ways to ask for a path's status; `real` is an expression over `where`, the path that
 * may have been redirected. */
#define STAT_SPECIAL(path, status, real)                                                           \
  char redirected[REDIRECTED_MAX];                                                                 \
  int result = stat_node(path, (struct stat *)(status));                                           \
  if (result != NOT_OURS) return result < 0 ? failed(result) : 0;                                  \
  const char *where = sysfs_redirect(path, redirected);                                            \
  return real

#define STAT(name, type)                                                                           \
  static NOINLINE int special_##name(const char *path, type *status) {                             \
    STAT_SPECIAL(path, status, REAL(name)(where, status));                                         \
  }                                                                                                \
  EXPORT int name(const char *path, type *status) {                                                \
    if (likely(!path_is_special(path))) return REAL(name)(path, status);                           \
    return special_##name(path, status);                                                           \
  }
STAT(stat, struct stat)
STAT(stat64, struct stat64)
STAT(lstat, struct stat)
STAT(lstat64, struct stat64)

#define STAT_VERSIONED(name, type)                                                                 \
  static NOINLINE int special_##name(int version, const char *path, type *status) {                \
    STAT_SPECIAL(path, status, REAL(name)(version, where, status));                                \
  }                                                                                                \
  EXPORT int name(int version, const char *path, type *status) {                                   \
    if (likely(!path_is_special(path))) return REAL(name)(version, path, status);                  \
    return special_##name(version, path, status);                                                  \
  }
STAT_VERSIONED(__xstat, struct stat)
STAT_VERSIONED(__xstat64, struct stat64)
STAT_VERSIONED(__lxstat, struct stat)
STAT_VERSIONED(__lxstat64, struct stat64)

/* True for the form that asks about a descriptor. */
static bool asks_descriptor(int fd, const char *path, int flags) {
  return (flags & AT_EMPTY_PATH) != 0 && path != NULL && path[0] == '\0' &&
         descriptor_is_marked(fd);
}

#define STAT_AT(name, type, by_descriptor)                                                         \
  static NOINLINE int special_##name(int directory, const char *path, type *status, int flags) {   \
    STAT_SPECIAL(path, status, REAL(name)(directory, where, status, flags));                       \
  }                                                                                                \
  EXPORT int name(int directory, const char *path, type *status, int flags) {                      \
    if (path_is_special(path)) return special_##name(directory, path, status, flags);              \
    if (asks_descriptor(directory, path, flags)) return by_descriptor(directory, status);          \
    return REAL(name)(directory, path, status, flags);                                             \
  }
STAT_AT(fstatat, struct stat, fstat)
STAT_AT(fstatat64, struct stat64, fstat64)

#define STAT_AT_VERSIONED(name, type, by_descriptor)                                               \
  static NOINLINE int special_##name(int version, int directory, const char *path, type *status,   \
                                     int flags) {                                                  \
    STAT_SPECIAL(path, status, REAL(name)(version, directory, where, status, flags));              \
  }                                                                                                \
  EXPORT int name(int version, int directory, const char *path, type *status, int flags) {         \
    if (path_is_special(path)) return special_##name(version, directory, path, status, flags);     \
    if (asks_descriptor(directory, path, flags)) return by_descriptor(directory, status);          \
    return REAL(name)(version, directory, path, status, flags);                                    \
  }
STAT_AT_VERSIONED(__fxstatat, struct stat, fstat)
STAT_AT_VERSIONED(__fxstatat64, struct stat64, fstat64)

static NOINLINE int special_statx(int directory, const char *path, int flags, unsigned mask,
                                  struct statx *status) {
  struct device_node node;
  if (device_node_parse(path, &node)) {
    int error = device_node_exists(&node);
    if (error == 0) device_node_statx(node.number, status);
    if (error != NOT_OURS) return error < 0 ? failed(error) : 0;
  }
  char redirected[REDIRECTED_MAX];
  return REAL(statx)(directory, sysfs_redirect(path, redirected), flags, mask, status);
}

EXPORT int statx(int directory, const char *restrict path, int flags, unsigned mask,
                 struct statx *restrict status) {
  if (path_is_special(path)) return special_statx(directory, path, flags, mask, status);
  if (asks_descriptor(directory, path, flags)) {
    struct endpoint *endpoint = endpoint_get(directory);
    dev_t number = endpoint == NULL ? 0 : endpoint->device_number;
    if (endpoint != NULL) endpoint_put(endpoint);
    if (number != 0) {
      device_node_statx(number, status);
      return 0;
    }
  }
  return REAL(statx)(directory, path, flags, mask, status);
}

/* All users may read and write the nodes; none can execute them. */
static int access_node(const struct device_node *node, int mode) {
  int error = device_node_exists(node);
  if (error == 0 && (mode & X_OK) != 0) error = -EACCES;
  return error;
}

static NOINLINE int special_access(const char *path, int mode) {
  struct device_node node;
  int error = device_node_parse(path, &node) ? access_node(&node, mode) : NOT_OURS;
  if (error != NOT_OURS) return error < 0 ? failed(error) : 0;
  char redirected[REDIRECTED_MAX];
  return REAL(access)(sysfs_redirect(path, redirected), mode);
}

EXPORT int access(const char *path, int mode) {
  if (likely(!path_is_special(path))) return REAL(access)(path, mode);
  return special_access(path, mode);
}

static NOINLINE int special_faccessat(int directory, const char *path, int mode, int flags) {
  struct device_node node;
  int error = device_node_parse(path, &node) ? access_node(&node, mode) : NOT_OURS;
  if (error != NOT_OURS) return error < 0 ? failed(error) : 0;
  char redirected[REDIRECTED_MAX];
  return REAL(faccessat)(directory, sysfs_redirect(path, redirected), mode, flags);
}

EXPORT int faccessat(int directory, const char *path, int mode, int flags) {
  if (likely(!path_is_special(path))) return REAL(faccessat)(directory, path, mode, flags);
  return special_faccessat(directory, path, mode, flags);
}

static NOINLINE DIR *special_opendir(const char *path) {
  char redirected[REDIRECTED_MAX];
  return REAL(opendir)(sysfs_redirect(path, redirected));
}

EXPORT DIR *opendir(const char *path) {
  if (likely(!path_is_special(path))) return REAL(opendir)(path);
  return special_opendir(path);
}

static NOINLINE ssize_t special_readlinkat(int directory, const char *path, char *target,
                                           size_t room) {
  char redirected[REDIRECTED_MAX];
  return REAL(readlinkat)(directory, sysfs_redirect(path, redirected), target, room);
}

EXPORT ssize_t readlink(const char *restrict path, char *restrict target, size_t room) {
  if (likely(!path_is_special(path))) return REAL(readlink)(path, target, room);
  return special_readlinkat(AT_FDCWD, path, target, room);
}

EXPORT ssize_t readlinkat(int directory, const char *restrict path, char *restrict target,
                          size_t room) {
  if (likely(!path_is_special(path))) return REAL(readlinkat)(directory, path, target, room);
  return special_readlinkat(directory, path, target, room);
}

/* True if the daemon acts as the connection manager. */
static bool daemon_serves(void) {
  struct device_node node;
  return device_node_parse("/dev/infiniband/rdma_cm", &node) && device_node_exists(&node) == 0;
}

/* Milliseconds after which an rpoll() that sleeps looks at its sockets again. A thread of librdmacm
 * takes the event of a new connection and does not wake those that wait for it, so the program
 * notices the connection only after this time; by default 5 seconds. */
static char wake_up_interval[] = "20\n";

/* An administrator's setting takes precedence. */
static FILE *open_rsocket_setting(const char *path, const char *mode) {
  FILE *file = REAL(fopen)(path, mode);
  if (file != NULL || errno != ENOENT || strcmp(mode, "r") != 0) return file;
  if (strcmp(path, RSOCKET_FOLDER "wake_up_interval") == 0 && daemon_serves()) {
    return fmemopen(wake_up_interval, sizeof wake_up_interval - 1, "r");
  }
  errno = ENOENT;
  return NULL;
}

static NOINLINE FILE *special_fopen(const char *path, const char *mode) {
  char redirected[REDIRECTED_MAX];
  if (path[1] == 'e') return open_rsocket_setting(path, mode);
  return REAL(fopen)(sysfs_redirect(path, redirected), mode);
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode) {
  if (likely(!path_is_special(path))) return REAL(fopen)(path, mode);
  return special_fopen(path, mode);
}

EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode) {
  if (likely(!path_is_special(path))) return REAL(fopen64)(path, mode);
  return special_fopen(path, mode);
}
