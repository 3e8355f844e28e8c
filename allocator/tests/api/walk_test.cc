// The walk visits exactly what is live, and validation passes on a heap in order.
#include <map>

#include "api/support.h"

namespace freestone_test {
namespace {

// Collects without allocating: a fixed table of addresses.
struct Seen {
  static constexpr size_t kRoom = 400000;
  void** blocks = static_cast<void**>(malloc(kRoom * sizeof(void*)));
  size_t* bytes = static_cast<size_t*>(malloc(kRoom * sizeof(size_t)));
  size_t count = 0;
  ~Seen() {
    free(blocks);
    free(bytes);
  }
  static int add(void* self, void* block, size_t bytes) {
    auto* seen = static_cast<Seen*>(self);
    if (seen->count == kRoom) return 0;
    seen->blocks[seen->count] = block;
    seen->bytes[seen->count++] = bytes;
    return 1;
  }
};

TEST(Walk, VisitsEachLiveBlockOnceAndNothingElse) {
  Seen before;
  Seen after;
  Random random(17);
  Blocks blocks;
  blocks.reserve(60000);
  std::map<void*, size_t> live;
  for (int i = 0; i < 40000; ++i) {
    blocks.push_back(malloc(random_size(random, i % 300 == 0 ? 22 : i % 20 == 0 ? 17 : 11)));
    if (i % 2 == 0) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      blocks.free_last();
    }
  }
  blocks.push_back(malloc(40 * kMiB));
  freestone_heap* heap = freestone_heap_create(0);
  void* in_heap = freestone_heap_allocate(heap, 333);
  for (void* block : blocks) live[block] = malloc_usable_size(block);
  live[in_heap] = freestone_heap_usable_size(heap, in_heap);

  const uint64_t live_blocks = stats().live_blocks;
  ASSERT_EQ(freestone_walk(Seen::add, &after), 0);
  EXPECT_EQ(after.count, live_blocks)
      << "the walk and the statistics count the same blocks, those in quarantine not among them";
  std::map<void*, size_t> visited;
  for (size_t i = 0; i < after.count; ++i) {
    EXPECT_TRUE(visited.emplace(after.blocks[i], after.bytes[i]).second) << "visited twice";
  }
  for (const auto& [block, bytes] : live) {
    const auto at = visited.find(block);
    ASSERT_NE(at, visited.end()) << "a live block was not visited, size " << bytes;
    EXPECT_GE(at->second, bytes);
    if (!is_hardened()) {
      EXPECT_EQ(at->second, bytes);
    }
  }
  const void* freed[] = {blocks[0], blocks[1], blocks[blocks.size() / 2]};
  blocks.release();
  ASSERT_EQ(freestone_walk(Seen::add, &before), 0);
  for (size_t i = 0; i < before.count; ++i)
    for (const void* block : freed) EXPECT_NE(before.blocks[i], block) << "a freed block was visited";
  freestone_heap_destroy(heap);
}

// Freed blocks lie in caches, the caller's and another thread's: none of them is live.
TEST(Walk, PassesOverBlocksInThreadCaches) {
  void* kept = malloc(144);
  Blocks(500, 144).release();
  EXPECT_GT(stats().thread_cached_bytes, 0U);
  Seen seen;
  ASSERT_EQ(freestone_walk(Seen::add, &seen), 0);
  size_t size = 0;
  for (size_t i = 0; i < seen.count; ++i) size = seen.blocks[i] == kept ? seen.bytes[i] : size;
  EXPECT_GE(size, 144U);
  free(kept);
  size_t hits = 0;
  for (size_t i = 0; i < seen.count; ++i) hits += seen.bytes[i] == size;
  EXPECT_LT(hits, 50U);
}

TEST(Walk, StopsWhenTheVisitorSaysSo) {
  void* block = malloc(10);
  int calls = 0;
  EXPECT_EQ(freestone_walk([](void* count, void*, size_t) { return ++*static_cast<int*>(count) < 3 ? 1 : 0; }, &calls),
            0);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(freestone_walk(nullptr, nullptr), EINVAL);
  free(block);
}

TEST(Validate, PassesThroughoutAWorkload) {
  Random random(23);
  Blocks blocks;
  blocks.resize(2000);
  const char* damage = nullptr;
  for (int i = 0; i < 30000; ++i) {
    void*& block = blocks[random.below(blocks.size())];
    free(block);
    block = malloc(random_size(random, i % 100 == 0 ? 22 : 13));
    if (i % 3000 != 0) continue;
    ASSERT_EQ(freestone_validate(&damage), 0) << damage;
  }
  blocks.release();
  malloc_trim(0);
  damage = "unset";
  EXPECT_EQ(freestone_validate(&damage), 0);
  EXPECT_EQ(damage, nullptr);
}

}  // namespace
}  // namespace freestone_test
