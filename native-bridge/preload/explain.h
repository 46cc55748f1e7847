/* Reasons for refusals: lines on the program's standard error. */
#ifndef IWARPD_EXPLAIN_H
#define IWARPD_EXPLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* True if the user asked for reasons: IWARPD_EXPLAIN=1. */
bool explain_is_on(void);

/* Writes the reasons of a reply: `length` bytes, lines separated by newlines. */
void explain_lines(const char *lines, size_t length);

/* Reports why no device is visible, once in a process: the parts, concatenated. */
void explain_absence(const char *const *parts, size_t count);

#endif
