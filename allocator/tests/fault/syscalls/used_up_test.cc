// A process has so many mappings and so many bytes of addresses, and may find itself at the end of both between any two
// calls. Then an allocation gets null, or memory that is there; nothing is lost, and afterwards all is as before.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

#include "support/child.h"
#include "support/exercise.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kPage = 4096;
constexpr int kBroken = 4;

// Blocks of `least` to `most` bytes by every call of the surface, at most `live_most` bytes at a time. A few pages of
// each carry its number. The table is outside the heap.
class Churn {
 public:
  Churn(uint64_t seed, size_t least, size_t most, size_t live_most)
      : random_(seed), least_(least), most_(most), live_most_(live_most) {
    const size_t bytes = kPlaces * sizeof(Block);
    void* table = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    blocks_ = static_cast<Block*>(table);
  }
  // False: a block lost its contents, or a null came without ENOMEM.
  bool run(unsigned steps) {
    for (unsigned k = 0; k < steps; ++k) {
      Block& block = blocks_[random_.below(kPlaces)];
      if (!is_whole(block, block.bytes)) return false;
      const size_t size = random_.between(least_, most_);
      const bool grows = block.start != nullptr && random_.below(4) == 0;
      if (!grows) {
        api().free(block.start);
        live_ -= block.bytes;
        block = Block{};
      }
      if (live_ + size > live_most_) continue;
      errno = 0;
      void* got = grows ? api().realloc(block.start, size) : take(size);
      if (got == nullptr) {
        ++nulls_;
        if (errno != ENOMEM || !is_whole(block, block.bytes)) return false;
        continue;
      }
      const size_t kept = std::min(block.bytes, size);
      block.start = static_cast<uint64_t*>(got);
      if (!is_whole(block, kept)) return false;
      live_ += size - block.bytes;
      block.bytes = size;
      block.number = ++number_;
      for_marks(size, [&](size_t at) { block.start[at] = block.number + at; });
    }
    return true;
  }
  bool free_all() {
    bool whole = true;
    for (size_t i = 0; i < kPlaces; ++i) {
      whole = whole && is_whole(blocks_[i], blocks_[i].bytes);
      api().free(blocks_[i].start);
      blocks_[i] = Block{};
    }
    live_ = 0;
    return whole;
  }
  unsigned take_nulls() { return std::exchange(nulls_, 0); }

 private:
  struct Block {
    uint64_t* start = nullptr;
    size_t bytes = 0;
    uint64_t number = 0;
  };
  static constexpr size_t kPlaces = 400;

  template <typename Visit>
  static void for_marks(size_t bytes, Visit visit) {
    const size_t words = bytes / sizeof(uint64_t);
    const size_t step = words < 1 << 17 ? 16 * kPage / sizeof(uint64_t) : kMiB / sizeof(uint64_t);
    for (size_t at = 0; at < words; at += step) visit(at);
    if (words > 0) visit(words - 1);
  }
  // The last mark moves with the size, so a part of a block has its own marks only.
  static bool is_whole(const Block& block, size_t bytes) {
    bool whole = true;
    const size_t words = block.bytes / sizeof(uint64_t);
    if (block.start != nullptr)
      for_marks(block.bytes, [&](size_t at) {
        if (at < bytes / sizeof(uint64_t) || (at == words - 1 && bytes >= block.bytes))
          whole = whole && block.start[at] == block.number + at;
      });
    return whole;
  }
  void* take(size_t size) {
    switch (random_.below(4)) {
      case 0: return api().calloc(1, size);
      case 1: return api().aligned_alloc(size_t{64} << random_.below(16), size);
      default: return api().malloc(size);
    }
  }

  Random random_;
  size_t least_;
  size_t most_;
  size_t live_most_;
  Block* blocks_;
  size_t live_ = 0;
  uint64_t number_ = 0;
  unsigned nulls_ = 0;
};

bool can_make_thread() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, [](void*) -> void* { return api().malloc(100); }, nullptr) != 0) return false;
  void* block;
  pthread_join(thread, &block);
  api().free(block);
  return true;
}

// A heap with free memory in holes, in which the trouble begins; then a heap without it.
int live_through(const std::function<void()>& begin, const std::function<void()>& end) {
  Churn large(3, 4 * kMiB, 12 * kMiB, 300 * kMiB);
  Churn medium(5, 1000, 600'000, 60 * kMiB);
  if (!large.run(600) || !medium.run(600)) return kBroken;
  large.take_nulls();
  begin();
  can_make_thread();
  Exerciser troubled(7);
  const Exercise during = troubled.run(200);
  if (!during.sound()) {
    dprintf(STDERR_FILENO, "%s\n", during.broken);
    return kBroken;
  }
  if (!large.run(400) || !medium.run(400)) return kBroken;
  can_make_thread();
  dprintf(STDERR_FILENO, "%u nulls\n", large.take_nulls() + medium.take_nulls() + during.nulls);
  end();
  if (!large.run(200) || !medium.run(200)) return kBroken;
  Exerciser calm(9);
  const Exercise after = calm.run(200);
  if (!after.sound() || after.nulls + large.take_nulls() + medium.take_nulls() != 0) return 5;
  if (!can_make_thread()) return 6;
  return large.free_all() && medium.free_all() ? 0 : kBroken;
}

class FullTable : public testing::TestWithParam<size_t> {};

// All but a few of the mappings that the process may have are the program's own.
TEST_P(FullTable, OfMappingsLosesNoBlock) {
  const ChildEnd end = run_in_child([] {
    constexpr size_t kMost = 1 << 17;
    constexpr size_t kTableBytes = kMost * sizeof(void*);
    void* table = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto** taken = static_cast<void**>(table);
    size_t count = 0;
    const auto take_all = [&] {
      for (; count < kMost; ++count) {
        const int protection = count % 2 == 0 ? PROT_NONE : PROT_READ;
        taken[count] = mmap(nullptr, kPage, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (taken[count] == MAP_FAILED) break;
      }
      for (size_t k = 0; k < GetParam(); ++k) munmap(taken[--count], kPage);
    };
    const auto give_all = [&] {
      while (count > 0) munmap(taken[--count], kPage);
    };
    return live_through(take_all, give_all);
  });
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
  std::fprintf(stderr, "%s", end.errors.c_str());
}

INSTANTIATE_TEST_SUITE_P(FreeEntries, FullTable, testing::Values(0, 1, 2, 3, 5, 8, 20));

struct Lowered {
  const char* name;
  int resource;
  size_t below;  // use
  friend std::ostream& operator<<(std::ostream& out, const Lowered& lowered) { return out << lowered.name; }
};

class LimitBelowUse : public testing::TestWithParam<Lowered> {};

size_t bytes_in_use(int resource) {
  std::FILE* file = std::fopen("/proc/self/status", "re");
  char line[256];
  unsigned long kib = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    std::sscanf(line, resource == RLIMIT_AS ? "VmSize: %lu" : "VmData: %lu", &kib);
  if (file != nullptr) std::fclose(file);
  return size_t{kib} * 1024;
}

// A program that bounds itself by less than it uses: what it has serves on.
TEST_P(LimitBelowUse, LosesNoBlock) {
  const ChildEnd end = run_in_child([] {
    const auto resource = static_cast<__rlimit_resource>(GetParam().resource);
    rlimit before{};
    getrlimit(resource, &before);
    const auto lower = [&] {
      const rlimit limit{bytes_in_use(GetParam().resource) - GetParam().below, before.rlim_max};
      setrlimit(resource, &limit);
    };
    return live_through(lower, [&] { setrlimit(resource, &before); });
  });
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
  std::fprintf(stderr, "%s", end.errors.c_str());
}

INSTANTIATE_TEST_SUITE_P(Limits, LimitBelowUse,
                         testing::Values(Lowered{"address_space", RLIMIT_AS, 0},
                                         Lowered{"address_space_less", RLIMIT_AS, 32 * kMiB},
                                         Lowered{"data", RLIMIT_DATA, 0},
                                         Lowered{"data_less", RLIMIT_DATA, 32 * kMiB}),
                         [](const auto& info) { return std::string(info.param.name); });

// Two of the heap, one of its tags, one of its records, one of the caches; a mapping of its own and huge pages part
// them a few times.
TEST(Mappings, AreAsFewInALargeHeapAsInASmallOne) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  const ChildEnd end = run_in_child([] {
    constexpr size_t kMost = 16;
    Churn churn(13, kMiB / 4, 31 * kMiB, size_t{3} << 30);
    api().free(api().malloc(1));
    const size_t before = mapping_count();
    size_t most = 0;
    for (int k = 0; k < 8; ++k) {
      if (!churn.run(100)) return kBroken;
      most = std::max(most, mapping_count() - before);
    }
    dprintf(STDERR_FILENO, "%zu mappings more\n", most);
    return most <= kMost ? 0 : 1;
  });
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
  std::fprintf(stderr, "%s", end.errors.c_str());
}

}  // namespace
}  // namespace freestone_test
