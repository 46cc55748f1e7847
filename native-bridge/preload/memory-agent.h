/* A thread that copies bytes of this process's memory for a daemon that may not access it. */
#ifndef IWARPD_MEMORY_AGENT_H
#define IWARPD_MEMORY_AGENT_H

#include "device-file.h"

/* Starts an agent, which the daemon knows by the file's token. With `copies`, it also carries out
 * the daemon's orders to copy into other processes. Returns 0 or a negative errno. */
int memory_agent_start(struct device_file *file, bool copies);

/* The program closed its last descriptor of the file: ends its registrations and, if no device is
 * open any more, all agents. */
void memory_agents_file_shut(struct device_file *file);

/* In a forked child, where the parent's agents do not exist. */
void memory_agents_forget(void);

#endif
