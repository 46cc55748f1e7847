/* The shim's handling of fork(), and the one lock of its lists. */
#ifndef IWARPD_FORK_H
#define IWARPD_FORK_H

#include <sys/types.h>

/* Guards the lists of files, endpoints and agents. Held for a few instructions, never while
 * waiting. */
void registry_lock(void);
void registry_unlock(void);

/* Called before the first RDMA object: from then on fork() is watched. A program without RDMA forks
 * as it would without the shim. */
void fork_prepare_process(void);

/* Lets the daemon access this process's memory where Yama requires permission. */
void fork_grant_daemon(pid_t daemon);

#endif
