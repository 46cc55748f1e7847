/* The libc calls by which a program gives up its root directory, user or namespaces. It may be
 * unable to reach the daemon's socket afterwards. */
#include "exchange.h"
#include "interpose.h"

#define BEFORE(name, parameters, arguments)                                                        \
  EXPORT int name parameters {                                                                     \
    exchange_attach_inherited();                                                                   \
    return REAL(name) arguments;                                                                   \
  }
BEFORE(chroot, (const char *path), (path))
BEFORE(setuid, (uid_t user), (user))
BEFORE(seteuid, (uid_t user), (user))
BEFORE(setreuid, (uid_t real, uid_t effective), (real, effective))
BEFORE(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
BEFORE(unshare, (int flags), (flags))
BEFORE(setns, (int fd, int kind), (fd, kind))
