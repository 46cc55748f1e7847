/* Access to this process's memory where Linux's Yama requires the process's permission. */
#ifndef IWARPD_YAMA_H
#define IWARPD_YAMA_H

#include <sys/types.h>

/* Permits the daemon to access this process's memory. */
void yama_permit(pid_t daemon);

/* In a forked child, which does not inherit the permission. */
void yama_permit_again(void);

#endif
