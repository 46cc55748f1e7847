/* Programs that poll an empty completion queue let others have the core.
 *
 * The device is a process here: whoever polls takes from it the time in which the completion would
 * be made. So a thread that polls in vain sleeps inside its poll for at most POLL_PAUSE_MAX_NS:
 * - while many of its sends are outstanding, until a quarter of them will be done;
 * - once it has waited for POLL_PATIENCE_NS.
 * It does not while a completion may come at any instant and somebody counts on it.
 * `IWARPD_POLL=spin` in the environment has it poll without any pause. */
#ifndef IWARPD_POLL_PAUSE_H
#define IWARPD_POLL_PAUSE_H

/* `ibv_poll_cq` of the provider. */
typedef int (*poll_function)(void *cq, int count, void *completions);

/* Has the polls of the open device behind `context` (a `struct ibv_context`) pause, if it is one of
 * the daemon's. */
void poll_pause_install(void *context);

#endif
