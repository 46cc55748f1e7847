/* The shim's own descriptors, which the program does not know. They have numbers above those that
 * programs use, and move if the program wants one of these numbers.
 *
 * The owner stores the number in a holder, which any thread may change by moving the descriptor.
 * One lock guards moving and closing. A holder must stay in memory until `descriptor_close_hidden`
 * returns, and is not accessed afterwards. */
#ifndef IWARPD_HIDDEN_DESCRIPTOR_H
#define IWARPD_HIDDEN_DESCRIPTOR_H

#include <stdatomic.h>
#include <stdbool.h>

struct device_file;

/* The lowest number for descriptors that must leave the low ones to the program: `wanted`, or less
 * if the limit of this process leaves too few above it. */
long descriptor_floor(unsigned wanted);

/* Moves one of the shim's descriptors to a high number and closes the old one, or copies it there.
 * Stores the new number in `holder` and returns it, or -1 with errno. With a `file`, the number
 * changes only under both locks of that file. */
int descriptor_hide(int fd, bool copy, struct device_file *file, _Atomic int *holder);

/* Makes `next` the holder of the descriptor in `holder`, which becomes -1. */
void descriptor_pass_hidden(_Atomic int *holder, _Atomic int *next);

/* Closes a hidden descriptor. Does nothing for -1. */
void descriptor_close_hidden(_Atomic int *holder);

/* The program is about to replace `number`: moves a hidden descriptor away, removes any other
 * entry, and keeps the number free of hidden ones until `descriptor_vacated`. */
void descriptor_vacate(int number);

/* The call of the program has returned. */
void descriptor_vacated(int number);

/* Closes the program's descriptors from `first` to `last`: calls `close_some` for each range
 * between hidden ones, and returns its result. */
int descriptors_close_around(unsigned first, unsigned last, int flags,
                             int (*close_some)(unsigned first, unsigned last, int flags));

/* While this lock is held, no hidden descriptor moves, opens or closes, so its number is safe to
 * use. Taken after every other lock, and only around calls that do not wait. */
void hidden_lock(void);
void hidden_unlock(void);

/* While this lock is held, no hidden descriptor without a file moves, so its owner may use the
 * number in calls that wait for the program's memory, but not for the daemon. Taken before the
 * other lock. */
void hidden_pin(void);
void hidden_unpin(void);

/* In a forked child: no thread holds either lock. */
void hidden_locks_reset(void);

#endif
