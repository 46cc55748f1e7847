/* What fork() means for the shim, and the one lock over its lists. */
#ifndef IWARPD_FORK_H
#define IWARPD_FORK_H

#include <sys/types.h>

/* Over the lists of files, endpoints and agents. Held for a few instructions, never
 * while waiting. */
void registry_lock(void);
void registry_unlock(void);

/* Called before the first RDMA object: from then on fork() is watched. A program that uses no RDMA
 * forks as without the shim. */
void fork_prepare_process(void);

/* Lets the daemon reach this process's memory where Yama asks for the process's word. */
void fork_grant_daemon(pid_t daemon);

#endif
