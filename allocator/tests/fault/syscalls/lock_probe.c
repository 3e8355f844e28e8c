/* Locks all of its memory as an ordinary user, whose limit counts what is mapped, touched or not; then allocates until
   the limit refuses. Status 0: all went well; 3: the limit is too small for any program; otherwise what is broken, on
   standard error. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void* blocks[2000];

static int broken(const char* what) {
  fprintf(stderr, "broken: %s (%s)\n", what, strerror(errno));
  return 1;
}

int main(void) {
  const rlim_t wanted = (rlim_t)64 << 20;
  struct rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 2;
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > wanted) limit.rlim_max = wanted;
  limit.rlim_cur = limit.rlim_max;
  if (limit.rlim_cur < ((rlim_t)8 << 20)) return 3;
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || (geteuid() == 0 && setuid(65534) != 0)) return 2;
  for (int i = 0; i < 1000; ++i) blocks[i] = malloc((size_t)i / 2);
  if (mlockall(MCL_CURRENT) != 0) return broken("mlockall(MCL_CURRENT)");
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return broken("mlockall(MCL_FUTURE)");
  int count = 1000;
  for (; count < 2000; ++count) {
    blocks[count] = malloc(100000);
    if (blocks[count] == NULL) break;
    memset(blocks[count], 1, 100000);
  }
  if (count == 2000) return broken("the limit of locked memory does not bind");
  if (errno != ENOMEM) return broken("null without ENOMEM");
  for (int i = 0; i < count; ++i) free(blocks[i]);
  void* again = malloc(50);
  if (again == NULL) return broken("no memory after all was freed");
  free(again);
  return 0;
}
