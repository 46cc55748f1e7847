/* A thread that copies bytes of this process's memory at the daemon's request, where the daemon may
 * not do so itself. */
#ifndef IWARPD_MEMORY_AGENT_H
#define IWARPD_MEMORY_AGENT_H

#include "device-file.h"

/* Starts an agent, which the daemon knows by the file's token. Returns 0 or a negative errno. */
int memory_agent_start(struct device_file *file);

/* Ends all agents: this process has no open device any more. */
void memory_agents_stop(void);

/* In a forked child: the parent's agents do not exist there. */
void memory_agents_forget(void);

#endif
