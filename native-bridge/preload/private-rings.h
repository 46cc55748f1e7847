/* The send queues that a forked child inherits. */
#ifndef IWARPD_PRIVATE_RINGS_H
#define IWARPD_PRIVATE_RINGS_H

struct device_file;

/* In a forked child: gives it copies of its own of the send queues that its parent mapped. What the child
 * posts would otherwise lie in the parent's queue, and be sent with the bytes at the same addresses
 * of the parent. Receive and completion queues stay shared, as between processes on a kernel. */
void private_rings_take(struct device_file *file);

/* Opens this process's list of mappings, which its children read where they have no /proc: behind
 * chroot(). A descriptor, or -1. */
int private_rings_open(void);

#endif
