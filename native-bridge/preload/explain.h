/* Why the program was refused something: lines on its standard error. */
#ifndef IWARPD_EXPLAIN_H
#define IWARPD_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* True if the program's user asked for reasons: IWARPD_EXPLAIN=1. */
bool explain_is_on(void);

/* Writes the reasons of a reply: lines of `length` bytes, separated by newlines. */
void explain_lines(const char *lines, size_t length);

/* Reports once in a process why no device is visible: the parts, one behind the other. */
void explain_absence(const char *const *parts, size_t count);

#endif
