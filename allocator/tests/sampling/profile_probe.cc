// Programs whose profile is known exactly: profile_probe ACT ARGUMENT... Its exported functions are looked up by name.
#include <dlfcn.h>
#include <malloc.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#define PLACE extern "C" __attribute__((noinline, noclone, visibility("default")))

namespace {

struct Profiler {
  void (*start)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_start"));
  void (*stop)() = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_stop"));
  int (*dump)(const char*) = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "freestone_prof_dump"));
};

// Hides from the compiler what a block is for, so no call can be left out.
template <typename T>
T* opaque(T* block) {
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}

}  // namespace

// history [FILE]: blocks of 1000 bytes, so that the bytes of a place are its count times 1000.
//   short_lived   allocates 300, frees them after 30 ms       (the peak falls into this)
//   long_lived    allocates 200, keeps them
//   freed_at_once allocates 500, frees each at once
// With a FILE the profile is off at the start, on for all this, off for another 100 of long_lived, and written to the
// file by the API. Prints the addresses of the three.
PLACE void* long_lived() { return opaque(malloc(1000)); }
PLACE void* short_lived() { return opaque(malloc(1000)); }
PLACE void freed_at_once() { free(opaque(malloc(1000))); }

namespace {

void* kept[400];

int history(char** arguments) {
  const Profiler profiler;
  if (arguments[0] != nullptr) {
    for (int i = 0; i < 100; ++i) kept[300 + i] = long_lived();
    profiler.start();
  }
  for (int i = 0; i < 200; ++i) kept[i] = long_lived();
  static void* brief[300];
  for (void*& block : brief) block = short_lived();
  usleep(30000);
  for (void* block : brief) free(block);
  for (int i = 0; i < 500; ++i) freed_at_once();
  if (arguments[0] != nullptr) {
    profiler.stop();
    for (int i = 0; i < 100; ++i) kept[200 + i] = long_lived();
    printf("dump %d\n", profiler.dump(arguments[0]));
  }
  printf("%zu %zu %zu\n", reinterpret_cast<size_t>(&long_lived), reinterpret_cast<size_t>(&short_lived),
         reinterpret_cast<size_t>(&freed_at_once));
  return kept[0] == nullptr;
}

}  // namespace

// chains: depth_N call each other from depth_9 to depth_0, which allocates, in the main thread through each entry point
// of the library, in a thread, and on another stack (ucontext).
PLACE void depth_0(int how) {
  static int used;
  void* block = nullptr;
  switch (how) {
    case 0: block = malloc(777); break;
    case 1: block = calloc(7, 111); break;
    case 2: block = realloc(nullptr, 777); break;
    case 3: block = aligned_alloc(256, 777); break;
    case 4: block = new char[777]; break;
    case 5: block = calloc(1, 50000); break;
    case 6: block = malloc(1000000); break;
    case 7: block = realloc(malloc(100), 5000); break;
  }
  kept[used++] = opaque(block);
}
#define DEPTH(n, below)               \
  PLACE void depth_##n(int how) {     \
    volatile char room[16 * n] = {0}; \
    depth_##below(how);               \
    asm volatile("" : : "r"(room));   \
  }
DEPTH(1, 0)
DEPTH(2, 1)
DEPTH(3, 2)
DEPTH(4, 3)
DEPTH(5, 4)
DEPTH(6, 5)
DEPTH(7, 6)
DEPTH(8, 7)
DEPTH(9, 8)

PLACE void deep(int levels) {
  volatile char room[32] = {0};
  if (levels == 0)
    depth_3(0);
  else
    deep(levels - 1);
  asm volatile("" : : "r"(room));
}

namespace {

ucontext_t main_context, fibre;

int chains(char**) {
  for (int how = 0; how < 8; ++how) depth_9(how);
  std::thread(depth_9, 0).join();
  getcontext(&fibre);
  fibre.uc_stack.ss_sp = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fibre.uc_stack.ss_size = 65536;
  fibre.uc_link = &main_context;
  makecontext(&fibre, [] { depth_9(0); }, 0);
  swapcontext(&main_context, &fibre);
  deep(300);
  return 0;
}

// CALL COUNT SIZE...: for each size a thread of its own, whose first allocations these are, allocates COUNT blocks with
// CALL, all from the function `place`, and keeps them.
// CALL late SIZE: a thread allocates and frees a block again and again, so that its cache serves it alone, and only
// then does the profile begin. Prints how many of its allocations at least came while it was on.
// CALL toggled SIZE: three threads hold blocks of up to SIZE bytes and look at what they wrote, while the profile is
// switched on and off.
struct Call {
  const char* name;
  void* (*allocate)(size_t bytes);
  void (*release)(void* block) = free;
};
constexpr size_t kAlignment = 128;

const Call kCalls[] = {
    {"malloc", [](size_t bytes) { return malloc(bytes); }},
    {"calloc", [](size_t bytes) { return calloc(1, bytes); }},
    {"realloc", [](size_t bytes) { return realloc(nullptr, bytes); }},
    {"realloc_grows", [](size_t bytes) { return realloc(malloc(16), bytes); }},
    {"reallocarray", [](size_t bytes) { return reallocarray(nullptr, 1, bytes); }},
    {"memalign", [](size_t bytes) { return memalign(kAlignment, bytes); }},
    {"aligned_alloc", [](size_t bytes) { return aligned_alloc(kAlignment, bytes); }},
    {"posix_memalign",
     [](size_t bytes) {
       void* block = nullptr;
       return posix_memalign(&block, kAlignment, bytes) == 0 ? block : nullptr;
     }},
    {"valloc", [](size_t bytes) { return valloc(bytes); }},
    {"pvalloc", [](size_t bytes) { return pvalloc(bytes); }},
    {"new", [](size_t bytes) { return operator new(bytes); }, [](void* block) { operator delete(block); }},
    {"new_array", [](size_t bytes) { return operator new[](bytes); }, [](void* block) { operator delete[](block); }},
    {"new_nothrow", [](size_t bytes) { return operator new(bytes, std::nothrow); },
     [](void* block) { operator delete(block); }},
    {"new_aligned", [](size_t bytes) { return operator new(bytes, std::align_val_t{kAlignment}); },
     [](void* block) { operator delete(block, std::align_val_t{kAlignment}); }},
};

}  // namespace

PLACE void* place(const Call& call, size_t bytes) { return opaque(call.allocate(bytes)); }

namespace {

std::atomic<long> pairs;
std::atomic<bool> done;

void wait_for_pairs(long more) {
  for (const long until = pairs + more; pairs < until;) std::this_thread::yield();
}

void begin_late(const Call& call, size_t bytes) {
  const Profiler profiler;
  std::thread steady([&] {
    for (; !done; ++pairs) call.release(place(call, bytes));
  });
  wait_for_pairs(10'000);
  profiler.start();
  const long before = pairs;
  wait_for_pairs(1'000);
  const long within = pairs - before;
  profiler.stop();
  done = true;
  steady.join();
  printf("%ld\n", within - 1);  // the first may have been taken before
}

void fill_and_check(const Call& call, size_t bytes, unsigned char mark) {
  unsigned char* held[32] = {};
  for (size_t turn = 0; !done; ++turn) {
    unsigned char*& block = held[turn % 32];
    if (block != nullptr) {
      if (block[0] != mark || block[malloc_usable_size(block) - 1] != mark) abort();
      call.release(block);
    }
    block = static_cast<unsigned char*>(place(call, 1 + turn * 37 % bytes));
    memset(block, mark, malloc_usable_size(block));
    ++pairs;
  }
  for (unsigned char* block : held) call.release(block);
}

void toggle(const Call& call, size_t bytes) {
  const Profiler profiler;
  std::thread threads[3];
  for (unsigned char k = 0; k < 3; ++k) threads[k] = std::thread([&, k] { fill_and_check(call, bytes, k + 1); });
  for (int k = 0; k < 60; ++k) {
    profiler.start();
    wait_for_pairs(20);
    profiler.stop();
    wait_for_pairs(20);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

int use_call(const Call& call, char** arguments) {
  const char* how = arguments[0];
  bool all = true;
  for (char** size = arguments + 1; *size != nullptr; ++size) {
    const size_t bytes = strtoul(*size, nullptr, 10);
    if (strcmp(how, "late") == 0) {
      begin_late(call, bytes);
    } else if (strcmp(how, "toggled") == 0) {
      toggle(call, bytes);
    } else {
      std::thread([&] {
        for (int i = 0; i < atoi(how); ++i) all = place(call, bytes) != nullptr && all;
      }).join();
    }
  }
  return all ? 0 : 1;
}

struct Act {
  const char* name;
  int (*run)(char** arguments);
};
const Act kActs[] = {{"history", history}, {"chains", chains}};

}  // namespace

int main(int, char** arguments) {
  for (const Act& act : kActs)
    if (strcmp(act.name, arguments[1]) == 0) return act.run(arguments + 2);
  for (const Call& call : kCalls)
    if (strcmp(call.name, arguments[1]) == 0) return use_call(call, arguments + 2);
  return 2;
}
