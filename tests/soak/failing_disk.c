/* Preloaded into a command: the write number $FAIL_AFTER of each process to files below $FAIL_BELOW, and all writes
   and flushes after it, end with EIO, as on a disk that breaks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd) {
  static long left = -1;
  const char *below = getenv("FAIL_BELOW"), *after = getenv("FAIL_AFTER");
  char link[64], path[4096];
  struct stat known;
  if (!below || !after || fstat(fd, &known) || !S_ISREG(known.st_mode)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (strncmp(path, below, strlen(below))) return 0;
  if (left < 0) left = atol(after);
  return left ? (left--, 0) : 1;
}

#define FAILING(type, name, parameters, arguments)          \
  type name parameters {                                    \
    static type(*real) parameters;                          \
    if (!real) real = dlsym(RTLD_NEXT, #name);              \
    if (fails(fd)) return errno = EIO, -1;                  \
    return real arguments;                                  \
  }

FAILING(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
FAILING(ssize_t, writev, (int fd, const struct iovec *data, int count), (fd, data, count))
FAILING(ssize_t, pwrite64, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAILING(int, fsync, (int fd), (fd))
FAILING(int, fdatasync, (int fd), (fd))
