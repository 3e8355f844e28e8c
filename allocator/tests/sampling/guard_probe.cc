// One misuse of a guarded block per run: guard_probe CASE SIZE. With guard_sample:1 every block is guarded, in turn
// against the page behind it and the page before it; `against(end)` gives one of the wanted kind.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/resource.h>

#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#define PLACE extern "C" __attribute__((noinline, visibility("default")))

PLACE char* place_of_allocation(size_t size) {
  auto* block = static_cast<char*>(malloc(size));
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}
PLACE void place_of_free(void* block) {
  free(block);
  asm volatile("" ::: "memory");
}

static __attribute__((noinline)) char place_of_use(const volatile char* at) { return *at; }

static volatile char sink = 0;
static size_t rounded(size_t size) { return (size + 15) & ~size_t{15}; }

static char* against(bool end, size_t size) {
  for (int i = 0; i < 64; ++i) {
    char* block = place_of_allocation(size);
    const bool at_start = reinterpret_cast<uintptr_t>(block) % 4096 == 0;
    const bool at_end = (reinterpret_cast<uintptr_t>(block) + rounded(size)) % 4096 == 0;
    if (end ? at_end : at_start) return block;
  }
  puts("no guarded block");
  exit(3);
}

static sigjmp_buf back;
static void on_signal(int) { siglongjmp(back, 1); }

// Takes blocks in which each byte is written, and frees all of them; false: a block changed meanwhile.
static bool hold_many(size_t count, size_t size) {
  static char* blocks[6000];
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = place_of_allocation(size);
    if (blocks[i] != nullptr) memset(blocks[i], static_cast<int>(i), size);
  }
  bool whole = true;
  for (size_t i = 0; i < count; ++i) {
    for (size_t at = 0; blocks[i] != nullptr && at < size; ++at) whole = whole && blocks[i][at] == static_cast<char>(i);
    free(blocks[i]);
  }
  return whole;
}

static char* freed(bool end, size_t size) {
  char* block = against(end, size);
  place_of_free(block);
  return block;
}

static void no_misuse(size_t size) {
  for (int round = 0; round < 300; ++round) {
    char* block = place_of_allocation(size);
    memset(block, round, size);
    block = static_cast<char*>(realloc(block, size + 100));
    if (size > 0 && block[size - 1] != static_cast<char>(round)) exit(4);
    if (malloc_usable_size(block) < size + 100) exit(5);
    free(block);
    void* zero = calloc(1, size);
    for (size_t i = 0; i < size; ++i) sink = static_cast<char>(sink | static_cast<char*>(zero)[i]);
    free(zero);
    free(aligned_alloc(1024, size));
  }
  if (sink != 0) exit(6);
}

static void slots_change(size_t size) {
  const auto set = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
  for (const char* slots : {"4", "4096", "64", "65536", "5", "1025", "1024"}) {
    if (set == nullptr || set("guard_slots", slots) != 0) exit(6);
    if (!hold_many(6000, size)) exit(7);
  }
}

// The kernel then refuses to make pages accessible again.
static void limit_below_use(size_t size) {
  if (!hold_many(300, size)) exit(7);
  const rlimit none{4096, RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &none);
  for (int round = 0; round < 20; ++round)
    if (!hold_many(300, size)) exit(8);
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_DATA, &all);
  if (!hold_many(300, size)) exit(9);
}

static void free_64_mib(size_t) {
  for (int k = 0; k < 64; ++k) free(memset(malloc(1 << 20), 1, 1 << 20));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss >= 32 << 10) exit(10);
}

// Installed after ours, so it comes first and we are silent: the program's own handling goes on to work.
static void handler_before(size_t size) {
  signal(SIGSEGV, on_signal);
  if (sigsetjmp(back, 1) == 0) against(true, size)[rounded(size)] = 1;
  puts("handled");
}

struct Act {
  const char* name;
  void (*run)(size_t size);
};

const Act kActs[] = {
    {"clean", no_misuse},
    {"slots_change", slots_change},
    {"limit_below_use", limit_below_use},
    {"freed_memory", free_64_mib},
    {"handler_before", handler_before},
    {"overflow_write", [](size_t size) { against(true, size)[rounded(size)] = 1; }},
    {"overflow_read", [](size_t size) { sink = against(true, size)[rounded(size)]; }},
    {"overflow_far", [](size_t size) { against(true, size)[rounded(size) + 4000] = 1; }},
    {"overflow_slack",
     [](size_t size) {  // between the end and the alignment: seen at the free
       char* block = against(true, size);
       block[size] = 1;
       place_of_free(block);
     }},
    {"underflow_write", [](size_t size) { against(false, size)[-1] = 1; }},
    {"underflow_read", [](size_t size) { sink = against(false, size)[-100]; }},
    {"underflow_slack",
     [](size_t size) {
       char* block = against(true, size);
       block[-1] = 1;
       place_of_free(block);
     }},
    {"use_after_free_write", [](size_t size) { freed(true, size)[0] = 1; }},
    {"use_after_free_read", [](size_t size) { sink = place_of_use(freed(false, size) + size - 1); }},
    {"use_after_free_late",
     [](size_t size) {
       char* block = freed(true, size);
       for (int i = 0; i < 30; ++i) free(malloc(size));
       block[0] = 1;
     }},
    {"double_free", [](size_t size) { free(freed(true, size)); }},
    {"realloc_after_free", [](size_t size) { sink = *static_cast<char*>(realloc(freed(true, size), 10)); }},
    {"invalid_free", [](size_t size) { free(against(true, size) + 16); }},
    {"foreign_free", [](size_t size) { place_of_free(&size); }},
    {"unguarded_overflow",
     [](size_t size) {
       char* block = place_of_allocation(size);
       block[size] = 1;
       place_of_free(block);
     }},
    {"wild_fault", [](size_t) { *reinterpret_cast<volatile char*>(0x10) = 1; }},  // none of ours
};

int main(int, char** arguments) {
  for (const Act& act : kActs) {
    if (strcmp(act.name, arguments[1]) != 0) continue;
    act.run(strtoull(arguments[2], nullptr, 10));
    return 0;
  }
  return 2;
}
