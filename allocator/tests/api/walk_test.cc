// The walk visits exactly what is live, and validation passes on a heap in order.
#include <map>
#include <thread>

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
  std::vector<void*> blocks;
  blocks.reserve(60000);
  std::map<void*, size_t> live;
  for (int i = 0; i < 40000; ++i) {
    blocks.push_back(malloc(random.size(i % 300 == 0 ? 22 : i % 20 == 0 ? 17 : 11)));
    if (i % 2 == 0) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      free(blocks.back());
      blocks.pop_back();
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
  size_t found = 0;
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
    ++found;
  }
  EXPECT_EQ(found, live.size());
  for (void* block : blocks) free(block);
  ASSERT_EQ(freestone_walk(Seen::add, &before), 0);
  for (size_t i = 0; i < before.count; ++i) {
    for (void* block : {blocks[0], blocks[1], blocks[blocks.size() / 2]})
      EXPECT_NE(before.blocks[i], block) << "a freed block was visited";
  }
  freestone_heap_destroy(heap);
}

// Freed blocks lie in caches, the caller's and another thread's: none of them is live.
TEST(Walk, PassesOverBlocksInThreadCaches) {
  std::vector<void*> freed;
  freed.reserve(1000);
  void* kept = malloc(144);
  for (int i = 0; i < 500; ++i) freed.push_back(malloc(144));
  for (void* block : freed) free(block);
  EXPECT_GT(stats().thread_cached_bytes, 0U);
  Seen seen;
  ASSERT_EQ(freestone_walk(Seen::add, &seen), 0);
  std::map<void*, int> visited;
  for (size_t i = 0; i < seen.count; ++i) visited[seen.blocks[i]] = 1;
  // The map's own nodes may have taken some of the addresses again, but they are of another size.
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
  std::vector<void*> blocks(2000);
  for (int i = 0; i < 30000; ++i) {
    void*& block = blocks[random.below(blocks.size())];
    free(block);
    block = malloc(random.size(i % 100 == 0 ? 22 : 13));
    if (i % 3000 == 0) {
      const char* damage = nullptr;
      ASSERT_EQ(freestone_validate(&damage), 0) << damage;
    }
  }
  for (void* block : blocks) free(block);
  malloc_trim(0);
  const char* damage = "unset";
  EXPECT_EQ(freestone_validate(&damage), 0);
  EXPECT_EQ(damage, nullptr);
}

}  // namespace
}  // namespace freestone_test
