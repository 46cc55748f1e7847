/* Prints, when the program ends, the reasons that came with no reply. */
#include "descriptor-table.h"
#include "exchange.h"
#include "explain.h"
#include "registry.h"

/* Looks for a device among the descriptors below this number. */
#define DESCRIPTORS_ASKED 4096

/* Requests the remaining reasons. A child without its own connection has
 * none. */
static bool ask_for_rest(struct device_file *file) {
  struct exchange exchange;
  if (file == NULL || file->role == ROLE_NETLINK) return false;
  if (atomic_load(&file->state) != CONNECTION_OPEN) return false;
  exchange_init(&exchange, OP_EXPLAIN, 0);
  exchange_run(file, &exchange);
  exchange_end(file, &exchange);
  return true;
}

/* Completions in error and events may have come since the last reply. */
__attribute__((destructor)) static void explain_rest(void) {
  if (!explain_is_on() || process_is_foreign()) return;
  bool done = false;
  /* Any open file has the reasons of the whole process. */
  for (int fd = 0; fd < DESCRIPTORS_ASKED && !done; fd++) {
    struct endpoint *endpoint = descriptor_is_marked(fd) ? endpoint_get(fd) : NULL;
    if (endpoint == NULL) continue;
    if (endpoint->kind == ENDPOINT_UVERBS || endpoint->kind == ENDPOINT_CM) {
      done = ask_for_rest(endpoint->file);
    }
    endpoint_put(endpoint);
  }
}
