/* See command-connection.h. */
#include "command-connection.h"

#include <errno.h>

#include "hidden-descriptor.h"
#include "raw-call.h"

struct device_file *command_connection_open(enum role role, int fd, bool copy,
                                            const struct welcome *welcome) {
  struct device_file *file = device_file_create(role, welcome);
  if (file == NULL) {
    if (!copy) raw_close(fd);
    errno = ENOMEM;
    return NULL;
  }
  if (descriptor_hide(fd, copy, file, &file->command_fd) >= 0) return file;
  int error = errno;
  device_file_put(file);
  errno = error;
  return NULL;
}

void command_connection_close(struct device_file *file) {
  /* An event descriptor may outlive the file and be in the middle of a command. */
  pthread_mutex_lock(&file->command_lock);
  pthread_mutex_lock(&file->send_lock);
  descriptor_close_hidden(&file->command_fd);
  descriptor_close_hidden(&file->inherited_fd);
  descriptor_close_hidden(&file->maps_fd);
  file->state = CONNECTION_DEAD;
  pthread_mutex_unlock(&file->send_lock);
  pthread_mutex_unlock(&file->command_lock);
}

static void detach(struct device_file *file) {
  pthread_mutex_init(&file->command_lock, NULL);
  pthread_mutex_init(&file->send_lock, NULL);
  bool closed = atomic_load(&file->command_fd) < 0;
  bool keeps = file->role == ROLE_UVERBS && atomic_load(&file->inherited_fd) < 0;
  if (keeps) descriptor_pass_hidden(&file->command_fd, &file->inherited_fd);
  else descriptor_close_hidden(&file->command_fd);
  file->inherited = true;
  if (!closed && file->state == CONNECTION_OPEN) file->state = CONNECTION_DETACHED;
}

void command_connections_detach(void) { device_files_visit(detach); }
