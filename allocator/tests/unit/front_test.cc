// Room 9: random operations over all sizes with their contents checked; every room is sound when all is quiet again.
#include "front/reclaim.h"
#include "front/heap.h"

#include <atomic>
#include <memory>

#include "model/block.h"
#include "span/purge.h"
#include "span/span_heap.h"
#include "unit/support.h"

namespace freestone {
namespace {

using freestone_test::all_zero;
using freestone_test::Block;
using freestone_test::fill;
using freestone_test::intact;

class Player {
 public:
  Player(u64 seed, u64 first_id) : random_(seed), id_(first_id) {}

  void step() {
    Block& block = blocks_[random_.below(kBlocks)];
    if (block.start == nullptr) return take(block);
    ASSERT_TRUE(intact(block, block.size)) << block.size << " bytes were changed by somebody else";
    if (random_.below(3) == 0) return resize(block);
    deallocate(block.start);
    block.start = nullptr;
  }

  void finish() {
    for (Block& block : blocks_) {
      if (block.start == nullptr) continue;
      ASSERT_TRUE(intact(block, block.size));
      deallocate(block.start);
      block.start = nullptr;
    }
  }

 private:
  static constexpr usize kBlocks = 400;

  usize draw() {
    const u64 kind = random_.below(100);
    return kind < 70   ? random_.below(600)
           : kind < 98 ? random_.log_uniform(600, 200.0 * kKiB)
                       : random_.log_uniform(200.0 * kKiB, 3.0 * kMiB);
  }

  void take(Block& block) {
    block.size = draw();
    block.alignment = kGranule;
    const u64 how = random_.below(4);
    if (how == 0) {
      block.start = static_cast<unsigned char*>(allocate_zeroed(block.size));
      ASSERT_TRUE(block.start != nullptr && all_zero(block.start, block.size)) << block.size;
    } else if (how == 1) {
      block.alignment = usize{1} << random_.below(15);
      block.start = static_cast<unsigned char*>(allocate_aligned(block.size, block.alignment));
    } else {
      block.start = static_cast<unsigned char*>(allocate(block.size));
    }
    finish_block(block);
  }

  void resize(Block& block) {
    const usize size = random_.below(2) == 0 ? draw() : block.size + random_.below(64);
    block.start = static_cast<unsigned char*>(reallocate(block.start, size));
    block.alignment = kGranule;
    ASSERT_NE(block.start, nullptr);
    ASSERT_TRUE(intact(block, min_of(size, block.size))) << "lost in a move from " << block.size << " to " << size;
    block.size = size;
    finish_block(block);
  }

  void finish_block(Block& block) {
    ASSERT_NE(block.start, nullptr);
    ASSERT_EQ(address_of(block.start) % block.alignment, 0u);
    ASSERT_GE(usable_bytes(block.start), block.size);
    block.id = ++id_;
    fill(block);
  }

  Random random_;
  u64 id_;
  Block blocks_[kBlocks];
};

TEST(front, KeepsEveryByteThroughRandomOperations) {
  auto player = std::make_unique<Player>(test_seed("heap"), 0);
  for (u64 step = 0; step < scaled(80'000); ++step) {
    player->step();
    if (HasFatalFailure()) return;
    if (step % 10'000 == 0) expect_valid_heap();
    if (step % 25'000 == 0) trim(0);
  }
  player->finish();
  expect_valid_heap();
}

TEST(front, KeepsEveryByteInFourThreads) {
  const u64 seed = test_seed("heap threads");
  run_threads(4, [&](unsigned thread) {
    auto player = std::make_unique<Player>(seed + thread, u64{thread} << 40);
    for (u64 step = 0; step < scaled(25'000) && !testing::Test::HasFatalFailure(); ++step) player->step();
    player->finish();
  });
  expect_valid_heap();
}

// A block that changes hands is ordered by the hand-over alone: a data race inside the allocator shows under the thread
// sanitizer.
TEST(front, BlocksFreedByOtherThreadsComeBackWhole) {
  static std::atomic<u64*> mailboxes[128];
  const u64 seed = test_seed("heap hand-over");
  run_threads(4, [&](unsigned thread) {
    Random random(seed + thread);
    for (u64 step = 0; step < scaled(50'000); ++step) {
      const usize words = random.between(1, random.below(50) == 0 ? 10'000 : 60);
      auto* block = static_cast<u64*>(allocate(words * sizeof(u64)));
      ASSERT_NE(block, nullptr);
      block[0] = words;
      block[words - 1] = words;
      u64* other = mailboxes[random.below(128)].exchange(block);
      if (other == nullptr) continue;
      ASSERT_EQ(other[other[0] - 1], other[0]);
      deallocate(other);
    }
  });
  for (auto& mailbox : mailboxes) deallocate(mailbox.exchange(nullptr));
  expect_valid_heap();
}

TEST(front, GoodSizeIsWhatABlockOffers) {
  for (usize bytes = 0; bytes < 3 * kMiB; bytes += 1 + bytes / 7) {
    void* block = allocate(bytes);
    EXPECT_EQ(usable_bytes(block), good_size(bytes)) << bytes;
    deallocate(block);
  }
}

// What others mapped where the window grows around it is theirs: a free there is told like any foreign one.
TEST(front, NothingInASkippedPieceIsTakenForABlock) {
  const Span span = take_span(1, 1);
  ASSERT_NE(span.first, kNoUnit);
  set_tags(span.first, 1, kTagForeign);
  char* const there = unit_address(span.first);
  for (char* address : {there, there + 64}) {
    EXPECT_DEATH(deallocate(address), "invalid free.*not from this allocator");
    EXPECT_DEATH(reallocate(address, 100), "invalid realloc.*not from this allocator");
    EXPECT_DEATH(usable_bytes(address), "invalid malloc_usable_size.*not from this allocator");
  }
  set_tags(span.first, 1, kTagNone);
  return_span(span.first, 1, true);
}

}  // namespace
}  // namespace freestone
