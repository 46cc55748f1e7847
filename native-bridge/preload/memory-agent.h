/* A thread that copies bytes of this process's memory at the daemon's request, where the daemon may
 * not do so itself. */
#ifndef IWARPD_MEMORY_AGENT_H
#define IWARPD_MEMORY_AGENT_H

#include "device-file.h"

/* Starts an agent, which the daemon knows by the file's token. Returns 0 or a negative errno. */
int memory_agent_start(struct device_file *file);

/* The program closed its last descriptor of the file: ends its registrations and, with the last
 * device of this process, all agents. */
void memory_agents_file_shut(struct device_file *file);

/* In a forked child: the parent's agents do not exist there. */
void memory_agents_forget(void);

#endif
