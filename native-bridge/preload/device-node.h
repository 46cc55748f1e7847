/* Device nodes that exist only under the shim. */
#ifndef IWARPD_DEVICE_NODE_H
#define IWARPD_DEVICE_NODE_H

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Not handled here: make the real call. */
#define NOT_OURS (-4096)

struct device_node {
  bool connection_manager;
  /* Index of the uverbs device. */
  unsigned index;
  dev_t number;
};

/* Where librdmacm finds an administrator's settings for rsockets. */
#define RSOCKET_FOLDER "/etc/rdma/rsocket/"

/* True if the path may be a device node, may be described by the daemon's tree, or is a setting of
 * rsockets. Compares a few bytes and allocates nothing. */
static inline bool path_is_special(const char *path) {
  if (path == NULL) return false;
  if (path[0] == 's') return strncmp(path, "sys/", 4) == 0;
  if (path[0] != '/') return false;
  while (path[1] == '/') path++;
  if (path[1] == 'd')
    return strncmp(path, "/dev/infiniband", 15) == 0 || strncmp(path, "/dev/char/", 10) == 0;
  if (path[1] == 'e') return strncmp(path, RSOCKET_FOLDER, sizeof RSOCKET_FOLDER - 1) == 0;
  return path[1] == 's' && strncmp(path, "/sys/", 5) == 0;
}

/* Which device node the path names, if any. */
bool device_node_parse(const char *path, struct device_node *node);

/* Opens the node. Returns a descriptor, a negative errno, or NOT_OURS without a daemon. */
int device_node_open(const struct device_node *node, int flags);

/* Asks the daemon whether the node exists. Returns 0, a negative errno, or NOT_OURS. */
int device_node_exists(const struct device_node *node);

/* The result of stat() for a node. */
void device_node_stat(dev_t number, struct stat *status);
void device_node_statx(dev_t number, struct statx *status);

#endif
