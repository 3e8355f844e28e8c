// The heap takes addresses only as it grows: a program that limits or locks its address space, or that has mappings of
// its own where the heap would grow, works as under the C library's malloc.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

bool can_make_thread() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, [](void* given) { return given; }, nullptr) != 0) return false;
  pthread_join(thread, nullptr);
  return true;
}

bool can_map(size_t bytes) {
  void* mapping = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapping != MAP_FAILED && munmap(mapping, bytes) == 0;
}

// Blocks until null, each touched; freed again.
size_t fill(size_t size, size_t most) {
  std::vector<void*> blocks;
  blocks.reserve(most / size + 1);
  size_t total = 0;
  for (void* block; total < most && (block = api().malloc(size)) != nullptr; total += size) {
    std::memset(block, 1, 64);
    blocks.push_back(block);
  }
  for (void* block : blocks) api().free(block);
  return total;
}

TEST(AddressSpace, IsNotReserved) {
  EXPECT_TRUE(ends_well([] {
    api().free(api().malloc(100));
    return address_space_bytes() < 512 * kMiB ? 0 : 1;
  }));
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
        errno = 0;
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
  const ChildEnd end = run_program(std::string(FREESTONE_PROBE_DIR) + "/lock_probe", "");
  if (end.exited_with(3)) GTEST_SKIP() << "RLIMIT_MEMLOCK is too small";
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
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

struct Obstacle {
  unsigned char* start;
  size_t bytes;

  bool meets(const void* block, size_t size) const {
    const auto* from = static_cast<const unsigned char*>(block);
    return from < start + bytes && start < from + size;
  }
  bool is_whole() const {
    return start[0] == 0xEE && start[bytes - 1] == 0xEE;
  }
};

// A mapping of the program's own `distance` behind the heap, where that is free.
bool place(uintptr_t heap_end, size_t distance, size_t bytes, Obstacle& obstacle) {
  void* wanted = reinterpret_cast<void*>(heap_end + distance);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != wanted) return false;
  obstacle = {static_cast<unsigned char*>(got), bytes};
  obstacle.start[0] = obstacle.start[bytes - 1] = 0xEE;
  return true;
}

int grow_around(const std::vector<std::pair<size_t, size_t>>& places) {
  void* first = api().malloc(1000);
  std::vector<Obstacle> obstacles;
  const uintptr_t heap_end = mapping_end(first);
  for (const auto& [distance, bytes] : places) {
    if (Obstacle obstacle; place(heap_end, distance, bytes, obstacle)) obstacles.push_back(obstacle);
  }
  if (obstacles.size() != places.size()) return 77;
  Random random(places.size());
  struct Block {
    unsigned char* start;
    size_t bytes;
  };
  std::vector<Block> blocks;
  blocks.reserve(100000);
  for (size_t total = 0; total < 400 * kMiB;) {
    const size_t bytes = random.log_uniform(16, 24 * kMiB);
    auto* block = static_cast<unsigned char*>(api().malloc(bytes));
    if (block == nullptr) return 1;
    for (const Obstacle& obstacle : obstacles) {
      if (obstacle.meets(block, bytes)) return 2;
    }
    block[0] = block[bytes - 1] = static_cast<unsigned char>(blocks.size());
    blocks.push_back({block, bytes});
    total += bytes;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    if (block.start[0] != static_cast<unsigned char>(i) ||
        block.start[block.bytes - 1] != static_cast<unsigned char>(i))
      return 3;
    if (api().malloc_usable_size(block.start) < block.bytes) return 4;
    api().free(block.start);
  }
  if (api().malloc_trim != nullptr) api().malloc_trim(0);
  for (const Obstacle& obstacle : obstacles) {
    if (!obstacle.is_whole()) return 5;
  }
  if (!subject().is_freestone) return 0;
  // Addresses there are foreign, not the heap's.
  for (const Obstacle& obstacle : obstacles) {
    for (const size_t offset : {size_t{0}, size_t{16}, obstacle.bytes / 2 / 16 * 16, obstacle.bytes - 16}) {
      const ChildEnd end = run_in_child([&] { return api().free(obstacle.start + offset), 0; });
      if (end.signal != SIGABRT || end.errors.find("not from this allocator") == std::string::npos) {
        dprintf(STDERR_FILENO, "free in a foreign mapping: %s\n", end.describe().c_str());
        return 6;
      }
    }
  }
  return 0;
}

TEST(AddressSpace, OthersMappingsInTheWayAreGoneAround) {
  const std::vector<std::vector<std::pair<size_t, size_t>>> cases = {
      {{0, 4096}},
      {{4096, 4096}},
      {{kMiB, 4096}},
      {{kMiB - 4096, 2 * 4096}},
      {{3 * kMiB, 5 * kMiB}},
      {{0, size_t{4} << 30}},
      {{70 * kMiB, 200 * kMiB}},
      {{0, 4096},
       {kMiB, 4096},
       {2 * kMiB, 4096},
       {3 * kMiB, 4096},
       {4 * kMiB, 4096},
       {5 * kMiB, 4096},
       {6 * kMiB, 4096},
       {7 * kMiB, 4096}},
      {{2 * kMiB, kMiB}, {9 * kMiB, 4096}, {33 * kMiB, 17 * kMiB}, {150 * kMiB, 4096}, {300 * kMiB, size_t{1} << 30}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const ChildEnd end = run_in_child([&] { return grow_around(cases[i]); });
    if (end.exited_with(77)) continue;  // the place is taken: the heap of this subject does not lie apart
    EXPECT_TRUE(end.exited_with(0)) << "case " << i << ": " << end.describe();
  }
}

}  // namespace
}  // namespace freestone_test
