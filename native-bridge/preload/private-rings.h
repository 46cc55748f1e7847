/* The send queues that a forked child inherits. */
#ifndef IWARPD_PRIVATE_RINGS_H
#define IWARPD_PRIVATE_RINGS_H

struct device_file;

/* Opens this process's list of mappings for a new uverbs file. Its children read the list if they
 * have no /proc, as after chroot(). */
void private_rings_prepare(struct device_file *file);

/* In a forked child: replaces the send queues that its parent mapped by private copies. Otherwise
 * the child would post to the parent's queue, and the daemon would send the bytes at the same
 * addresses of the parent. Receive and completion queues stay shared, as on a kernel. */
void private_rings_take(void);

#endif
