// A process has so many mappings and so many bytes of addresses, and may find itself at the end of both between any two
// calls. Then an allocation gets null, or memory that is there; nothing is lost, and afterwards all is as before.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "fault/syscalls/churn.h"
#include "support/child.h"
#include "support/exercise.h"
#include "support/process_memory.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr int kBroken = 4;

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
  EXPECT_TRUE(ends_well([] {
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
  }));
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
  return said_bytes("/proc/self/status", resource == RLIMIT_AS ? "VmSize:" : "VmData:");
}

// A program that bounds itself by less than it uses: what it has serves on.
TEST_P(LimitBelowUse, LosesNoBlock) {
  EXPECT_TRUE(ends_well([] {
    const auto resource = static_cast<__rlimit_resource>(GetParam().resource);
    rlimit before{};
    getrlimit(resource, &before);
    const auto lower = [&] {
      const rlimit limit{bytes_in_use(GetParam().resource) - GetParam().below, before.rlim_max};
      setrlimit(resource, &limit);
    };
    return live_through(lower, [&] { setrlimit(resource, &before); });
  }));
}

INSTANTIATE_TEST_SUITE_P(Limits, LimitBelowUse,
                         testing::Values(Lowered{"address_space", RLIMIT_AS, 0},
                                         Lowered{"address_space_less", RLIMIT_AS, 32 * kMiB},
                                         Lowered{"data", RLIMIT_DATA, 0}, Lowered{"data_less", RLIMIT_DATA, 32 * kMiB}),
                         [](const auto& info) { return std::string(info.param.name); });

// Two of the heap, one of its tags, one of its records, one of the caches; a mapping of its own and huge pages part
// them a few times.
TEST(Mappings, AreAsFewInALargeHeapAsInASmallOne) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  EXPECT_TRUE(ends_well([] {
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
  }));
}

}  // namespace
}  // namespace freestone_test
