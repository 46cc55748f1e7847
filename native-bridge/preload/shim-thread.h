/* The shim's own threads. */
#ifndef IWARPD_SHIM_THREAD_H
#define IWARPD_SHIM_THREAD_H

/* Starts a detached thread with a small stack and all signals blocked: those are for the program's
 * own threads. Returns 0 or a negative errno. */
int shim_thread_start(void *(*run)(void *argument), void *argument);

#endif
