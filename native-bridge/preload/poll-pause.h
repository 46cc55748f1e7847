/* Makes programs that poll an empty completion queue yield the core.
 *
 * The device is a process: a program that polls takes CPU time that the device needs to make the
 * completion. So a thread that polls in vain repeatedly yields between two polls; if no other
 * thread waits for its core, that is a short system call. For longer waits it sleeps inside its
 * poll, at most POLL_PAUSE_MAX_NS:
 * - while many of its sends are outstanding, until a quarter of them should be done;
 * - once it has waited for POLL_PATIENCE_NS.
 * It does not sleep while a completion is imminent and the program waits for it. `ibv_start_poll`
 * on an extended queue is treated likewise. `IWARPD_POLL=spin` in the environment disables both. */
#ifndef IWARPD_POLL_PAUSE_H
#define IWARPD_POLL_PAUSE_H

/* `ibv_poll_cq` of the provider. */
typedef int (*poll_function)(void *cq, int count, void *completions);

/* Makes polls pause on the open device of `context` (a `struct ibv_context`), if it is the
 * daemon's. */
void poll_pause_install(void *context);

#endif
