/* Memory that this process has registered by its own commands. An agent accesses no other memory,
 * whatever the daemon requests. */
#ifndef IWARPD_REGISTERED_MEMORY_H
#define IWARPD_REGISTERED_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Addresses from `start` up to `end`. */
struct registered_range {
  uint64_t start;
  uint64_t end;
  /* The device may write. */
  bool writable;
};

/* A registration in progress, in the frame of the call that makes it: the daemon may access the
 * memory before the reply arrives. */
struct starting_registration {
  struct registered_range range;
  struct starting_registration *next;
};

/* The registrations of one file, by the daemon's handle. */
struct registrations {
  struct registered_range *by_handle;
  uint32_t capacity;
  bool listed;
  struct registrations *next;
};

/* Called before the command is sent, and after it returns with any result. */
void registration_begin(struct starting_registration *starting);
void registration_end(struct starting_registration *starting);

/* The daemon registered `range` under this handle. */
void registration_add(struct registrations *registrations, uint32_t handle,
                      const struct registered_range *range);

/* The daemon deregistered it. After this returns, no copy into or out of it is in progress. */
void registration_remove(struct registrations *registrations, uint32_t handle);

/* Memory that the program moved: `length` bytes. */
struct moved_memory {
  uint64_t from;
  uint64_t to;
  uint64_t length;
};

/* A region in that memory. */
struct moved_region {
  struct registrations *registrations;
  uint32_t handle;
  uint64_t start;
};

/* Updates the next registration that lies wholly in moved memory. False if there is none. Skips
 * files for which `hold` is false, which is called with a lock held. */
bool registration_follow(const struct moved_memory *moved, struct moved_region *region,
                         bool (*hold)(struct registrations *registrations));

/* The file is closed, with all its registrations. */
void registrations_free(struct registrations *registrations);

/* In a forked child, which has no registrations yet. */
void registrations_forget(void);

/* True if one registration covers the whole range for this kind of access. It then stays registered
 * until `registered_memory_release`. */
bool registered_memory_hold(uint64_t address, uint64_t length, bool write);
void registered_memory_release(void);

#endif
