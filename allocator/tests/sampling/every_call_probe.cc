// every_call_probe CALL COUNT SIZE...: for each size a thread of its own, whose first allocations these are, allocates
// COUNT blocks with CALL, all from the function `place`, and keeps them.
// every_call_probe CALL late SIZE: a thread allocates and frees a block again and again, so that its cache serves it
// alone, and only then does the profile begin. Prints how many of its allocations at least came while it was on.
// every_call_probe CALL toggled SIZE: three threads hold blocks of up to SIZE bytes and look at what they wrote, while
// the profile is switched on and off.
#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace {

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

extern "C" {
__attribute__((noinline, visibility("default"))) void* place_one(const Call& call, size_t bytes) {
  void* block = call.allocate(bytes);
  asm volatile("" : "+r"(block));  // no call can be left out
  return block;
}
__attribute__((noinline, visibility("default"))) bool place(const Call& call, int count, size_t bytes) {
  bool all = true;
  for (int i = 0; i < count; ++i) {
    void* block = call.allocate(bytes);
    asm volatile("" : "+r"(block));
    all = all && block != nullptr;
  }
  return all;
}
}

namespace {

std::atomic<long> pairs;
std::atomic<bool> done;

void wait_for_pairs(long more) {
  for (const long until = pairs + more; pairs < until;) std::this_thread::yield();
}

void begin_late(const Call& call, size_t bytes) {
  const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_start"));
  const auto stop = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_stop"));
  std::thread steady([&] {
    for (; !done; ++pairs) call.release(place_one(call, bytes));
  });
  wait_for_pairs(10'000);
  start();
  const long before = pairs;
  wait_for_pairs(1'000);
  const long within = pairs - before;
  stop();
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
    block = static_cast<unsigned char*>(place_one(call, 1 + turn * 37 % bytes));
    memset(block, mark, malloc_usable_size(block));
    ++pairs;
  }
  for (unsigned char* block : held) call.release(block);
}

void toggle(const Call& call, size_t bytes) {
  const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_start"));
  const auto stop = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "freestone_prof_stop"));
  std::thread threads[3];
  for (unsigned char k = 0; k < 3; ++k) threads[k] = std::thread([&, k] { fill_and_check(call, bytes, k + 1); });
  for (int k = 0; k < 60; ++k) {
    start();
    wait_for_pairs(20);
    stop();
    wait_for_pairs(20);
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int count, char** arguments) {
  for (const Call& call : kCalls) {
    if (count < 4 || strcmp(call.name, arguments[1]) != 0) continue;
    if (strcmp(arguments[2], "late") == 0) {
      begin_late(call, strtoul(arguments[3], nullptr, 10));
      return 0;
    }
    if (strcmp(arguments[2], "toggled") == 0) {
      toggle(call, strtoul(arguments[3], nullptr, 10));
      return 0;
    }
    bool all = true;
    for (int i = 3; i < count; ++i) {
      std::thread([&] { all = place(call, atoi(arguments[2]), strtoul(arguments[i], nullptr, 10)) && all; }).join();
    }
    return all ? 0 : 1;
  }
  return 2;
}
