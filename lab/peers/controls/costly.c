/* glibc's allocator that costs a known part more than glibc's: of the CPU time and of the peak memory of the process.
 *
 * FREESTONE_CONTROL_CPU_PERMILLE and FREESTONE_CONTROL_MEMORY_PERMILLE are those parts in thousandths (default 0). The
 * cost falls due when the process ends: by then both are known, so it is exact whatever the program did. A process that
 * ends by _exit pays nothing.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "forward.h"

static uint64_t control_cpu_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Resident bytes now, without an allocation. */
static uint64_t control_resident(void) {
  unsigned long pages[2] = {0, 0};
  FILE* file = fopen("/proc/self/statm", "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%lu %lu", &pages[0], &pages[1]) != 2) pages[1] = 0;
  fclose(file);
  return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void control_hold(uint64_t permille) {
  struct rusage usage;
  if (permille == 0 || getrusage(RUSAGE_SELF, &usage) != 0) return;
  const uint64_t peak = (uint64_t)usage.ru_maxrss * 1024, wanted = peak + peak * permille / 1000;
  const uint64_t now = control_resident();
  if (now == 0 || wanted <= now) return;
  char* ballast = mmap(NULL, wanted - now, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (ballast != MAP_FAILED) munmap(ballast, wanted - now);
}

__attribute__((destructor)) static void control_pay(void) {
  const uint64_t used = control_cpu_ns();
  control_hold(control_parameter("FREESTONE_CONTROL_MEMORY_PERMILLE", 0));
  const uint64_t until = used + used * control_parameter("FREESTONE_CONTROL_CPU_PERMILLE", 0) / 1000;
  while (control_cpu_ns() < until) {
  }
}
