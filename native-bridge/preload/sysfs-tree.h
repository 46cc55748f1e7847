/* The daemon's tree of files under $SYSFS_PATH, seen by programs at its place below /sys. */
#ifndef IWARPD_SYSFS_TREE_H
#define IWARPD_SYSFS_TREE_H

/* Space for a redirected path, in bytes. */
#define REDIRECTED_MAX 4096

/* Returns the same path in the tree if the daemon describes it, else the path itself. A relative
 * path begins at `directory`: hwloc opens all paths below a descriptor of "/". */
const char *sysfs_redirect(int directory, const char *path,
                           char redirected[static REDIRECTED_MAX]);

/* Replaces an absolute path in the tree by the path below /sys, in place. Returns `path`, which may
 * be NULL. */
char *sysfs_original(char *path);

/* The index of a network interface that only the tree has; 0 if it has none of this name. */
unsigned sysfs_interface_index(const char *name);

#endif
