/* mremap(): registrations follow memory that the program moves, because a kernel would have pinned
 * its pages. The calls inside realloc() bypass this function. */
#include <errno.h>
#include <stdarg.h>

#include "exchange.h"
#include "interpose.h"
#include "registered-memory.h"
#include "registry.h"

static struct device_file *file_of(struct registrations *registrations) {
  return (struct device_file *)((char *)registrations -
                                offsetof(struct device_file, registrations));
}

static bool hold_file(struct registrations *registrations) {
  return device_file_try_ref(file_of(registrations));
}

static void follow(const struct moved_memory *moved) {
  int saved = errno;
  struct moved_region region;
  while (registration_follow(moved, &region, hold_file)) {
    struct device_file *file = file_of(region.registrations);
    struct exchange exchange;
    exchange_init(&exchange, OP_MOVE, region.handle);
    exchange_add(&exchange, &region.start, sizeof region.start);
    exchange_run(file, &exchange);
    exchange_end(file, &exchange);
    device_file_put(file);
  }
  errno = saved;
}

EXPORT void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...) {
  void *wanted = NULL;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    wanted = va_arg(arguments, void *);
    va_end(arguments);
  }
  void *place = REAL(mremap)(old, old_bytes, new_bytes, flags, wanted);
  bool moved = place != MAP_FAILED && place != old;
  if (!moved || atomic_load(&table_process) == 0 || process_is_foreign()) return place;
  struct moved_memory memory = {.from = (uintptr_t)old,
                                .to = (uintptr_t)place,
                                .length = old_bytes < new_bytes ? old_bytes : new_bytes};
  follow(&memory);
  return place;
}
