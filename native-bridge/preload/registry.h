/* Shared by all modules: a lock, the process that the tables belong to, and the table of parts,
 * through which low modules reach higher ones without knowing them. */
#ifndef IWARPD_REGISTRY_H
#define IWARPD_REGISTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct device_file;

/* Callbacks of a module for when the process forks or a file ends. Any function may be NULL. */
struct library_part {
  /* Before fork() and, in the parent, after it: takes and releases a lock. */
  void (*before_fork)(void);
  void (*after_fork)(void);
  /* In the forked child, which has one thread. */
  void (*in_child)(void);
  /* The program closed its last descriptor of the file. */
  void (*file_shut)(struct device_file *file);
  /* The last reference to the file is gone. */
  void (*file_free)(struct device_file *file);
};

/* Defined in parts.c, the only file that knows all parts. They act in this order. */
extern const struct library_part library_parts[];
extern const size_t library_part_count;

#define EACH_PART(part)                                                                            \
  const struct library_part *part = library_parts;                                                 \
  part < library_parts + library_part_count;                                                       \
  part++

/* Guards the lists of files, endpoints and agents. Held for a few instructions, never while
 * waiting. */
void registry_lock(void);
void registry_unlock(void);

/* Called before the first RDMA object is made: from then on, the library handles fork(). */
void registry_prepare(void);

/* The process that the tables belong to; 0 before the first RDMA object. */
extern _Atomic pid_t table_process;

/* The process that forked this one; 0 if it had no RDMA object. */
extern _Atomic pid_t table_parent;

/* True in a process that got this memory without fork(), such as the child of vfork(). */
bool process_is_foreign(void);

#endif
