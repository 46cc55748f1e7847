/* The one function of libibverbs that the shim replaces. */
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "interpose.h"
#include "poll-pause.h"

#define LIBRARY "libibverbs.so.1"
#define FUNCTION "ibv_open_device"
/* The symbol version since 2006. Older programs get it too, as with other preloaded libraries. */
#define VERSION "IBVERBS_1.1"

typedef void *(*open_function)(void *device);

void *ibv_open_device(void *device);

/* The next definition after the shim's, or that of a libibverbs loaded with dlopen(). */
static open_function real_open(void) {
  void *found = dlvsym(RTLD_NEXT, FUNCTION, VERSION);
  if (found != NULL) return (open_function)found;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (library == NULL) return NULL;
  found = dlvsym(library, FUNCTION, VERSION);
  /* The caller has its own reference, so the library stays loaded. */
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
