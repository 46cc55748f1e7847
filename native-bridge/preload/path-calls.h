/* The libc functions that take a path and that the shim replaces, one row each. calls-on-paths.c
 * defines them and the statements of the last two columns. Columns:
 *
 * - type of the result, name, parameters (one is `path`), arguments;
 * - statements before the call for a special path, which may return an answer instead;
 * - the same for any other path.
 *
 * VARIADIC functions get a mode only if they may create a file. They have an
 * extra column with all parameters, and lack the last one. */
#ifndef IWARPD_PATH_CALLS_H
#define IWARPD_PATH_CALLS_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
#define PATH_CALLS(ROW, VARIADIC)                                                                  \
  VARIADIC(int, open, (const char *path, int flags, ...),                                          \
           (const char *path, int flags, mode_t mode), (path, flags, mode), OPEN_NODE)             \
  VARIADIC(int, open64, (const char *path, int flags, ...),                                        \
           (const char *path, int flags, mode_t mode), (path, flags, mode), OPEN_NODE)             \
  VARIADIC(int, openat, (int directory, const char *path, int flags, ...),                         \
           (int directory, const char *path, int flags, mode_t mode),                              \
           (directory, path, flags, mode), OPEN_NODE)                                              \
  VARIADIC(int, openat64, (int directory, const char *path, int flags, ...),                       \
           (int directory, const char *path, int flags, mode_t mode),                              \
           (directory, path, flags, mode), OPEN_NODE)                                              \
  /* For fortified programs: libc aborts those that lack a mode. */                                \
  ROW(int, __open_2, (const char *path, int flags), (path, flags), OPEN_NODE, NOTHING)             \
  ROW(int, __open64_2, (const char *path, int flags), (path, flags), OPEN_NODE, NOTHING)           \
  ROW(int, __openat_2, (int directory, const char *path, int flags), (directory, path, flags),     \
      OPEN_NODE, NOTHING)                                                                          \
  ROW(int, __openat64_2, (int directory, const char *path, int flags), (directory, path, flags),   \
      OPEN_NODE, NOTHING)                                                                          \
                                                                                                   \
  ROW(int, stat, (const char *path, struct stat *status), (path, status), STAT_NODE, NOTHING)      \
  ROW(int, stat64, (const char *path, struct stat64 *status), (path, status), STAT_NODE, NOTHING)  \
  ROW(int, lstat, (const char *path, struct stat *status), (path, status), STAT_NODE, NOTHING)     \
  ROW(int, lstat64, (const char *path, struct stat64 *status), (path, status), STAT_NODE, NOTHING) \
  ROW(int, fstatat, (int directory, const char *path, struct stat *status, int flags),             \
      (directory, path, status, flags), STAT_NODE, STAT_DESCRIPTOR)                                \
  ROW(int, fstatat64, (int directory, const char *path, struct stat64 *status, int flags),         \
      (directory, path, status, flags), STAT_NODE, STAT_DESCRIPTOR)                                \
  ROW(int, statx,                                                                                  \
      (int directory, const char *path, int flags, unsigned mask, struct statx *status),           \
      (directory, path, flags, mask, status), STATX_NODE, STATX_DESCRIPTOR)                        \
  /* Older programs call these. */                                                                 \
  ROW(int, __xstat, (int version, const char *path, struct stat *status),                          \
      (version, path, status), STAT_NODE, NOTHING)                                                 \
  ROW(int, __xstat64, (int version, const char *path, struct stat64 *status),                      \
      (version, path, status), STAT_NODE, NOTHING)                                                 \
  ROW(int, __lxstat, (int version, const char *path, struct stat *status),                         \
      (version, path, status), STAT_NODE, NOTHING)                                                 \
  ROW(int, __lxstat64, (int version, const char *path, struct stat64 *status),                     \
      (version, path, status), STAT_NODE, NOTHING)                                                 \
  ROW(int, __fxstatat,                                                                             \
      (int version, int directory, const char *path, struct stat *status, int flags),              \
      (version, directory, path, status, flags), STAT_NODE, STAT_DESCRIPTOR)                       \
  ROW(int, __fxstatat64,                                                                           \
      (int version, int directory, const char *path, struct stat64 *status, int flags),            \
      (version, directory, path, status, flags), STAT_NODE, STAT_DESCRIPTOR)                       \
                                                                                                   \
  ROW(int, access, (const char *path, int mode), (path, mode), ACCESS_NODE, NOTHING)               \
  ROW(int, faccessat, (int directory, const char *path, int mode, int flags),                      \
      (directory, path, mode, flags), ACCESS_NODE, NOTHING)                                        \
  ROW(DIR *, opendir, (const char *path), (path), NOTHING, NOTHING)                                \
  ROW(ssize_t, readlink, (const char *path, char *target, size_t room), (path, target, room),      \
      NOTHING, NOTHING)                                                                            \
  ROW(ssize_t, readlinkat, (int directory, const char *path, char *target, size_t room),           \
      (directory, path, target, room), NOTHING, NOTHING)                                           \
  ROW(FILE *, fopen, (const char *path, const char *mode), (path, mode), READ_SETTING, NOTHING)    \
  ROW(FILE *, fopen64, (const char *path, const char *mode), (path, mode), READ_SETTING, NOTHING)
/* clang-format on */

/* Current headers do not declare all of them. */
#define DECLARE_PATH_CALL(type, name, parameters, ...) type name parameters;
PATH_CALLS(DECLARE_PATH_CALL, DECLARE_PATH_CALL)
#undef DECLARE_PATH_CALL

#endif
