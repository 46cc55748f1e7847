/* A thread for each uverbs file with queue pairs: waits for the daemon to die, then flushes the
 * queues. */
#ifndef IWARPD_LOSS_WATCH_H
#define IWARPD_LOSS_WATCH_H

#include "device-file.h"

/* Starts the thread if it is not running. Needs the file's command lock. */
void loss_watch_start(struct device_file *file);

/* The program closes the file: stops the thread, without waiting for it. */
void loss_watch_end(struct device_file *file);

/* In a forked child, where the threads do not exist. */
void loss_watches_forget(void);

#endif
