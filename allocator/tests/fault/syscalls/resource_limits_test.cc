// The heap takes addresses only as it grows: a program that limits or locks its address space, or that has mappings of
// its own where the heap would grow, works as under the C library's malloc. What a limit leaves can really be had, then
// null and ENOMEM, then everything again.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "fault/syscalls/churn.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

const std::string kProbes = FREESTONE_PROBE_DIR;

struct Limit {
  const char* name;
  __rlimit_resource resource;
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
    if (setrlimit(limit.resource, &value) != 0) return 125;
    execl((kProbes + "/fault_probe").c_str(), "fault_probe", mode.c_str(), static_cast<char*>(nullptr));
    return 126;
  }));
}

INSTANTIATE_TEST_SUITE_P(Limits, UnderLimit, testing::ValuesIn(kLimits), [](const auto& info) {
  return std::string(info.param.name) + "_" + std::to_string(info.param.mebibytes) + "_MiB";
});

// As of a unit with LimitDATA: `fault_probe guarded` writes behind a run's end, and into a freed run.
TEST(LimitFromTheStart, LeavesGuardsAndAddressesThatWait) {
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of libfreestone-hardened";
  for (const auto resource : {RLIMIT_DATA, RLIMIT_AS}) {
    for (const char* mode : {"guarded:end", "guarded:freed"}) {
      EXPECT_TRUE(dies_by(SIGSEGV, [&] {
        const rlimit value{4096 * kMiB, 4096 * kMiB};
        if (setrlimit(resource, &value) != 0) return 125;
        execl((kProbes + "/fault_probe").c_str(), "fault_probe", mode, static_cast<char*>(nullptr));
        return 126;
      })) << mode;
    }
  }
}

// Steps of growth get smaller where the kernel refuses larger ones, and what was freed serves blocks of other sizes.
TEST(LateLimit, LeavesMostOfTheHeadroomToSmallBlocks) {
  if (kEmulated) GTEST_SKIP() << "the emulator sets no limit";
  for (const size_t kibibytes : {900, 1900, 2900}) {
    const ChildEnd end = run_program(kProbes + "/fault_probe", "headroom:60:" + std::to_string(kibibytes * kKiB));
    EXPECT_TRUE(end.exited_with(0)) << kibibytes << " KiB: " << end.describe();
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
    void* huge = api().malloc(size_t{4} << 30);
    if (huge != nullptr && !subject().is_freestone) return 2;
    for (void* block : blocks) api().free(block);
    return 0;
  }));
}

TEST(AddressSpace, IsNotReserved) {
  EXPECT_TRUE(ends_well([] {
    api().free(api().malloc(100));
    return address_space_bytes() < 512 * kMiB ? 0 : 1;
  }));
}

bool can_map(size_t bytes) {
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapping != MAP_FAILED && munmap(mapping, bytes) == 0;
}

// A sandbox, a judge or a test that bounds itself.
TEST(AddressSpace, LimitThatTheProcessSetsLeavesRoomForThreadsAndMappings) {
  for (const size_t room : {64 * kMiB, 300 * kMiB, 4096 * kMiB}) {
    EXPECT_TRUE(ends_well([room] {
      api().free(api().malloc(100));
      const size_t bytes = address_space_bytes() + room;
      const rlimit limit{bytes, bytes};
      if (setrlimit(RLIMIT_AS, &limit) != 0) return 125;
      if (!can_make_thread()) return 1;
      if (!can_map(kMiB)) return 2;
      for (const size_t size : {size_t{100000}, size_t{2} << 20, size_t{40} << 20, size_t{3000}}) {
        if (room / size > 30000 || room / size < 2) continue;  // not too many pages
        const size_t had = fill(size, room * 2);
        dprintf(STDERR_FILENO, "%zu MiB in blocks of %zu, of %zu\n", had / kMiB, size, room / kMiB);
        if (had > room || had < room / 4) return 3;
      }
      return can_make_thread() ? 0 : 4;
    })) << room / kMiB
        << " MiB";
  }
}

TEST(AddressSpace, CanBeLockedByAnOrdinaryUser) {
  const ChildEnd end = run_program(kProbes + "/lock_probe", "");
  if (end.exited_with(3)) GTEST_SKIP() << "RLIMIT_MEMLOCK is too small";
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
}

// What the heap had before stays unlocked: a freed run may lie across the border, where the kernel gives back one part
// and refuses the other.
TEST(AddressSpace, MayBeLockedFromTheMiddleOfTheHeapOn) {
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
      if (api().posix_memalign(&block, kPage, size) != 0) return 1;
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

// The end of the mapping that holds the address.
uintptr_t mapping_end(const void* address) {
  std::FILE* file = std::fopen("/proc/self/maps", "re");
  char line[512];
  uintptr_t found = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2) continue;
    // Pieces that the kernel did not merge lie side by side.
    if (from == found || (from <= reinterpret_cast<uintptr_t>(address) && reinterpret_cast<uintptr_t>(address) < to))
      found = to;
  }
  if (file != nullptr) std::fclose(file);
  return found;
}

struct Range {
  unsigned char* start;
  size_t bytes;

  bool meets(const Range& other) const { return start < other.start + other.bytes && other.start < start + bytes; }
  void mark(unsigned char value) const { start[0] = start[bytes - 1] = value; }
  bool is_whole(unsigned char value) const { return start[0] == value && start[bytes - 1] == value; }
};

constexpr unsigned char kObstacle = 0xEE;

// A mapping of the program's own `distance` behind the heap, where that is free.
bool place(uintptr_t heap_end, size_t distance, size_t bytes, Range& obstacle) {
  void* wanted = reinterpret_cast<void*>(heap_end + distance);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != wanted) return false;
  obstacle = {static_cast<unsigned char*>(got), bytes};
  obstacle.mark(kObstacle);
  return true;
}

int grow_around(const std::vector<std::pair<size_t, size_t>>& places) {
  void* first = api().malloc(1000);
  std::vector<Range> obstacles;
  const uintptr_t heap_end = mapping_end(first);
  for (const auto& [distance, bytes] : places)
    if (Range obstacle; place(heap_end, distance, bytes, obstacle)) obstacles.push_back(obstacle);
  if (obstacles.size() != places.size()) return 77;
  Random random(places.size());
  std::vector<Range> blocks;
  blocks.reserve(100000);
  for (size_t total = 0; total < 400 * kMiB;) {
    const size_t bytes = random.log_uniform(16, 24 * kMiB);
    const Range block{static_cast<unsigned char*>(api().malloc(bytes)), bytes};
    if (block.start == nullptr) return 1;
    for (const Range& obstacle : obstacles)
      if (obstacle.meets(block)) return 2;
    block.mark(static_cast<unsigned char>(blocks.size()));
    blocks.push_back(block);
    total += bytes;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!blocks[i].is_whole(static_cast<unsigned char>(i))) return 3;
    if (api().malloc_usable_size(blocks[i].start) < blocks[i].bytes) return 4;
    api().free(blocks[i].start);
  }
  if (api().malloc_trim != nullptr) api().malloc_trim(0);
  for (const Range& obstacle : obstacles)
    if (!obstacle.is_whole(kObstacle)) return 5;
  if (!subject().is_freestone) return 0;
  // Addresses there are foreign, not the heap's.
  for (const Range& obstacle : obstacles) {
    for (const size_t offset : {size_t{0}, size_t{16}, obstacle.bytes / 2 / 16 * 16, obstacle.bytes - 16}) {
      const ChildEnd end = run_in_child([&] { api().free(obstacle.start + offset); });
      if (end.signal != SIGABRT || end.errors.find("not from this allocator") == std::string::npos) {
        dprintf(STDERR_FILENO, "free in a foreign mapping: %s\n", end.describe().c_str());
        return 6;
      }
    }
  }
  return 0;
}

TEST(AddressSpace, OthersMappingsInTheWayAreGoneAround) {
  std::vector<std::pair<size_t, size_t>> one_in_each_mebibyte;
  for (size_t k = 0; k < 8; ++k) one_in_each_mebibyte.emplace_back(k * kMiB, kPage);
  const std::vector<std::vector<std::pair<size_t, size_t>>> cases = {
      {{0, kPage}},
      {{kPage, kPage}},
      {{kMiB, kPage}},
      {{kMiB - kPage, 2 * kPage}},
      {{3 * kMiB, 5 * kMiB}},
      {{0, size_t{4} << 30}},
      {{70 * kMiB, 200 * kMiB}},
      one_in_each_mebibyte,
      {{2 * kMiB, kMiB}, {9 * kMiB, kPage}, {33 * kMiB, 17 * kMiB}, {150 * kMiB, kPage}, {300 * kMiB, size_t{1} << 30}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const ChildEnd end = run_in_child([&] { return grow_around(cases[i]); });
    if (end.exited_with(77)) continue;  // the place is taken: the heap of this subject does not lie apart
    EXPECT_TRUE(end.exited_with(0)) << "case " << i << ": " << end.describe();
  }
}

}  // namespace
}  // namespace freestone_test
