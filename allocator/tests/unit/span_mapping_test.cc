// Room 6: own mappings stay findable while they move, and the table of them never fills up (MAPPING-1, MAPPING-2).
#include "span/mapping.h"

#include <cstring>

#include "platform/os.h"
#include "unit/support.h"

namespace freestone {
namespace {

constexpr usize kPage = 4096;

struct Held {
  char* block;
  usize bytes;
};

void step(Held& held, Random& random) {
  if (held.block == nullptr) {
    held.bytes = kPage * (1 + random.below(8));
    held.block = static_cast<char*>(map_block(held.bytes, random.below(4) == 0 ? 16 * kPage : 1));
    ASSERT_NE(held.block, nullptr);
    std::memcpy(held.block, &held.block, sizeof held.block);
    return;
  }
  char* was = nullptr;
  std::memcpy(&was, held.block, sizeof was);
  ASSERT_EQ(was, held.block);
  ASSERT_GE(mapped_block_bytes(held.block), held.bytes);
  if (random.below(3) == 0) {
    ASSERT_TRUE(unmap_block(held.block));
    held.block = nullptr;
    return;
  }
  const usize bytes = kPage * (1 + random.below(64));
  auto* moved = static_cast<char*>(remap_block(held.block, bytes));
  if (moved == nullptr) return;  // one with an aligned start does not move
  held = {moved, bytes};
  std::memcpy(moved, &moved, sizeof moved);
}

// What the table holds is what is held, and an address that is not in it is not found in bounded time.
TEST(span_mapping, IsFoundThroughMovesOfManyThreads) {
  const usize before = mapping_counts().blocks;
  run_threads(4, [](unsigned t) {
    Random random(test_seed("mapping") + t);
    Held held[40] = {};
    const u64 steps = scaled(20000);
    for (u64 i = 0; i < steps; ++i) {
      step(held[random.below(i < steps / 2 ? 3 : 40)], random);
      EXPECT_EQ(mapped_block_bytes(&random), 0U);
      EXPECT_FALSE(unmap_block(reinterpret_cast<void*>((1 + random.below(1000)) * kPage)));
    }
    for (Held& h : held) {
      if (h.block == nullptr) continue;
      EXPECT_TRUE(unmap_block(h.block));
    }
  });
  EXPECT_EQ(mapping_counts().blocks, before);
}

TEST(span_mapping, MostAtOneTimeOutlivesTheBlocks) {
  const MappingCounts before = mapping_counts();
  const usize page = os::page_bytes();
  void* blocks[] = {map_block(before.most_bytes + page, 1), map_block(page, 1)};
  for (void* block : blocks) EXPECT_TRUE(unmap_block(block));
  const MappingCounts after = mapping_counts();
  EXPECT_EQ(after.most_bytes, before.most_bytes + before.bytes + 2 * page);
  EXPECT_EQ(after.most_blocks, max_of(before.most_blocks, before.blocks + 2));
}

TEST(span_mapping, OneBlockThatMovesForeverLeavesTheTableAsItWas) {
  char* block = static_cast<char*>(map_block(kPage, 1));
  ASSERT_NE(block, nullptr);
  const usize table = mapping_counts().table_bytes;
  for (int i = 0; i < 500; ++i) {
    block = static_cast<char*>(remap_block(block, kPage * (1 + static_cast<usize>(i) % 2 * 300)));
    ASSERT_NE(block, nullptr);
    os::reserve(kPage, address_of(block) + kPage * 301);  // so that the next growth moves it
    EXPECT_FALSE(unmap_block(reinterpret_cast<void*>(address_of(block) + kPage)));
  }
  EXPECT_EQ(mapping_counts().table_bytes, table);
  EXPECT_TRUE(unmap_block(block));
}

}  // namespace
}  // namespace freestone
