/* The shim's own descriptors, unknown to the program. They have numbers above those that programs
 * use, and move when the program wants one of these numbers.
 *
 * The owner of one keeps its number in a holder, which any thread may change by moving the
 * descriptor. One lock guards moving and closing. A holder must stay in memory until
 * `descriptor_close_hidden` returns, and is not accessed afterwards. */
#ifndef IWARPD_HIDDEN_DESCRIPTOR_H
#define IWARPD_HIDDEN_DESCRIPTOR_H

#include <stdatomic.h>
#include <stdbool.h>

struct device_file;

/* The first number that leaves the low ones to the program: `wanted`, or less where this process's
 * limit leaves too few above it. */
long descriptor_floor(unsigned wanted);

/* Moves one of the shim's descriptors to a high number, or copies it there. Returns the new number
 * or -1 with errno; the old one is closed unless it was copied. `holder` stores the number; with a
 * `file`, it changes only under both locks of that file. */
int descriptor_hide(int fd, bool copy, struct device_file *file, _Atomic int *holder);

/* Makes `next` the holder of the descriptor in `holder`, which then holds none. */
void descriptor_pass_hidden(_Atomic int *holder, _Atomic int *next);

/* Closes a hidden descriptor. Does nothing for -1. */
void descriptor_close_hidden(_Atomic int *holder);

/* The program is about to replace `number`: moves a hidden descriptor away, removes any other
 * entry, and keeps the number free of hidden ones until `descriptor_vacated`. */
void descriptor_vacate(int number);

/* The program's call has returned. */
void descriptor_vacated(int number);

/* Closes the program's descriptors from `first` to `last`: calls `close_some` for each range
 * between hidden ones, and returns its result. */
int descriptors_close_around(unsigned first, unsigned last, int flags,
                             int (*close_some)(unsigned first, unsigned last, int flags));

/* While this lock is held, no hidden descriptor moves, opens or closes, so its number is safe to
 * use. Taken after every other lock, and only around calls that do not wait. */
void hidden_lock(void);
void hidden_unlock(void);

/* While this lock is held, no hidden descriptor without a file moves, so its owner may use its number
 * in calls that wait for the program's memory; not for the daemon. Taken before the other one. */
void hidden_pin(void);
void hidden_unpin(void);

/* In a forked child: no thread holds either lock. */
void hidden_locks_reset(void);

#endif
