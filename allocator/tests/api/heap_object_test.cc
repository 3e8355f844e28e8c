// Heap objects in C and C++: bounded, complete, refusing what is not theirs, and gone as a whole.
#include <freestone/freestone.hpp>

#include <list>
#include <map>
#include <set>
#include <utility>

#include "api/support.h"

namespace freestone_test {
namespace {

freestone_heap_stats heap_stats(freestone_heap* heap) {
  freestone_heap_stats s{};
  s.version = FREESTONE_HEAP_STATS_VERSION;
  EXPECT_EQ(freestone_heap_get_stats(heap, &s), 0);
  return s;
}

class HeapObject : public testing::Test {
 protected:
  void SetUp() override { heap_ = freestone_heap_create(0); }
  void TearDown() override {
    EXPECT_EQ(freestone_heap_validate(heap_), 0);
    freestone_heap_destroy(heap_);
  }
  freestone_heap* heap_ = nullptr;
};

TEST_F(HeapObject, GivesDistinctWritableAlignedBlocks) {
  std::map<char*, size_t> blocks;
  for (size_t bytes = 0; bytes < 200000; bytes += 1 + bytes / 7) {
    for (size_t alignment = 16; alignment <= 65536; alignment *= 8) {
      auto* block = static_cast<char*>(freestone_heap_allocate_aligned(heap_, bytes, alignment));
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U);
      EXPECT_GE(freestone_heap_usable_size(heap_, block), bytes);
      memset(block, 0x77, bytes);
      blocks[block] = freestone_heap_usable_size(heap_, block);
    }
  }
  const char* end = nullptr;
  for (const auto& [block, bytes] : blocks) {
    EXPECT_GE(block, end);
    end = block + bytes;
  }
  const freestone_heap_stats s = heap_stats(heap_);
  EXPECT_EQ(s.live_blocks, blocks.size());
  for (const auto& [block, bytes] : blocks) freestone_heap_deallocate(heap_, block);
  EXPECT_EQ(heap_stats(heap_).live_bytes, 0U);
}

TEST_F(HeapObject, ReallocateKeepsTheContent) {
  auto* block = static_cast<unsigned char*>(freestone_heap_reallocate(heap_, nullptr, 10));
  for (size_t bytes = 10; bytes < 1000000; bytes = bytes * 3 / 2) {
    memset(block, static_cast<int>(bytes), bytes);
    auto* moved = static_cast<unsigned char*>(freestone_heap_reallocate(heap_, block, bytes * 3 / 2));
    ASSERT_NE(moved, nullptr);
    for (size_t i = 0; i < bytes; i += 97) ASSERT_EQ(moved[i], static_cast<unsigned char>(bytes));
    block = moved;
  }
  block = static_cast<unsigned char*>(freestone_heap_reallocate(heap_, block, 5));
  EXPECT_LE(freestone_heap_usable_size(heap_, block), 1000U);
  freestone_heap_deallocate(heap_, block);
  EXPECT_EQ(heap_stats(heap_).live_blocks, 0U);
}

TEST_F(HeapObject, ZeroedMeansZeroAlsoForUsedMemory) {
  for (int round = 0; round < 3; ++round) {
    auto* block = static_cast<char*>(freestone_heap_allocate_zeroed(heap_, 5000));
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(block[i], 0);
    memset(block, 1, 5000);
    freestone_heap_deallocate(heap_, block);
  }
}

TEST_F(HeapObject, WalkVisitsExactlyTheLiveBlocks) {
  std::set<void*> live;
  Random random(5);
  for (int i = 0; i < 5000; ++i) {
    if (live.size() > 100 && random.below(2) == 0) {
      freestone_heap_deallocate(heap_, *live.begin());
      live.erase(live.begin());
    } else {
      live.insert(freestone_heap_allocate(heap_, random_size(random, 17)));
    }
  }
  std::set<void*> seen;
  const size_t visited = freestone_heap_walk(
      heap_,
      [](void* set, void* block, size_t) { return static_cast<std::set<void*>*>(set)->insert(block).second ? 1 : 0; },
      &seen);
  EXPECT_EQ(visited, live.size());
  EXPECT_EQ(seen, live);
  int first = 0;
  EXPECT_EQ(freestone_heap_walk(
                heap_, [](void* count, void*, size_t) { return ++*static_cast<int*>(count), 0; }, &first),
            1U)
      << "a visitor that returns 0 stops";
}

TEST_F(HeapObject, ServesThreads) {
  std::vector<std::jthread> threads;
  for (unsigned char t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      Random random(t + 11U);
      std::vector<unsigned char*> blocks(64);
      for (int i = 0; i < 20000; ++i) {
        auto*& block = blocks[random.below(64)];
        if (block != nullptr) {
          ASSERT_EQ(*block, t);
          freestone_heap_deallocate(heap_, std::exchange(block, nullptr));
        } else {
          block = static_cast<unsigned char*>(freestone_heap_allocate(heap_, random_size(random, 14)));
          *block = t;
        }
      }
      for (auto* block : blocks) freestone_heap_deallocate(heap_, block);
    });
  }
  threads.clear();
  EXPECT_EQ(heap_stats(heap_).live_blocks, 0U);
}

TEST(BoundedHeap, StaysWithinItsLimitAndRecovers) {
  constexpr size_t kLimit = 2 * kMiB;
  freestone_heap* heap = freestone_heap_create(kLimit);
  for (const size_t bytes : {32UL, 700UL, 9000UL, 100000UL}) {
    std::vector<void*> blocks;
    while (void* block = freestone_heap_allocate(heap, bytes)) blocks.push_back(block);
    const freestone_heap_stats s = heap_stats(heap);
    EXPECT_LE(s.held_bytes, kLimit);
    EXPECT_GE(s.live_bytes, kLimit * 8 / 10) << bytes;
    EXPECT_GT(s.failed_allocations, 0U);
    EXPECT_EQ(s.limit_bytes, kLimit);
    for (void* block : blocks) freestone_heap_deallocate(heap, block);
  }
  EXPECT_LE(heap_stats(heap).peak_bytes, kLimit);
  EXPECT_EQ(freestone_heap_validate(heap), 0);
  EXPECT_EQ(freestone_heap_destroy(heap), 0U);
}

TEST(BoundedHeap, DestroyReturnsTheLeaksAndAllTheMemory) {
  malloc_trim(0);
  const freestone_stats before = stats();
  freestone_heap* heap = freestone_heap_create(0);
  for (size_t i = 0; i < 10000; ++i) ASSERT_NE(freestone_heap_allocate(heap, 100 + i % 9000), nullptr);
  const freestone_stats during = stats();
  EXPECT_GT(during.heap_object_bytes, 40 * kMiB);
  EXPECT_EQ(during.live_blocks, before.live_blocks + 10000);
  EXPECT_EQ(during.live_bytes + during.cached_bytes + during.slab_free_bytes + during.dirty_bytes + during.clean_bytes,
            during.committed_bytes + during.mapped_bytes);
  EXPECT_EQ(freestone_heap_destroy(heap), 10000U);
  malloc_trim(0);
  const freestone_stats after = stats();
  EXPECT_EQ(after.heap_object_bytes, 0U);
  EXPECT_EQ(after.live_blocks, before.live_blocks);
  EXPECT_LE(after.charged_bytes, before.charged_bytes + 4 * kMiB);
}

TEST(BoundedHeap, HasAtLeastItsOwnSize) {
  EXPECT_EQ(freestone_heap_create(1), nullptr);
  freestone_heap* heap = freestone_heap_create(1000);
  if (heap != nullptr) {
    EXPECT_EQ(freestone_heap_allocate(heap, 1), nullptr);
    freestone_heap_destroy(heap);
  }
}

using HeapObjectDeathTest = HeapObject;

TEST_F(HeapObjectDeathTest, RefusesWhatIsNotItsOwnLiveBlock) {
  freestone_heap* other = freestone_heap_create(0);
  void* of_other = freestone_heap_allocate(other, 100);
  char* block = static_cast<char*>(freestone_heap_allocate(heap_, 100));
  void* again = freestone_heap_allocate(heap_, 100);
  freestone_heap_deallocate(heap_, again);
  void* ordinary = malloc(100);
  EXPECT_DEATH(freestone_heap_deallocate(heap_, of_other), "belongs to another heap object");
  EXPECT_DEATH(freestone_heap_deallocate(heap_, block + 1), "not the start of a block");
  EXPECT_DEATH(freestone_heap_deallocate(heap_, again), "the block is free");
  EXPECT_DEATH(freestone_heap_deallocate(heap_, ordinary), "not from a heap object");
  EXPECT_DEATH(free(block), "freestone: ");
  free(ordinary);
  freestone_heap_destroy(other);
}

TEST(CxxHeap, CarriesContainersThroughItsResource) {
  freestone::Heap heap(8 * kMiB);
  {
    std::pmr::map<int, std::pmr::string> map(heap.resource());
    for (int i = 0; i < 2000; ++i) map[i] = std::pmr::string(50, 'x', heap.resource());
    EXPECT_GE(heap.live_blocks(), 4000U);
    std::pmr::vector<double> vector(heap.resource());
    EXPECT_THROW(vector.resize(2 * kMiB), std::bad_alloc);
    size_t seen = 0;
    heap.for_each([&](void*, size_t) { ++seen; });
    EXPECT_EQ(seen, heap.live_blocks());
  }
  EXPECT_EQ(heap.live_blocks(), 0U);
  EXPECT_TRUE(heap.is_valid());
  freestone::Heap second;
  EXPECT_TRUE(heap.resource()->is_equal(*heap.resource()));
  EXPECT_FALSE(heap.resource()->is_equal(*second.resource()));
}

TEST(CxxHeap, AllocatorBindsAContainerToAHeap) {
  freestone::Heap heap;
  {
    std::list<int, freestone::heap_allocator<int>> list{freestone::heap_allocator<int>(heap)};
    for (int i = 0; i < 100; ++i) list.push_back(i);
    EXPECT_EQ(heap.live_blocks(), 100U);
  }
  EXPECT_EQ(heap.live_blocks(), 0U);
}

struct alignas(256) Wide {
  char bytes[256];
};

TEST(CxxProcessHeap, ResourceAndAllocatorUseMalloc) {
  const uint64_t before = stats().live_blocks;
  {
    std::pmr::vector<int> vector(freestone::memory_resource::instance());
    vector.resize(1000);
    std::vector<Wide, freestone::allocator<Wide>> wide(10);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(wide.data()) % 256, 0U);
    EXPECT_EQ(stats().live_blocks, before + 2);
  }
  EXPECT_EQ(stats().live_blocks, before);
  EXPECT_TRUE(freestone::memory_resource::instance()->is_equal(*freestone::memory_resource::instance()));
}

}  // namespace
}  // namespace freestone_test
