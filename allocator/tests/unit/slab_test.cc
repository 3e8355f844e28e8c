// Room 7: blocks are handed out once, come back, and are found again, by one thread and by several at once.
#include "slab/slab.h"
#include "platform/file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_set>

#include "config/options.h"
#include "platform/os.h"
#include "slab/room_tree.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "unit/support.h"

namespace freestone {
namespace {

// Sizes that the test program itself is unlikely to ask malloc for.
constexpr usize kSizes[] = {208, 1152, 3584, 7168, 14336, 28672};

// Blocks of a class that no bitmap offers, counted in the bitmaps: held by the test, or lost.
usize blocks_not_free(SizeClass c) {
  static SlabCounts counts[kClassEnd];
  count_slabs(counts);
  return counts[c].blocks - counts[c].free_blocks;
}

// First: the lowest free memory lies where the system gives no huge pages.
TEST(slab, PagesOfANewSlabThatNobodyTouchedDoNotGoBack) {
  const SizeClass c = class_of(20480);
  SlabUser user;
  purge_slabs(user, WentBack::trim);
  purge_spans(0, WentBack::trim);  // so the slab comes without memory
  void* block = nullptr;
  ASSERT_EQ(take_blocks(c, user, 1, 1, &block), 1u);
  std::memset(block, 1, class_info(c).bytes);
  EXPECT_EQ(purge_slabs(user, WentBack::trim), 0u) << "it never had that memory";
  EXPECT_TRUE(slabs_are_valid());
  return_blocks(c, user, &block, 1);
  expect_valid_heap();
}

// A slab that looks as when it was last purged is passed over; one whose blocks were used since is not.
TEST(slab, PagesThatWereUsedAgainGoBackAgain) {
  const SizeClass c = class_of(1152);
  SlabUser user;
  std::vector<void*> blocks = taken_blocks(user, c, 4 * kMiB);
  const std::vector<void*> survivors = survivors_of(user, c, blocks);
  purge_slabs(user, WentBack::trim);
  EXPECT_EQ(purge_slabs(user, WentBack::trim), 0u) << "all of it went";
  for (int round = 0; round < 3; ++round) {
    void* again[64];
    const unsigned got = take_blocks(c, user, 64, 64, again);
    for (unsigned k = 0; k < got; ++k) std::memset(again[k], 1, class_info(c).bytes);
    return_blocks(c, user, again, got);
    EXPECT_GT(purge_slabs(user, WentBack::trim), 32 * kKiB) << "their pages have memory again";
    EXPECT_EQ(purge_slabs(user, WentBack::trim), 0u);
    EXPECT_TRUE(slabs_are_valid());
  }
  for (void* block : survivors) return_blocks(c, user, &block, 1);
  expect_valid_heap();
}

// Slabs without room are not looked at.
TEST(slab, ATreeVisitsTheSlabsThatHaveRoom) {
  const SizeClass c = class_of(7168);
  SlabUser user;
  const auto visited = [&] {
    std::vector<UnitIndex> units;
    units.reserve(1000);
    RoomTree(user.shard, c).for_each([&](UnitIndex unit) { units.push_back(unit); });
    std::sort(units.begin(), units.end());
    return units;
  };
  std::vector<void*> blocks = taken_blocks(user, c, 8 * kMiB);
  std::vector<UnitIndex> with_room = visited();
  EXPECT_LE(with_room.size(), 1u) << "all but the last slab are full";
  const auto slab_of = [&](void* block) { return unit_of(block) / class_info(c).units * class_info(c).units; };
  for (usize k = 0; k < blocks.size(); k += 200) {
    with_room.push_back(slab_of(blocks[k]));
    return_blocks(c, user, &blocks[k], 1);
    blocks[k] = nullptr;
  }
  std::sort(with_room.begin(), with_room.end());
  with_room.erase(std::unique(with_room.begin(), with_room.end()), with_room.end());
  EXPECT_EQ(visited(), with_room);
  for (void* block : blocks)
    if (block != nullptr) return_blocks(c, user, &block, 1);
  expect_valid_heap();
}

TEST(slab, BlocksAreDistinctInsideTheirSlabAndMarkedInUse) {
  Random random(test_seed("slab"));
  for (const usize bytes : kSizes) {
    const SizeClass c = class_of(bytes);
    const usize before = blocks_outside(c);
    const usize not_free = blocks_not_free(c);
    SlabUser user;
    std::unordered_set<void*> held;
    for (u64 step = 0; step < scaled(400); ++step) {
      if (random.below(2) == 0 || held.empty()) {
        void* blocks[64];
        const unsigned want = static_cast<unsigned>(random.between(1, 8));
        const unsigned got = take_blocks(c, user, want, 64, blocks, BlockPlace::slab);
        ASSERT_GE(got, want);
        for (unsigned i = 0; i < got; ++i) {
          ASSERT_TRUE(held.insert(blocks[i]).second) << "handed out twice";
          ASSERT_EQ(tag_of(unit_of(blocks[i])), c);
          ASSERT_EQ(block_start(c, static_cast<char*>(blocks[i]) + bytes - 1), blocks[i]);
          ASSERT_FALSE(is_block_free(c, blocks[i]));
          std::memset(blocks[i], 0xA5, bytes);
        }
      } else {
        for (u64 count = random.between(1, held.size()); count > 0; --count) {
          void* block = *held.begin();
          held.erase(held.begin());
          return_blocks(c, user, &block, 1);
        }
      }
      ASSERT_EQ(blocks_outside(c) - before, held.size());
      ASSERT_EQ(blocks_not_free(c) - not_free, held.size()) << "blocks are lost";
      if (step % 50 == 0) {
        ASSERT_TRUE(slabs_are_valid());
      }
    }
    for (void* block : held) return_blocks(c, user, &block, 1);
    EXPECT_EQ(blocks_outside(c), before);
    EXPECT_EQ(blocks_not_free(c), not_free);
  }
  expect_valid_heap();
}

usize resident_pages_of_slab(SizeClass c, const void* block) {
  const ClassInfo& info = class_info(c);
  bool present[64];  // 4 KiB pages of a slab
  const usize slab = address_of(unit_address(slab_start(info, unit_of(block))));
  const usize pages = units_to_bytes(info.units) / os::page_bytes();
  if (!os::PageTable().look(slab, pages, present)) return ~usize{0};
  return static_cast<usize>(std::count(present, present + pages, true));
}

// A class that fills many slabs gets the memory of a new one in one call; a class that fills few gets none that it does
// not touch.
TEST(slab, MemoryOfAFreshSlabExistsAtOnceInAGrowingClassOnly) {
  flush_stored_runs();  // a slab that waits has memory
  purge_spans(0, WentBack::trim);
  const SizeClass c = class_of(240);
  const ClassInfo& info = class_info(c);
  SlabUser user;
  static void* held[64 * 1024];
  usize count = 0;
  std::vector<usize> resident;  // of each slab when its first block was taken
  UnitIndex last = kNoUnit;
  resident.reserve(64);
  while (resident.size() < 40) {
    ASSERT_LT(count + 64, std::size(held));
    const unsigned got = take_blocks(c, user, 1, 64, held + count, BlockPlace::slab);
    ASSERT_GT(got, 0u);
    const UnitIndex slab = slab_start(info, unit_of(held[count]));
    if (slab != last) resident.push_back(resident_pages_of_slab(c, held[count]));
    last = slab;
    count += got;
  }
  if (const usize page = os::page_bytes(); page == 4 * kKiB && kFillsFrames) {
    const bool can_be_had = !os::populate(os::map(page), page);  // from Linux 5.14 on
    EXPECT_EQ(resident[2], 0u);
    EXPECT_EQ(resident.back(), can_be_had ? units_to_bytes(info.units) / page : 0);
  }
  return_blocks(c, user, held, static_cast<unsigned>(count));
  expect_valid_heap();
}

TEST(slab, ZeroedBlocksAreZero) {
  const SizeClass c = class_of(28672);
  SlabUser user;
  std::vector<void*> held;
  for (int i = 0; i < 200; ++i) {
    void* block = take_zeroed_block(c, user);
    if (block == nullptr) {
      if (take_blocks(c, user, 1, 1, &block) == 0) break;
    } else {
      const auto* bytes = static_cast<const unsigned char*>(block);
      ASSERT_EQ(bytes[0], 0);
      ASSERT_EQ(std::memcmp(bytes, bytes + 1, 28671), 0);
    }
    std::memset(block, 0xA5, 28672);
    held.push_back(block);
  }
  for (void* block : held) return_blocks(c, user, &block, 1);
  purge_slabs(user, WentBack::trim);
  expect_valid_heap();
}

// SLAB-5: what went back is known until it is handed out again, so it is neither given twice nor counted as memory.
TEST(slab, PagesThatWentBackAreKnown) {
  if (os::page_bytes() != 4 * kKiB) GTEST_SKIP() << "slabs of whole pages";
  for (const usize bytes : {usize{640}, usize{2048}, usize{5120}, usize{32768}}) {
    const SizeClass c = class_of(bytes);
    const ClassInfo& info = class_info(c);
    SlabUser user;
    std::vector<void*> held(info.blocks * 2 + 8);
    usize count = 0;
    while (count < info.blocks) {
      const unsigned got =
          take_blocks(c, user, 1, static_cast<unsigned>(held.size() - count), held.data() + count, BlockPlace::slab);
      ASSERT_GT(got, 0u);
      for (unsigned k = 0; k < got; ++k) std::memset(held[count + k], 0, info.bytes);
      count += got;
    }
    void* pinned = held[count - 1];  // its slab stays
    return_blocks(c, user, held.data(), static_cast<unsigned>(count - 1));
    EXPECT_GT(purge_slabs(user, WentBack::trim), 0u);
    expect_valid_heap();
    EXPECT_EQ(purge_slabs(user, WentBack::trim), 0u) << "the same pages went back twice";
    const unsigned again = take_blocks(c, user, 1, 8, held.data());
    for (unsigned k = 0; k < again; ++k) std::memset(held[k], 0, info.bytes);
    expect_valid_heap();
    return_blocks(c, user, held.data(), again);
    EXPECT_GT(purge_slabs(user, WentBack::trim), 0u) << "pages that were used again are still taken for empty";
    return_blocks(c, user, &pinned, 1);
    expect_valid_heap();
  }
}

// A program that stays as large and changes its sizes: nothing grows, and less than half of the blocks went.
TEST(slab, ColdPagesGoWithTimeThoughTheHeapDoesNotGrow) {
  SlabUser user;
  const auto taken = [&](SizeClass c, usize bytes) { return taken_blocks(user, c, bytes); };
  const SizeClass other = class_of(4 * kKiB);
  const SizeClass cold = class_of(kKiB);
  std::vector<void*> stays = taken(other, 72 * kMiB);
  std::vector<void*> goes = taken(cold, 48 * kMiB);
  purge_cold_pages(user, true);
  std::vector<void*> survivors = survivors_of(user, cold, goes);
  const auto decay_ms = options.dirty_decay_ms;
  options.dirty_decay_ms = 1;
  const auto& back = traffic.back_bytes[static_cast<unsigned>(WentBack::slabs)];
  const u64 before = back.load_relaxed();
  const u64 end_ms = os::coarse_milliseconds() + 100'000;
  while (back.load_relaxed() - before < 8 * kMiB && os::coarse_milliseconds() < end_ms) {
    decay_spans();  // time passes there
    purge_cold_pages(user, true);
    usleep(5000);
  }
  EXPECT_GE(back.load_relaxed() - before, 8 * kMiB) << "pages that nobody uses stay";
  options.dirty_decay_ms = decay_ms;
  for (void* block : survivors) return_blocks(cold, user, &block, 1);
  for (void* block : stays) return_blocks(other, user, &block, 1);
  expect_valid_heap();
}

// Every block passes through mailboxes, so most are returned by another thread than took them, while others take from
// the same slab.
TEST(slab, NoBlockIsLostOrDoubledBetweenThreads) {
  constexpr unsigned kThreads = 4;
  constexpr unsigned kMailboxes = 64;
  const u64 seed = test_seed("slab threads");
  begin_shard(shard_count() - 1);
  for (const usize bytes : {usize{1152}, usize{7168}}) {
    const SizeClass c = class_of(bytes);
    const usize before = blocks_outside(c);
    const usize not_free = blocks_not_free(c);
    static std::atomic<void*> mailboxes[kMailboxes];
    run_threads(kThreads, [&](unsigned thread) {
      Random random(seed + thread);
      SlabUser user;
      user.shard = thread % shard_count();
      for (u64 step = 0; step < scaled(10'000); ++step) {
        void* blocks[16];
        const unsigned got = take_blocks(c, user, 1, 16, blocks);
        for (unsigned i = 0; i < got; ++i) {
          *static_cast<void**>(blocks[i]) = blocks[i];  // a race here is a block that two threads hold
          void* other = mailboxes[random.below(kMailboxes)].exchange(blocks[i]);
          if (other == nullptr) continue;
          ASSERT_EQ(*static_cast<void**>(other), other);
          return_blocks(c, user, &other, 1);
        }
      }
    });
    SlabUser user;
    for (auto& mailbox : mailboxes)
      if (void* block = mailbox.exchange(nullptr); block != nullptr) return_blocks(c, user, &block, 1);
    EXPECT_EQ(blocks_outside(c), before);
    EXPECT_EQ(blocks_not_free(c), not_free) << "blocks are lost";
    EXPECT_TRUE(slabs_are_valid());
  }
  expect_valid_heap();
}

// mallopt(M_ARENA_MAX) may come late: what lies in shards beyond the new number is found all the same.
TEST(slab, LoweringTheNumberOfShardsStrandsNoSlab) {
  const unsigned before = shard_count();
  const SizeClass c = class_of(28672);
  set_shard_count(8);
  begin_shard(7);
  SlabUser high;
  high.shard = 7;
  // A slab of its own that keeps one block in use.
  void* blocks[64];
  const unsigned got = take_blocks(c, high, class_info(c).blocks, 64, blocks);
  ASSERT_GE(got, 2u);
  return_blocks(c, high, blocks + 1, got - 1);
  set_shard_count(1);
  SlabUser low;
  std::unordered_set<void*> found;
  std::vector<void*> taken;
  while (found.size() < got - 1) {
    void* more[64];
    const unsigned count = take_blocks(c, low, 1, 64, more);
    ASSERT_GT(count, 0u);
    taken.insert(taken.end(), more, more + count);
    for (unsigned i = 0; i < count; ++i)
      if (std::find(blocks + 1, blocks + got, more[i]) != blocks + got) found.insert(more[i]);
    ASSERT_LT(taken.size(), 100u * got) << "the slab in the highest shard is never found";
  }
  return_blocks(c, low, taken.data(), static_cast<unsigned>(taken.size()));
  return_blocks(c, low, blocks, 1);
  set_shard_count(before);
  expect_valid_heap();
}

}  // namespace
}  // namespace freestone
