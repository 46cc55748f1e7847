/* Makes programs that poll an empty completion queue yield the core.
 *
 * The device is a process: a program that polls takes CPU time that the device needs to make the
 * completion. So a thread that polls in vain again and again lets the threads that wait for its core
 * run between two polls; where none waits, that is a short system call. What takes longer it sleeps
 * for inside its poll, for at most POLL_PAUSE_MAX_NS:
 * - while many of its sends are outstanding, until a quarter of them will be done;
 * - once it has waited for POLL_PATIENCE_NS.
 * It does not sleep while a completion is imminent and the program waits for it.
 * The same goes for `ibv_start_poll` on an extended queue.
 * `IWARPD_POLL=spin` in the environment turns both off. */
#ifndef IWARPD_POLL_PAUSE_H
#define IWARPD_POLL_PAUSE_H

/* `ibv_poll_cq` of the provider. */
typedef int (*poll_function)(void *cq, int count, void *completions);

/* Makes polls pause for the open device of `context` (a `struct ibv_context`), if it is the
 * daemon's. */
void poll_pause_install(void *context);

#endif
