/* Ends the program of `iwarpd run` with the run, whose daemon serves no other
 * program. If the run is killed (SIGKILL: out of memory, a cancelled job), the
 * program has lost its devices and might wait for them forever. It gets the
 * signal that the run would have passed on. Only the run's own child requests
 * this, and must end the processes that it starts. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((constructor)) static void end_with_run(void) {
  const char *run = getenv("IWARPD_RUN_PID");
  if (run == NULL) return;
  int saved = errno;
  pid_t pid = (pid_t)strtol(run, NULL, 10);
  if (pid > 1 && getppid() == pid && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0) {
    /* The run may have ended before the call. */
    if (getppid() != pid) raise(SIGTERM);
  }
  errno = saved;
}
