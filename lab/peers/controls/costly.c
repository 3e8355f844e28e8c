/* glibc's allocator that costs a known part more than glibc's: of the CPU time and of the peak memory of the process.
 *
 * FREESTONE_CONTROL_CPU_PERMILLE and FREESTONE_CONTROL_MEMORY_PERMILLE are those parts in thousandths (default 0). CPU
 * time is paid in the calls of malloc, in one of 1,024, for what the process used since; the rest falls due when the
 * process ends, as memory does: by then both are known, so the cost is exact whatever the program did. A process that
 * ends by _exit pays no rest.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void* control_call(void* pointer);
#define CONTROL_AFTER_ALLOC(pointer, bytes) control_call(pointer)
#include "forward.h"

static uint64_t control_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Burns the part of what the process has used beyond `paid` ns; one thread at a time, on its own clock. */
static void control_pay(void) {
  static atomic_flag paying = ATOMIC_FLAG_INIT;
  static uint64_t paid;
  if (atomic_flag_test_and_set_explicit(&paying, memory_order_acquire)) return;
  const uint64_t begin = control_ns(CLOCK_THREAD_CPUTIME_ID), used = control_ns(CLOCK_PROCESS_CPUTIME_ID) - paid;
  const uint64_t owed = used * control_parameter("FREESTONE_CONTROL_CPU_PERMILLE", 0) / 1000;
  if (owed > paid) {
    const uint64_t until = begin + owed - paid;
    uint64_t now = begin;
    while (now < until) now = control_ns(CLOCK_THREAD_CPUTIME_ID);
    paid += now - begin;
  }
  atomic_flag_clear_explicit(&paying, memory_order_release);
}

static void* control_call(void* pointer) {
  static __thread unsigned calls;
  if (++calls % 1024 == 0) control_pay();
  return pointer;
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

__attribute__((destructor)) static void control_end(void) {
  control_pay();
  control_hold(control_parameter("FREESTONE_CONTROL_MEMORY_PERMILLE", 0));
}
