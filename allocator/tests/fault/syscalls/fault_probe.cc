// Started afresh under a failing kernel or a limit. Status 0: all went well; 3: some allocations gave null with ENOMEM,
// nothing else was wrong; 1: a promise was broken (named on standard error).
//   fault_probe start                     one exercise of the heap
//   fault_probe fill:PERCENT:BYTES        fills memory until null; at least PERCENT of BYTES must have been had, twice
//   fault_probe headroom:PERCENT:BYTES    the same where the heap is full, and the address space may grow by BYTES
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "support/exercise.h"
#include "support/process_memory.h"

namespace freestone_test {
namespace {

int broken(const char* what) {
  std::fprintf(stderr, "broken: %s\n", what);
  return 1;
}

struct Link {
  Link* next;
};

// Takes touched blocks of `size` until null and says how many bytes that were.
size_t fill_up(size_t size, Link*& list, bool& clean_errno) {
  size_t total = 0;
  for (;;) {
    errno = 0;
    auto* link = static_cast<Link*>(api().malloc(size));
    if (link == nullptr) break;
    link->next = list;
    list = link;
    total += size;
  }
  clean_errno = errno == ENOMEM;
  return total;
}

size_t fill_and_free(size_t size, bool& clean_errno) {
  Link* list = nullptr;
  const size_t total = fill_up(size, list, clean_errno);
  while (list != nullptr) {
    Link* next = list->next;
    api().free(list);
    list = next;
  }
  return total;
}

int fill_with_each(std::initializer_list<size_t> sizes, size_t percent, size_t limit) {
  for (const size_t size : sizes) {
    bool clean_errno = false;
    const size_t had = fill_and_free(size, clean_errno);
    std::fprintf(stderr, "%zu bytes in blocks of %zu: %zu %% of the limit\n", had, size, had * 100 / limit);
    if (!clean_errno) return broken("null without ENOMEM");
    if (had < limit / 100 * percent) return broken("too little of the limit could be had");
  }
  return 0;
}

int fill(size_t percent, size_t limit) {
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
  Link* kept = nullptr;
  bool clean_errno = false;
  for (const size_t size : {size_t{1000}, size_t{5000}, size_t{1000}}) fill_up(size, kept, clean_errno);
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
  if (std::sscanf(argv[1], "fill:%zu:%zu", &percent, &limit) == 2) return freestone_test::fill(percent, limit);
  if (std::sscanf(argv[1], "headroom:%zu:%zu", &percent, &limit) == 2)
    return freestone_test::fill_headroom(percent, limit);
  return 2;
}
