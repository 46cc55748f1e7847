/* See device-node.h. */
#include "device-node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/sysmacros.h>

#include "cm-file.h"
#include "daemon-connection.h"
#include "raw-call.h"
#include "registry.h"
#include "uverbs-file.h"

/* Linux's numbers for uverbs0 and the following devices. */
#define UVERBS_MAJOR 231
#define UVERBS_MINOR_FIRST 192
/* Devices with minor numbers in that range. */
#define UVERBS_COUNT 64
/* rdma_cm is a misc device, whose minor number each kernel chooses. The daemon reports this one in
 * netlink answers. */
#define CM_MAJOR 10
#define CM_MINOR 58

/* Parses a decimal number that ends with `end`. Returns what follows, or NULL. */
static const char *parse_decimal(const char *text, char end, unsigned *number) {
  const char *at = text;
  unsigned value = 0;
  while (*at >= '0' && *at <= '9' && at - text < 6) value = value * 10 + (unsigned)(*at++ - '0');
  if (at == text || *at != end) return NULL;
  *number = value;
  return end == '\0' ? at : at + 1;
}

static bool uverbs_node(unsigned index, struct device_node *node) {
  if (index >= UVERBS_COUNT) return false;
  *node = (struct device_node){.index = index,
                               .number = makedev(UVERBS_MAJOR, UVERBS_MINOR_FIRST + index)};
  return true;
}

static bool cm_node(struct device_node *node) {
  *node = (struct device_node){.connection_manager = true, .number = makedev(CM_MAJOR, CM_MINOR)};
  return true;
}

bool device_node_parse(const char *path, struct device_node *node) {
  unsigned major;
  unsigned minor;
  if (strncmp(path, "/dev/infiniband/uverbs", 22) == 0) {
    unsigned index;
    return parse_decimal(path + 22, '\0', &index) != NULL && uverbs_node(index, node);
  }
  if (strcmp(path, "/dev/infiniband/rdma_cm") == 0) return cm_node(node);
  if (strncmp(path, "/dev/char/", 10) != 0) return false;
  const char *rest = parse_decimal(path + 10, ':', &major);
  if (rest == NULL || parse_decimal(rest, '\0', &minor) == NULL) return false;
  if (major == UVERBS_MAJOR && minor >= UVERBS_MINOR_FIRST) {
    return uverbs_node(minor - UVERBS_MINOR_FIRST, node);
  }
  return major == CM_MAJOR && minor == CM_MINOR && cm_node(node);
}

int device_node_open(const struct device_node *node, int flags) {
  if (process_is_foreign()) return NOT_OURS;
  int fd =
      node->connection_manager ? cm_open(node->number) : uverbs_open(node->index, node->number);
  if (daemon_is_absent(fd)) return NOT_OURS;
  if (fd >= 0 && (flags & O_NONBLOCK) != 0) raw_fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK);
  return fd;
}

int device_node_exists(const struct device_node *node) {
  struct welcome welcome;
  uint8_t token[TOKEN_BYTES] = {0};
  uint32_t device = node->connection_manager ? 0 : node->index + 1;
  memcpy(token, &device, sizeof device);
  int fd = daemon_connect(node->connection_manager ? ROLE_CM : ROLE_UVERBS, token, &welcome);
  if (daemon_is_absent(fd)) return NOT_OURS;
  /* No such device in the daemon: no such file. */
  if (fd == -ENODEV) return -ENOENT;
  if (fd < 0) return fd;
  raw_close(fd);
  return 0;
}

void device_node_stat(dev_t number, struct stat *status) {
  *status = (struct stat){
      .st_mode = S_IFCHR | 0666, .st_nlink = 1, .st_rdev = number, .st_blksize = 4096};
}

void device_node_statx(dev_t number, struct statx *status) {
  memset(status, 0, sizeof *status);
  status->stx_mask = STATX_BASIC_STATS;
  status->stx_mode = S_IFCHR | 0666;
  status->stx_nlink = 1;
  status->stx_blksize = 4096;
  status->stx_rdev_major = major(number);
  status->stx_rdev_minor = minor(number);
}
