// Preloaded before a program that glibc's malloc serves: how long its calls take, as freestone-replay measures them,
// and how much memory they need at the peak. At its end each process adds a line of JSON to the file $FREESTONE_TIMED.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

enum { kLongCycles = 1 << 18 };  // as the replayer's: in such a call another program may have run

static atomic_ullong cycles, calls, long_calls;
static unsigned long long started_cycles, started_ns;
static long base_kib;
static double cpu_before;
static long faults_before;
static char said[4096];  // where to write; nginx empties its environment

// What the program itself maps without a file: glibc's malloc does not come through here.
enum { kRegions = 1 << 16, kPage = 4096 };
static struct region {
  uintptr_t begin;
  size_t size;
} regions[kRegions];
static atomic_uint region_count;

static inline uint64_t now(void) {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
  const uint64_t count = __builtin_ia32_rdtsc();
  __builtin_ia32_lfence();
#else
  uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
#endif
  return count;
}

static uint64_t now_ns(void) {
  struct timespec found;
  clock_gettime(CLOCK_MONOTONIC, &found);
  return (uint64_t)found.tv_sec * 1000000000u + (uint64_t)found.tv_nsec;
}

static double cpu_s(void) {
  struct timespec found;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &found);
  return (double)found.tv_sec + (double)found.tv_nsec / 1e9;
}

static long faults(void) {
  struct rusage found;
  getrusage(RUSAGE_SELF, &found);
  return found.ru_minflt;
}

static void add(uint64_t taken) {
  if (taken >= kLongCycles) {
    atomic_fetch_add_explicit(&long_calls, 1, memory_order_relaxed);
    return;
  }
  atomic_fetch_add_explicit(&cycles, taken, memory_order_relaxed);
  atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
}

#define TIMED(result, call)     \
  const uint64_t begin = now(); \
  result call;                  \
  add(now() - begin)

void* malloc(size_t size) {
  TIMED(void* block =, __libc_malloc(size));
  return block;
}

void* calloc(size_t count, size_t size) {
  TIMED(void* block =, __libc_calloc(count, size));
  return block;
}

void* realloc(void* old, size_t size) {
  TIMED(void* block =, __libc_realloc(old, size));
  return block;
}

void free(void* block) {
  if (!block) return;  // no event of a trace
  TIMED(, __libc_free(block));
}

void* memalign(size_t alignment, size_t size) {
  TIMED(void* block =, __libc_memalign(alignment, size));
  return block;
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** block, size_t alignment, size_t size) {
  void* made = memalign(alignment, size);
  if (!made) return ENOMEM;
  *block = made;
  return 0;
}

void* mmap(void* at, size_t size, int access, int flags, int fd, off_t offset) {
  void* made = (void*)syscall(SYS_mmap, at, size, access, flags, fd, offset);
  if (made == MAP_FAILED || !(flags & MAP_ANONYMOUS)) return made;
  const unsigned number = atomic_fetch_add_explicit(&region_count, 1, memory_order_relaxed);
  if (number < kRegions) regions[number] = (struct region){(uintptr_t)made, size};
  return made;
}

static int by_begin(const void* left, const void* right) {
  const uintptr_t a = ((const struct region*)left)->begin, b = ((const struct region*)right)->begin;
  return (a > b) - (a < b);
}

// Resident private pages of what the program mapped. A place that was mapped twice counts once.
static long mapped_kib(void) {
  enum { kResident = 1, kOfFile = 1, kEntries = 512 };
  const unsigned found = atomic_load(&region_count);
  const unsigned count = found < kRegions ? found : kRegions;
  const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  qsort(regions, count, sizeof *regions, by_begin);
  long pages = 0;
  uintptr_t at = 0;
  for (unsigned i = 0; i < count; i++) {
    const uintptr_t end = regions[i].begin + regions[i].size;
    for (at = at > regions[i].begin ? at : regions[i].begin; at < end;) {
      uint64_t entries[kEntries];
      const size_t rest = (end - at + kPage - 1) / kPage;
      const size_t wanted = (rest < kEntries ? rest : kEntries) * sizeof *entries;
      const ssize_t got = pread(fd, entries, wanted, (off_t)(at / kPage * sizeof *entries));
      if (got <= 0) break;
      for (size_t k = 0; k < (size_t)got / sizeof *entries; k++)
        pages += (entries[k] >> 63 & kResident) && !(entries[k] >> 61 & kOfFile);
      at += (size_t)got / sizeof *entries * kPage;
    }
  }
  if (fd >= 0) close(fd);
  return pages * (kPage / 1024);
}

// What the lines "NAME: N kB" of a file below /proc/self add up to, over mappings with a name, without one, or all.
// What follows a file's mapping at once is that file's too: its variables that begin as zero.
static long kib(const char* path, const char* name, int named) {
  static char text[1 << 20];  // read at once, as mappings change while it is read
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  size_t used = 0;
  for (ssize_t got; fd >= 0 && (got = read(fd, text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
  if (fd >= 0) close(fd);
  text[used] = 0;
  long sum = 0;
  int wanted = 1, of_file = 0;
  uintptr_t last_end = 0;
  const size_t length = strlen(name);
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = 0;
    const char* dash = strchr(line, '-');
    if (named >= 0 && dash && dash < line + 17 && strchr(line, ':')) {
      const char* name_begin = strpbrk(line, "/[");
      const uintptr_t begin = strtoul(line, NULL, 16);
      const int heap = name_begin && strcmp(name_begin, "[heap]") == 0;
      of_file = !heap && ((name_begin && *name_begin == '/') || (!name_begin && of_file && begin == last_end));
      wanted = (of_file || (name_begin && !heap)) == named;
      last_end = strtoul(dash + 1, NULL, 16);
    }
    if (wanted && strncmp(line, name, length) == 0) sum += atol(line + length);
  }
  return sum;
}

__attribute__((constructor)) static void begin_here(void) {
  const char* path = getenv("FREESTONE_TIMED");
  if (path && strlen(path) < sizeof said) strcpy(said, path);
  base_kib = kib("/proc/self/smaps", "Anonymous:", 0);
  cpu_before = cpu_s();
  faults_before = faults();
  started_ns = now_ns();
  started_cycles = now();
}

__attribute__((destructor)) static void end_here(void) {
  const long faulted = faults() - faults_before;
  double cpu = cpu_s() - cpu_before;
  const double per_ns = (double)(now() - started_cycles) / (double)(now_ns() - started_ns);
  uint64_t costs[1001], clock = ~UINT64_C(0);
  for (int i = 0; i < 1001; i++) {
    const uint64_t begin = now();
    costs[i] = now() - begin;
  }
  for (int i = 0; i < 1001; i++) {  // the median, as the replayer's
    int below = 0, equal = 0;
    for (int k = 0; k < 1001; k++) below += costs[k] < costs[i], equal += costs[k] == costs[i];
    if (below <= 500 && below + equal > 500) clock = costs[i];
  }
  const unsigned long long timed = atomic_load(&calls), longer = atomic_load(&long_calls);
  const double taken = (double)atomic_load(&cycles) - (double)clock * (double)timed;
  cpu -= (double)clock * (double)(timed + longer) / per_ns / 1e9;  // what the timing itself took
  const long whole = kib("/proc/self/status", "VmHWM:", -1);
  const long peak = whole - kib("/proc/self/status", "RssFile:", -1) -
                    kib("/proc/self/status", "RssShmem:", -1) - kib("/proc/self/smaps", "Anonymous:", 1) - base_kib -
                    mapped_kib();
  char line[320];
  const int length = snprintf(
      line, sizeof line, "{\"calls\":%llu,\"seconds\":%.9f,\"peak_kib\":%ld,\"rss_kib\":%ld,"
      "\"cpu_s\":%.9f,\"faults\":%ld}\n",
      timed + longer, taken / per_ns / 1e9, peak, whole, cpu, faulted);
  const int fd = said[0] ? open(said, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
  if (fd >= 0 && write(fd, line, (size_t)length) != length) _exit(1);
}
