/* The one function of libibverbs that the shim replaces. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "interpose.h"
#include "poll-pause.h"

#define LIBRARY "libibverbs.so.1"
#define FUNCTION "ibv_open_device"
/* The version since 2006; older programs get it, too, as with other preloads. */
#define VERSION "IBVERBS_1.1"

typedef void *(*open_function)(void *device);

void *ibv_open_device(void *device);

/* Behind the shim, or in a library that a program has loaded for itself alone. */
static open_function real_open(void) {
  void *found = dlvsym(RTLD_NEXT, FUNCTION, VERSION);
  if (found != NULL) return (open_function)found;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return NULL;
  found = dlvsym(library, FUNCTION, VERSION);
  /* It stays loaded: the caller has a reference of its own. */
  dlclose(library);
  return (open_function)found;
}

EXPORT void *ibv_open_device(void *device) {
  open_function real = real_open();
  if (real == NULL) {
    errno = ENOSYS;
    return NULL;
  }
  void *context = real(device);
  if (context != NULL) poll_pause_install(context);
  return context;
}
