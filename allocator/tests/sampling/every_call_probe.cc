// every_call_probe CALL COUNT SIZE...: for each size a thread of its own, whose first allocations these are, allocates
// COUNT blocks with CALL, all from the function `place`, and keeps them.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace {

struct Call {
  const char* name;
  void* (*allocate)(size_t bytes);
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
    {"new", [](size_t bytes) { return operator new(bytes); }},
    {"new_array", [](size_t bytes) { return operator new[](bytes); }},
    {"new_nothrow", [](size_t bytes) { return operator new(bytes, std::nothrow); }},
    {"new_aligned", [](size_t bytes) { return operator new(bytes, std::align_val_t{kAlignment}); }},
};

}  // namespace

extern "C" __attribute__((noinline, visibility("default"))) bool place(const Call& call, int count, size_t bytes) {
  bool all = true;
  for (int i = 0; i < count; ++i) {
    void* block = call.allocate(bytes);
    all = all && block != nullptr;
    asm volatile("" : : "r"(block));  // so that no call can be left out
  }
  return all;
}

int main(int count, char** arguments) {
  for (const Call& call : kCalls) {
    if (count < 4 || strcmp(call.name, arguments[1]) != 0) continue;
    bool all = true;
    for (int i = 3; i < count; ++i) {
      std::thread([&] { all = place(call, atoi(arguments[2]), strtoul(arguments[i], nullptr, 10)) && all; }).join();
    }
    return all ? 0 : 1;
  }
  return 2;
}
