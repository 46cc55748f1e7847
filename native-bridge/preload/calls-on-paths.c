/* The libc calls that take a path: device nodes, and the sysfs classes that some programs read at a
 * fixed path. For any other path they compare a few bytes. */
#include <errno.h>
#include <stdarg.h>

#include "descriptor-table.h"
#include "device-node.h"
#include "interpose.h"
#include "sysfs-tree.h"

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one layout on 64-bit machines");

/* Returns as libc does for a negative errno. */
static int failed(int error) {
  errno = -error;
  return -1;
}

/* Calls on a node; each returns 0, a negative errno or NOT_OURS. */

static int stat_node(const struct device_node *node, struct stat *status) {
  int error = device_node_exists(node);
  if (error == 0) device_node_stat(node->number, status);
  return error;
}

static int statx_node(const struct device_node *node, struct statx *status) {
  int error = device_node_exists(node);
  if (error == 0) device_node_statx(node->number, status);
  return error;
}

/* All users may read and write the nodes; none can execute them. */
static int access_node(const struct device_node *node, int mode) {
  int error = device_node_exists(node);
  if (error == 0 && (mode & X_OK) != 0) error = -EACCES;
  return error;
}

/* The device number of a descriptor that is named by an empty path; 0 if it is not ours. */
static dev_t descriptor_device(int fd, const char *path, int flags) {
  if ((flags & AT_EMPTY_PATH) == 0 || path == NULL || path[0] != '\0') return 0;
  struct endpoint *endpoint = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
  dev_t number = endpoint == NULL ? 0 : endpoint->device_number;
  if (endpoint != NULL) endpoint_put(endpoint);
  return number;
}

/* True if the daemon acts as the connection manager. */
static bool daemon_serves(void) {
  struct device_node node;
  return device_node_parse("/dev/infiniband/rdma_cm", &node) && device_node_exists(&node) == 0;
}

/* The interval, in milliseconds, at which a sleeping rpoll() checks its sockets. When a thread of
 * librdmacm takes the event of a new connection, it does not wake other waiters, so the program
 * sees the connection only at the next check; the default is 5 seconds. */
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

/* The columns of path-calls.h. */
#define NOTHING
#define ANSWER_NODE(answer)                                                                        \
  struct device_node node;                                                                         \
  int result = device_node_parse(path, &node) ? answer : NOT_OURS;                                 \
  if (result != NOT_OURS) return result < 0 ? failed(result) : result;
/* The tree is the daemon's, and all programs see it; root could write to it. */
#define IN_TREE (sysfs_redirect(directory, path, redirected) != path)
#define OPEN_NODE                                                                                  \
  ANSWER_NODE(device_node_open(&node, flags))                                                      \
  if ((flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY && IN_TREE) return failed(-EACCES);
#define STAT_NODE ANSWER_NODE(stat_node(&node, (struct stat *)status))
#define STATX_NODE ANSWER_NODE(statx_node(&node, status))
#define ACCESS_NODE ANSWER_NODE(access_node(&node, mode))
#define READ_SETTING                                                                               \
  if (path[1] == 'e') return open_rsocket_setting(path, mode);                                     \
  if ((mode[0] != 'r' || strchr(mode, '+') != NULL) && IN_TREE) {                                  \
    errno = EACCES;                                                                                \
    return NULL;                                                                                   \
  }
#define ANSWER_DESCRIPTOR(stat_by_number, target)                                                  \
  dev_t number = descriptor_device(directory, path, flags);                                        \
  if (number != 0) {                                                                               \
    stat_by_number(number, target);                                                                \
    return 0;                                                                                      \
  }
#define STAT_DESCRIPTOR ANSWER_DESCRIPTOR(device_node_stat, (struct stat *)status)
#define STATX_DESCRIPTOR ANSWER_DESCRIPTOR(device_node_statx, status)

/* libc's headers say that no path is NULL, and the compiler would drop our checks. Hide it: to the
 * kernel NULL is one more bad address. */
#define MAY_BE_NULL(path) __asm__("" : "+r"(path));

/* Calls that resolve the path: the answer is not in the tree. */
#define RESOLVE(name, ...)                                                                         \
  return sysfs_original(REAL(name)(sysfs_redirect(directory, path, redirected), ##__VA_ARGS__));

/* How glob() lists directories and looks at files, in place of calls inside libc. */
static void *open_listing(const char *path) { return opendir(path); }
static void *next_entry(void *listing) { return readdir(listing); }
static void close_listing(void *listing) { closedir(listing); }
#define GLOB(name)                                                                                 \
  if ((flags & GLOB_ALTDIRFUNC) == 0) {                                                            \
    flags |= GLOB_ALTDIRFUNC;                                                                      \
    found->gl_opendir = open_listing;                                                              \
    found->gl_readdir = (__typeof__(found->gl_readdir))next_entry;                                 \
    found->gl_closedir = close_listing;                                                            \
    found->gl_stat = name##_stat;                                                                  \
    found->gl_lstat = name##_lstat;                                                                \
  }                                                                                                \
  return REAL(name)(path, flags, on_error, found);
#define glob_stat stat
#define glob_lstat lstat
#define glob64_stat stat64
#define glob64_lstat lstat64

/* ftw() and nftw() pass paths in the tree to the program's function, so it is called by one that
 * translates them. */
static _Thread_local union {
  __ftw_func_t ftw;
  __ftw64_func_t ftw64;
  __nftw_func_t nftw;
  __nftw64_func_t nftw64;
} program_visit;

static const char *shown_path(const char *path, char shown[static REDIRECTED_MAX]) {
  size_t bytes = strlen(path) + 1;
  if (bytes > REDIRECTED_MAX) return path;
  memcpy(shown, path, bytes);
  return sysfs_original(shown);
}

#define VISIT(name, status_type)                                                                   \
  static int name##_visit(const char *path, const status_type *status, int kind) {                 \
    char shown[REDIRECTED_MAX];                                                                    \
    return program_visit.name(shown_path(path, shown), status, kind);                              \
  }
VISIT(ftw, struct stat)
VISIT(ftw64, struct stat64)

#define VISIT_PLACE(name, status_type)                                                             \
  static int name##_visit(const char *path, const status_type *status, int kind,                   \
                          struct FTW *place) {                                                     \
    char buffer[REDIRECTED_MAX];                                                                   \
    const char *shown = shown_path(path, buffer);                                                  \
    struct FTW moved = {.base = place->base - (int)(strlen(path) - strlen(shown)),                 \
                        .level = place->level};                                                    \
    return program_visit.name(shown, status, kind, &moved);                                        \
  }
VISIT_PLACE(nftw, struct stat)
VISIT_PLACE(nftw64, struct stat64)

#define WALK(name, ...)                                                                            \
  path = sysfs_redirect(directory, path, redirected);                                              \
  if (path != redirected) return REAL(name)(path, visit, __VA_ARGS__);                             \
  __typeof__(program_visit) outer = program_visit;                                                 \
  program_visit.name = visit;                                                                      \
  int walked = REAL(name)(path, name##_visit, __VA_ARGS__);                                        \
  program_visit = outer;                                                                           \
  return walked;

/* Where a relative path begins, for calls without a parameter of this name. */
static const int directory = AT_FDCWD;

/* Separate, because few calls need the memory for a path. */
#define DEFINE_SPECIAL(type, name, parameters, arguments, on_special)                              \
  static NOINLINE type special_##name parameters {                                                 \
    char redirected[REDIRECTED_MAX];                                                               \
    on_special                                                                                     \
    path = sysfs_redirect(directory, path, redirected);                                            \
    return REAL(name) arguments;                                                                   \
  }

#define DEFINE(type, name, parameters, arguments, on_special, on_ordinary)                         \
  DEFINE_SPECIAL(type, name, parameters, arguments, on_special)                                    \
  EXPORT type name parameters {                                                                    \
    MAY_BE_NULL(path)                                                                              \
    if (likely(!path_is_special(path))) {                                                          \
      on_ordinary                                                                                  \
      return REAL(name) arguments;                                                                 \
    }                                                                                              \
    return special_##name arguments;                                                               \
  }

/* The mode is there only when a file may be created. */
#define TAKE_MODE                                                                                  \
  mode_t mode = 0;                                                                                 \
  if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {                                \
    va_list rest;                                                                                  \
    va_start(rest, flags);                                                                         \
    mode = va_arg(rest, mode_t);                                                                   \
    va_end(rest);                                                                                  \
  }

#define DEFINE_VARIADIC(type, name, parameters, all_parameters, arguments, on_special)             \
  DEFINE_SPECIAL(type, name, all_parameters, arguments, on_special)                                \
  EXPORT type name parameters {                                                                    \
    MAY_BE_NULL(path)                                                                              \
    TAKE_MODE                                                                                      \
    if (likely(!path_is_special(path))) return REAL(name) arguments;                               \
    return special_##name arguments;                                                               \
  }

PATH_CALLS(DEFINE, DEFINE_VARIADIC)

/* libibverbs asks for the index of the interface that sysfs names for a GID. */
EXPORT unsigned if_nametoindex(const char *name) {
  unsigned index = REAL(if_nametoindex)(name);
  if (index != 0) return index;
  int saved = errno;
  index = sysfs_interface_index(name);
  errno = saved;
  return index;
}

/* Older libraries call these. */
EXPORT int __open(const char *path, int flags, ...) {
  TAKE_MODE
  return open(path, flags, mode);
}
EXPORT int __open64(const char *path, int flags, ...) {
  TAKE_MODE
  return open64(path, flags, mode);
}
