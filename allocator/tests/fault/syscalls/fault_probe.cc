// Started afresh under a failing kernel or a limit. Status 0: all went well; 3: some allocations gave null with ENOMEM,
// nothing else was wrong; 1: a promise was broken (named on standard error).
//   fault_probe start                     one exercise of the heap
//   fault_probe fill:PERCENT:BYTES        fills memory until null; at least PERCENT of BYTES must have been had, twice
//   fault_probe guarded:end, :freed       writes behind a run, or into a freed one
//   fault_probe headroom:PERCENT:BYTES    the same where the heap is full, and the address space may grow by BYTES
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "fault/syscalls/churn.h"
#include "support/exercise.h"
#include "support/process_memory.h"

namespace freestone_test {
namespace {

int broken(const char* what) {
  std::fprintf(stderr, "broken: %s\n", what);
  return 1;
}

int fill_with_each(std::initializer_list<size_t> sizes, size_t percent, size_t limit) {
  for (const size_t size : sizes) {
    const size_t had = fill(size);
    const int error = errno;
    std::fprintf(stderr, "%zu bytes in blocks of %zu: %zu %% of the limit\n", had, size, had * 100 / limit);
    if (error != ENOMEM) return broken("null without ENOMEM");
    if (had < limit / 100 * percent) return broken("too little of the limit could be had");
  }
  return 0;
}

int fill_limit(size_t percent, size_t limit) {
  if (fill_with_each({65536, 256, 1 << 20, 8000, 65536}, percent, limit) != 0) return 1;
  // With memory free again, everything works: small blocks, and a thread that allocates.
  pthread_t thread;
  const auto body = [](void*) -> void* {
    return Exerciser(5).run(200).broken == nullptr ? nullptr : reinterpret_cast<void*>(1);
  };
  void* result = nullptr;
  if (pthread_create(&thread, nullptr, body, nullptr) == 0) pthread_join(thread, &result);
  if (result != nullptr) return broken("heap unsound in a thread after the limit was reached");
  for (int i = 0; i < 1000; ++i) {
    void* block = api().malloc(static_cast<size_t>(i) * 16);
    if (block == nullptr) return broken("no memory after everything was freed");
    api().free(block);
  }
  return 0;
}

int fill_headroom(size_t percent, size_t headroom) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = address_space_bytes();
  if (setrlimit(RLIMIT_AS, &limit) != 0) return broken("no limit");
  for (const size_t size : {1000, 5000, 1000})
    for (void* kept; (kept = api().malloc(size)) != nullptr;) *static_cast<char*>(kept) = 1;
  limit.rlim_cur += headroom;
  if (setrlimit(RLIMIT_AS, &limit) != 0) return broken("no other limit");
  return fill_with_each({5000, 5000, 600, 20000, 1000}, percent, headroom);
}

int start() {
  Exerciser exerciser(static_cast<uint64_t>(getpid()));
  const Exercise result = exerciser.run(400);
  if (!result.sound()) return broken(result.broken);
  return result.nulls == 0 ? 0 : 3;
}

}  // namespace
}  // namespace freestone_test

int main(int, char** argv) {
  // A process that gets no memory at all cannot even throw: that is the C++ library's end, not the allocator's.
  void* volatile small = std::malloc(64);
  void* volatile medium = std::malloc(20000);
  if (small == nullptr || medium == nullptr) return errno == ENOMEM ? 3 : 1;
  std::free(small);
  std::free(medium);
  size_t percent = 0;
  size_t limit = 0;
  if (std::strcmp(argv[1], "start") == 0) return freestone_test::start();
  if (std::strncmp(argv[1], "guarded:", 8) == 0) {
    constexpr size_t kBytes = 200'000;
    auto* volatile block = static_cast<volatile char*>(std::malloc(kBytes));
    if (argv[1][8] == 'f') std::free(const_cast<char*>(block));
    for (size_t at = argv[1][8] == 'f' ? 0 : kBytes; at < kBytes + (64 << 10); at += 4096) block[at] = 1;
    return 0;
  }
  if (std::sscanf(argv[1], "fill:%zu:%zu", &percent, &limit) == 2) return freestone_test::fill_limit(percent, limit);
  if (std::sscanf(argv[1], "headroom:%zu:%zu", &percent, &limit) == 2)
    return freestone_test::fill_headroom(percent, limit);
  return 2;
}
