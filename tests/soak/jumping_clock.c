/* Preloaded into a command: from look number $JUMP_AFTER of each process at the time of day on, its clock is
   $JUMP_BY seconds away from the system's, as if somebody set it. Clocks that only run forward keep their time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
  static long looks;
  const char *after = getenv("JUMP_AFTER"), *by = getenv("JUMP_BY");
  if (!after || !by) return 0;
  return __sync_fetch_and_add(&looks, 1) < atol(after) ? 0 : atol(by);
}

int clock_gettime(clockid_t clock, struct timespec *found) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int failed = real(clock, found);
  if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) found->tv_sec += shift();
  return failed;
}

int gettimeofday(struct timeval *found, void *zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int failed = real(found, zone);
  if (!failed) found->tv_sec += shift();
  return failed;
}

time_t time(time_t *found) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (found) *found = now.tv_sec;
  return now.tv_sec;
}
