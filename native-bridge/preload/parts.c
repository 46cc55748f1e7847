/* The parts of the library that act when the process forks or a file ends.
 *
 * A forked child inherits the program's descriptors, which keep the daemon's files open, as in the
 * kernel. It must not use the inherited connections, where its frames would mix with its parent's,
 * so each file is connected again when the child first needs it. The child keeps the inherited
 * connection of a device as long as it has the device's descriptor, which is not a connection. */
#include "command-connection.h"
#include "descriptor-table.h"
#include "hidden-descriptor.h"
#include "loss-watch.h"
#include "memory-agent.h"
#include "netlink.h"
#include "private-rings.h"
#include "registry.h"
#include "yama.h"

/* The order matters. A child first needs the locks; agents must be gone before endpoints release
 * files, and rings are found by the endpoints that remain. A closing file ends its thread, then its
 * connection, then the agents if it was the last. */
const struct library_part library_parts[] = {
    {.before_fork = hidden_lock, .after_fork = hidden_unlock, .in_child = hidden_locks_reset},
    {.in_child = loss_watches_forget, .file_shut = loss_watch_end},
    {.in_child = command_connections_detach, .file_shut = command_connection_close},
    {.in_child = memory_agents_forget, .file_shut = memory_agents_file_shut},
    {.in_child = endpoints_recount},
    {.in_child = private_rings_take},
    {.in_child = yama_permit_again},
    {.file_free = netlink_file_free},
};
const size_t library_part_count = sizeof library_parts / sizeof *library_parts;
