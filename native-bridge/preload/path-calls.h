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
#include <ftw.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
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
  ROW(int, scandir,                                                                                \
      (const char *path, struct dirent ***names, int (*filter)(const struct dirent *),             \
       int (*compare)(const struct dirent **, const struct dirent **)),                            \
      (path, names, filter, compare), NOTHING, NOTHING)                                            \
  ROW(int, scandir64,                                                                              \
      (const char *path, struct dirent64 ***names, int (*filter)(const struct dirent64 *),         \
       int (*compare)(const struct dirent64 **, const struct dirent64 **)),                        \
      (path, names, filter, compare), NOTHING, NOTHING)                                            \
  ROW(int, scandirat,                                                                              \
      (int directory, const char *path, struct dirent ***names,                                    \
       int (*filter)(const struct dirent *),                                                       \
       int (*compare)(const struct dirent **, const struct dirent **)),                            \
      (directory, path, names, filter, compare), NOTHING, NOTHING)                                 \
  ROW(int, scandirat64,                                                                            \
      (int directory, const char *path, struct dirent64 ***names,                                  \
       int (*filter)(const struct dirent64 *),                                                     \
       int (*compare)(const struct dirent64 **, const struct dirent64 **)),                        \
      (directory, path, names, filter, compare), NOTHING, NOTHING)                                 \
  ROW(int, ftw, (const char *path, __ftw_func_t visit, int descriptors),                           \
      (path, visit, descriptors), WALK(ftw, descriptors), NOTHING)                                 \
  ROW(int, ftw64, (const char *path, __ftw64_func_t visit, int descriptors),                       \
      (path, visit, descriptors), WALK(ftw64, descriptors), NOTHING)                               \
  ROW(int, nftw, (const char *path, __nftw_func_t visit, int descriptors, int flags),              \
      (path, visit, descriptors, flags), WALK(nftw, descriptors, flags), NOTHING)                  \
  ROW(int, nftw64, (const char *path, __nftw64_func_t visit, int descriptors, int flags),          \
      (path, visit, descriptors, flags), WALK(nftw64, descriptors, flags), NOTHING)                \
  ROW(int, glob,                                                                                   \
      (const char *path, int flags, int (*on_error)(const char *, int), glob_t *found),            \
      (path, flags, on_error, found), GLOB(glob), NOTHING)                                         \
  ROW(int, glob64,                                                                                 \
      (const char *path, int flags, int (*on_error)(const char *, int), glob64_t *found),          \
      (path, flags, on_error, found), GLOB(glob64), NOTHING)                                       \
  ROW(char *, realpath, (const char *path, char *resolved), (path, resolved),                      \
      RESOLVE(realpath, resolved), NOTHING)                                                        \
  ROW(char *, __realpath_chk, (const char *path, char *resolved, size_t room),                     \
      (path, resolved, room), RESOLVE(__realpath_chk, resolved, room), NOTHING)                    \
  ROW(char *, canonicalize_file_name, (const char *path), (path),                                  \
      RESOLVE(canonicalize_file_name), NOTHING)                                                    \
  ROW(int, chdir, (const char *path), (path), NOTHING, NOTHING)                                    \
  /* ls(1) looks for access control lists. */                                                      \
  ROW(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t room),           \
      (path, name, value, room), NOTHING, NOTHING)                                                 \
  ROW(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t room),          \
      (path, name, value, room), NOTHING, NOTHING)                                                 \
  ROW(ssize_t, listxattr, (const char *path, char *names, size_t room), (path, names, room),       \
      NOTHING, NOTHING)                                                                            \
  ROW(ssize_t, llistxattr, (const char *path, char *names, size_t room), (path, names, room),      \
      NOTHING, NOTHING)                                                                            \
  ROW(ssize_t, readlink, (const char *path, char *target, size_t room), (path, target, room),      \
      NOTHING, NOTHING)                                                                            \
  ROW(ssize_t, readlinkat, (int directory, const char *path, char *target, size_t room),           \
      (directory, path, target, room), NOTHING, NOTHING)                                           \
  ROW(ssize_t, __readlink_chk, (const char *path, char *target, size_t room, size_t target_bytes), \
      (path, target, room, target_bytes), NOTHING, NOTHING)                                        \
  ROW(ssize_t, __readlinkat_chk,                                                                   \
      (int directory, const char *path, char *target, size_t room, size_t target_bytes),           \
      (directory, path, target, room, target_bytes), NOTHING, NOTHING)                             \
  ROW(int, euidaccess, (const char *path, int mode), (path, mode), ACCESS_NODE, NOTHING)           \
  ROW(int, eaccess, (const char *path, int mode), (path, mode), ACCESS_NODE, NOTHING)              \
  ROW(int, statfs, (const char *path, struct statfs *status), (path, status), NOTHING, NOTHING)    \
  ROW(int, statfs64, (const char *path, struct statfs64 *status), (path, status), NOTHING,         \
      NOTHING)                                                                                     \
  ROW(int, statvfs, (const char *path, struct statvfs *status), (path, status), NOTHING,           \
      NOTHING)                                                                                     \
  ROW(int, statvfs64, (const char *path, struct statvfs64 *status), (path, status), NOTHING,       \
      NOTHING)                                                                                     \
  ROW(long, pathconf, (const char *path, int name), (path, name), NOTHING, NOTHING)                \
  ROW(int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask),         \
      NOTHING, NOTHING)                                                                            \
  ROW(FILE *, freopen, (const char *path, const char *mode, FILE *stream), (path, mode, stream),   \
      NOTHING, NOTHING)                                                                            \
  ROW(FILE *, freopen64, (const char *path, const char *mode, FILE *stream),                       \
      (path, mode, stream), NOTHING, NOTHING)                                                      \
  ROW(FILE *, fopen, (const char *path, const char *mode), (path, mode), READ_SETTING, NOTHING)    \
  ROW(FILE *, fopen64, (const char *path, const char *mode), (path, mode), READ_SETTING, NOTHING)
/* clang-format on */

/* Current headers do not declare all of them. */
#define DECLARE_PATH_CALL(type, name, parameters, ...) type name parameters;
PATH_CALLS(DECLARE_PATH_CALL, DECLARE_PATH_CALL)
#undef DECLARE_PATH_CALL

#endif
