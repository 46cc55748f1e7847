/* See sysfs-tree.h. */
#include "sysfs-tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interpose.h"
#include "raw-call.h"

/* The machine's own RDMA devices are hidden while the tree exists. */
#define DEVICE_CLASS "class/infiniband"
/* The machine's NUMA nodes are hidden if the tree has others. */
#define NUMA_NODES "devices/system/node"

/* Whether `rest`, a path below /sys, is in `folder`. */
static bool is_in(const char *rest, const char *folder) {
  size_t length = strlen(folder);
  return strncmp(rest, folder, length) == 0 && (rest[length] == '\0' || rest[length] == '/');
}

static bool is_device_class(const char *rest) {
  return is_in(rest, DEVICE_CLASS) || is_in(rest, DEVICE_CLASS "_verbs");
}

/* Whether the tree may have `rest` beside what the machine has there. */
static bool is_shared(const char *rest) {
  return is_in(rest, "class/net") || is_in(rest, "class/pci_bus") ||
         is_in(rest, "bus/pci/devices") || strncmp(rest, "devices/pci", 11) == 0;
}

/* Whether it lists the NUMA nodes whose memory a control group may use. */
static bool is_allowed_nodes(const char *rest) {
  const char *name = strrchr(rest, '/');
  return is_in(rest, "fs/cgroup") && name != NULL &&
         (strcmp(name, "/cpuset.mems") == 0 || strcmp(name, "/cpuset.mems.effective") == 0);
}

/* The directory of device nodes, of which the tree has a list. */
static bool is_node_folder(const char *path) {
  return strcmp(path, "/dev/infiniband") == 0 || strcmp(path, "/dev/infiniband/") == 0;
}

static bool same_file(int directory, const char *path, const struct stat *other) {
  struct stat status;
  return syscall(SYS_newfstatat, directory, path, &status, 0) == 0 &&
         status.st_dev == other->st_dev && status.st_ino == other->st_ino;
}

/* The part of the path below "/sys/"; NULL for other paths. */
static const char *below_sysfs(int directory, const char *path) {
  struct stat root;
  if (strncmp(path, "/sys/", 5) == 0) return path + 5;
  if (strncmp(path, "sys/", 4) != 0 ||
      syscall(SYS_newfstatat, AT_FDCWD, "/", &root, 0) != 0 || !same_file(directory, ".", &root)) {
    return NULL;
  }
  return path + 4;
}

/* Writes "$SYSFS_PATH/" + "rest" to `target`. False if they do not fit, or there is no tree. */
static bool path_in_tree(char target[static REDIRECTED_MAX], const char *rest) {
  const char *root = secure_getenv("SYSFS_PATH");
  if (root == NULL || root[0] != '/') return false;
  size_t length = strlen(root);
  while (length > 0 && root[length - 1] == '/') length--;
  if (length == 4 && strncmp(root, "/sys", 4) == 0) return false;
  size_t rest_bytes = strlen(rest) + 1;
  if (length + 1 + rest_bytes > REDIRECTED_MAX) return false;
  memcpy(target, root, length);
  target[length] = '/';
  memcpy(target + length + 1, rest, rest_bytes);
  return true;
}

static bool tree_has(char target[static REDIRECTED_MAX], const char *rest) {
  return path_in_tree(target, rest) && syscall(SYS_faccessat, AT_FDCWD, target, F_OK) == 0;
}

/* The path without repeated slashes and "/./", which programs make when they join paths. */
static const char *without_repeats(const char *path, char buffer[static REDIRECTED_MAX]) {
  if (strstr(path, "//") == NULL && strstr(path, "/./") == NULL) return path;
  size_t length = 0;
  for (const char *next = path; *next != '\0'; next++) {
    if (length == REDIRECTED_MAX - 1) return path;
    bool after_slash = length > 0 && buffer[length - 1] == '/';
    if (after_slash && *next == '/') continue;
    if (after_slash && next[0] == '.' && next[1] == '/') continue;
    buffer[length++] = *next;
  }
  buffer[length] = '\0';
  return buffer;
}

const char *sysfs_redirect(int directory, const char *given,
                           char redirected[static REDIRECTED_MAX]) {
  int saved = errno;
  char buffer[REDIRECTED_MAX];
  const char *path = without_repeats(given, buffer);
  const char *rest = below_sysfs(directory, path);
  bool found = false;
  if (rest == NULL) {
    found = is_node_folder(path) && tree_has(redirected, path + 1);
  } else if (is_device_class(rest)) {
    /* Once the daemon and its tree are gone, show the machine's own devices. */
    found = tree_has(redirected, DEVICE_CLASS) && path_in_tree(redirected, rest);
  } else if (is_in(rest, NUMA_NODES)) {
    found = tree_has(redirected, NUMA_NODES) && path_in_tree(redirected, rest);
  } else if (is_allowed_nodes(rest)) {
    /* All of them: the machine's numbers mean other nodes. */
    found = tree_has(redirected, NUMA_NODES "/online");
  } else if (is_shared(rest)) {
    found = tree_has(redirected, rest);
  }
  errno = saved;
  return found ? redirected : given;
}

/* Replaces `tree` at the beginning of the path. False if the path is not in it. */
static bool leave_tree(char *path, const char *tree) {
  size_t length = strlen(tree);
  while (length > 0 && tree[length - 1] == '/') length--;
  /* The result must fit where the path is. */
  if (length < 4 || strncmp(path, tree, length) != 0 || path[length] != '/') return false;
  size_t kept = is_node_folder(path + length) ? 0 : 4;
  memmove(path + kept, path + length, strlen(path + length) + 1);
  memcpy(path, "/sys", kept);
  return true;
}

char *sysfs_original(char *path) {
  char tree[REDIRECTED_MAX];
  char real[PATH_MAX];
  if (path == NULL || !path_in_tree(tree, "") || leave_tree(path, tree)) return path;
  int saved = errno;
  if (REAL(realpath)(tree, real) != NULL) leave_tree(path, real);
  errno = saved;
  return path;
}

unsigned sysfs_interface_index(const char *name) {
  char rest[64];
  char path[REDIRECTED_MAX];
  char digits[16] = {0};
  size_t length = strnlen(name, IF_NAMESIZE);
  if (length == 0 || length == IF_NAMESIZE || memchr(name, '/', length) != NULL) return 0;
  snprintf(rest, sizeof rest, "class/net/%s/ifindex", name);
  if (!path_in_tree(path, rest)) return 0;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return 0;
  ssize_t got = syscall(SYS_read, fd, digits, sizeof digits - 1);
  raw_close(fd);
  return got > 0 ? (unsigned)strtoul(digits, NULL, 10) : 0;
}
