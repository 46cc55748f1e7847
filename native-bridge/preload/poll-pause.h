/* Programs that poll an empty completion queue let others have the core.
 *
 * The device is a process here: whoever polls takes from it the time in which the completion would
 * be made. So a thread that has found nothing for a while sleeps inside its poll, for a small part
 * of the time that it has to wait anyway:
 * - while many of its sends are outstanding, until a quarter of them will be done;
 * - once it has waited for long, an eighth of that.
 * Neither happens while a completion may come at any instant and somebody counts on it: with few
 * sends outstanding a thread polls for POLL_PATIENCE_NS without a pause. `IWARPD_POLL=spin` in the
 * environment has it poll without any pause. */
#ifndef IWARPD_POLL_PAUSE_H
#define IWARPD_POLL_PAUSE_H

/* `ibv_poll_cq` of the provider. */
typedef int (*poll_function)(void *cq, int count, void *completions);

/* Has the polls of the open device behind `context` (a `struct ibv_context`) pause, if it is one of
 * the daemon's. */
void poll_pause_install(void *context);

#endif
