/* Finds the real functions. All are looked up when the library is loaded, so that no lookup happens
 * in a signal handler; earlier calls, from constructors of other libraries, look up one each. */
#include "interpose.h"

#include <dlfcn.h>
#include <errno.h>

_Atomic(void *) real_addresses[REAL_FUNCTION_COUNT];

static const char *const names[REAL_FUNCTION_COUNT] = {
#define REAL_NAME(type, name, ...) #name,
    REAL_FUNCTIONS(REAL_NAME)
#undef REAL_NAME
};

static long missing_function(void) {
  errno = ENOSYS;
  return -1;
}

void *real_resolve(enum real_function which) {
  void *address = dlsym(RTLD_NEXT, names[which]);
  if (address == NULL) address = (void *)missing_function;
  atomic_store_explicit(&real_addresses[which], address, memory_order_relaxed);
  return address;
}

__attribute__((constructor)) static void resolve_all(void) {
  int saved = errno;
  for (int which = 0; which < REAL_FUNCTION_COUNT; which++) real_resolve((enum real_function)which);
  /* librspreload looks up its own real functions in some of its calls, such as close(). A program
   * that first makes another call, such as getpeername(), would crash in it. */
  REAL(close)(-1);
  errno = saved;
}
