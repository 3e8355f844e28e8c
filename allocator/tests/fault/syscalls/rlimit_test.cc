// Resource limits: what the limit leaves can really be had, then null and ENOMEM, then everything again.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

struct Limit {
  const char* name;
  int resource;
  size_t mebibytes;
  unsigned percent;  // of the limit that a program must be able to allocate
  friend std::ostream& operator<<(std::ostream& out, const Limit& limit) {
    return out << limit.name << ' ' << limit.mebibytes << " MiB";
  }
};

const Limit kLimits[] = {
    {"address_space", RLIMIT_AS, 64, 30},   {"address_space", RLIMIT_AS, 128, 45},
    {"address_space", RLIMIT_AS, 256, 50},  {"address_space", RLIMIT_AS, 512, 50},
    {"address_space", RLIMIT_AS, 1024, 50}, {"address_space", RLIMIT_AS, 4096, 50},
    {"data", RLIMIT_DATA, 64, 60},          {"data", RLIMIT_DATA, 256, 75},
    {"data", RLIMIT_DATA, 1024, 75},
};

class UnderLimit : public testing::TestWithParam<Limit> {};

TEST_P(UnderLimit, MostOfTheMemoryCanBeHadAndThenNull) {
  const Limit& limit = GetParam();
  if (limit.mebibytes > 512 && scaled(100) < 100) GTEST_SKIP() << "of the long form: it touches all of that memory";
  const size_t bytes = limit.mebibytes << 20;
  // In the hardened build the check word takes a block of 64 KiB to the next unit of 16 KiB.
  const unsigned percent = subject().is_hardened ? limit.percent * 9 / 10 : limit.percent;
  const std::string mode = "fill:" + std::to_string(percent) + ":" + std::to_string(bytes);
  EXPECT_TRUE(ends_well([&] {
    const rlimit value{bytes, bytes};
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource), &value) != 0) return 125;
    execl((std::string(FREESTONE_PROBE_DIR) + "/fault_probe").c_str(), "fault_probe", mode.c_str(),
          static_cast<char*>(nullptr));
    return 126;
  }));
}

INSTANTIATE_TEST_SUITE_P(Limits, UnderLimit, testing::ValuesIn(kLimits), [](const auto& info) {
  return std::string(info.param.name) + "_" + std::to_string(info.param.mebibytes) + "_MiB";
});

// Steps of growth get smaller where the kernel refuses larger ones, and what was freed serves blocks of other sizes.
TEST(LateLimit, LeavesMostOfTheHeadroomToSmallBlocks) {
  if (kEmulated) GTEST_SKIP() << "the emulator sets no limit";
  for (const size_t kibibytes : {size_t{900}, size_t{1900}, size_t{2900}}) {
    const std::string mode = "headroom:60:" + std::to_string(kibibytes << 10);
    EXPECT_TRUE(ends_well([&] {
      execl((std::string(FREESTONE_PROBE_DIR) + "/fault_probe").c_str(), "fault_probe", mode.c_str(),
            static_cast<char*>(nullptr));
      return 126;
    })) << kibibytes
        << " KiB";
  }
}

// A limit that comes when the heap is already in use.
TEST(LateLimit, StopsGrowthButNotReuse) {
  EXPECT_TRUE(ends_well([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(api().malloc(100000));
    const rlimit none{0, 0};
    if (setrlimit(RLIMIT_AS, &none) != 0) return 125;
    for (void*& block : blocks) {
      api().free(block);
      block = api().malloc(50000);
      if (block == nullptr) return 1;
    }
    errno = 0;
    void* huge = api().malloc(size_t{4} << 30);
    if (huge != nullptr && !subject().is_freestone) return 2;
    for (void* block : blocks) api().free(block);
    return 0;
  }));
}

// What the heap had before stays unlocked: a freed run may lie across the border, where the kernel gives back one part
// and refuses the other.
TEST(LockedMemory, MayBeginInTheMiddleOfTheHeap) {
  EXPECT_TRUE(ends_well([] {
    std::vector<char> keep(300000, 1);
    if (mlockall(MCL_FUTURE) != 0) return 0;  // not allowed
    for (int round = 0; round < 10; ++round) {
      for (size_t bytes = 140000; bytes < 1500000; bytes += bytes / 5) {
        const auto fill = [](void* block, size_t count) {
          if (block != nullptr) std::memset(block, 1, count);
          return block;
        };
        api().free(fill(api().malloc(bytes), bytes));
        void* block = fill(api().malloc(bytes / 2), bytes / 2);
        if (void* longer = api().realloc(block, bytes); longer != nullptr) block = fill(longer, bytes);
        api().free(block);
      }
    }
    return 0;
  }));
}

// Fragmentation at page grain must not use up vm.max_map_count (65530).
TEST(Mappings, StayFewUnderHeavyFragmentation) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  EXPECT_TRUE(ends_well([] {
    std::vector<void*> blocks;
    for (int i = 0; i < 30000; ++i) {
      const size_t size = i % 16 == 0 ? 65536 : i % 5 == 0 ? 20000 : 4096;
      void* block = nullptr;
      if (api().posix_memalign(&block, 4096, size) != 0) return 1;
      *static_cast<char*>(block) = 1;
      blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); i += 2) {
      api().free(blocks[i]);
      blocks[i] = nullptr;
      if (i % 1000 == 0) api().malloc_trim(0);
    }
    api().malloc_trim(0);
    const size_t count = mapping_count();
    dprintf(STDERR_FILENO, "%zu mappings\n", count);
    for (void* block : blocks) api().free(block);
    return count < 1000 ? 0 : 2;
  }));
}

}  // namespace
}  // namespace freestone_test
