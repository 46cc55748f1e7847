/* See explain.h. The program may have replaced its standard error by another file: reasons are
 * written only while it is the file that it was when the library was loaded. */
#include "explain.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "raw-call.h"

static const char prefix[] = "iwarpd: ";

/* 0: not read yet; 1: on; 2: off. */
static _Atomic int wanted;
/* Standard error when the library was loaded. */
static struct stat first_error;
static bool has_first_error;

__attribute__((constructor)) static void note_standard_error(void) {
  int saved = errno;
  has_first_error = raw_fstat(STDERR_FILENO, &first_error) == 0;
  errno = saved;
}

bool explain_is_on(void) {
  int known = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (known == 0) {
    const char *value = secure_getenv("IWARPD_EXPLAIN");
    known = value != NULL && strcmp(value, "1") == 0 ? 1 : 2;
    atomic_store_explicit(&wanted, known, memory_order_relaxed);
  }
  return known == 1;
}

static bool is_first_error(const struct stat *status) {
  return has_first_error && status->st_dev == first_error.st_dev &&
         status->st_ino == first_error.st_ino;
}

/* One system call per line, so lines of several threads do not mix. */
static void write_line(const char *line, size_t length) {
  struct iovec pieces[] = {{.iov_base = (void *)prefix, .iov_len = sizeof prefix - 1},
                           {.iov_base = (void *)line, .iov_len = length},
                           {.iov_base = (void *)"\n", .iov_len = 1}};
  syscall(SYS_writev, STDERR_FILENO, pieces, sizeof pieces / sizeof *pieces);
}

void explain_lines(const char *lines, size_t length) {
  struct stat status;
  if (length == 0 || raw_fstat(STDERR_FILENO, &status) != 0 || !is_first_error(&status)) return;
  while (length > 0) {
    const char *end = memchr(lines, '\n', length);
    size_t bytes = end == NULL ? length : (size_t)(end - lines);
    write_line(lines, bytes);
    size_t taken = end == NULL ? bytes : bytes + 1;
    lines += taken;
    length -= taken;
  }
}

void explain_absence(const char *const *parts, size_t count) {
  static _Atomic bool reported;
  struct stat status;
  char line[768];
  size_t at = 0;
  if (raw_fstat(STDERR_FILENO, &status) != 0) return;
  /* Unless the user asked for reasons, write only to a terminal or a pipe, where a line does no
   * harm. */
  bool harmless = S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode);
  if (!harmless && !(explain_is_on() && is_first_error(&status))) return;
  for (size_t part = 0; part < count; part++) {
    size_t length = strlen(parts[part]);
    if (length >= sizeof line - at) return;
    memcpy(line + at, parts[part], length);
    at += length;
  }
  if (!atomic_exchange(&reported, true)) write_line(line, at);
}
