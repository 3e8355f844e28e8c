// GROUND-1 to GROUND-4, room 7: sparse slabs become ground, whose holes serve every class; blocks keep what was
// written, whoever frees them.
#include "slab/ground.h"

#include <atomic>

#include "cache/quarantine.h"
#include "front/reclaim.h"
#include "platform/os.h"
#include "unit/support.h"

namespace freestone {
namespace {

constexpr usize kOld = 208;
constexpr usize kNew = 1408;

struct Filled {
  unsigned char* block = nullptr;
  usize bytes = 0;
  unsigned char value = 0;

  static Filled of(usize bytes, unsigned char value) {
    auto* block = static_cast<unsigned char*>(allocate(bytes));
    std::memset(block, value, bytes);
    return {block, bytes, value};
  }
  bool holds() const {
    for (usize k = 0; k < bytes; ++k)
      if (block[k] != value) return false;
    return true;
  }
};

// Slabs of which a twentieth is live, a few neighbours in each, and then a class that needs room.
struct Sparse {
  bool alone = true;  // no other thread uses these classes
  std::vector<Filled> survivors;
  std::vector<void*> newcomers;

  explicit Sparse(usize bytes) {
    std::vector<Filled> blocks;
    for (usize held = 0; held < bytes; held += kOld)
      blocks.push_back(Filled::of(kOld, static_cast<unsigned char>(blocks.size())));
    for (usize k = 0; k < blocks.size(); ++k) {
      if (k % 60 < 3) {
        survivors.push_back(blocks[k]);
      } else {
        deallocate(blocks[k].block);
      }
    }
    flush_all(*ensure_cache());
  }
  void take(usize bytes) {
    for (usize held = 0; held < bytes; held += kNew) newcomers.push_back(std::memset(allocate(kNew), 0xee, kNew));
  }
  usize on_ground() const {
    usize count = 0;
    for (void* block : newcomers) count += is_on_ground(block) ? 1 : 0;
    return count;
  }
  ~Sparse() {
    for (const Filled& one : survivors) {
      EXPECT_TRUE(one.holds());
      deallocate(one.block);
    }
    for (void* block : newcomers) deallocate(block);
    flush_all(*ensure_cache());
    if (!alone) return;
    EXPECT_EQ(blocks_on_ground(class_of(kOld)), 0u);
    EXPECT_EQ(blocks_on_ground(class_of(kNew)), 0u);
    EXPECT_TRUE(ground_is_valid());
    expect_valid_heap();
  }
};

TEST(slab_ground, HolesOfOneClassServeAnother) {
  Sparse sparse(4 * kMiB);
  const usize before = span_counts().committed_units - span_counts().free_units;
  sparse.take(3 * kMiB);
  EXPECT_GT(sparse.on_ground(), sparse.newcomers.size() / 2);
  EXPECT_LT(span_counts().committed_units - span_counts().free_units, before + (kMiB >> kUnitShift));
  EXPECT_TRUE(ground_is_valid());
}

TEST(slab_ground, ThatIsAllFreeGoesBackAsASpan) {
  const usize before = ground_use().bytes;
  {
    Sparse sparse(4 * kMiB);
    sparse.take(kMiB);
    EXPECT_GT(ground_use().bytes, before);
  }
  EXPECT_LE(ground_use().bytes, before + 64 * kKiB) << "but for what the test's own tables lie on";
}

TEST(slab_ground, ABlockHasTheSizeOfItsClass) {
  Sparse sparse(kMiB);
  sparse.take(kMiB / 2);
  for (void*& block : sparse.newcomers) {
    if (!is_on_ground(block)) continue;
    EXPECT_EQ(usable_bytes(block), kNew);
    EXPECT_EQ(tag_of_block(block), class_of(kNew));
    EXPECT_EQ(find_on_ground(static_cast<char*>(block) + kNew - 1).start, block);
    EXPECT_EQ(reallocate(block, kNew - 100), block) << "more than half of it stays in use";
    block = reallocate(block, kNew * 2);
    EXPECT_EQ(static_cast<unsigned char*>(block)[kNew - 101], 0xee);
    block = reallocate(block, kNew);
  }
}

TEST(slab_ground, AnAlignedBlockLiesInASlab) {
  Sparse sparse(kMiB);
  sparse.take(kMiB / 2);
  for (usize alignment : {32, 128, 1024}) {
    for (int k = 0; k < 100; ++k) {
      void* const block = allocate_aligned(kNew, alignment);
      EXPECT_EQ(address_of(block) % alignment, 0u);
      sparse.newcomers.push_back(block);
      sparse.newcomers.push_back(allocate(kNew));
    }
  }
}

TEST(slab_ground, PagesInItsHolesGoBack) {
  Sparse sparse(4 * kMiB);
  sparse.take(kMiB);
  for (usize k = 0; k < sparse.newcomers.size(); ++k)
    if (k % 16 != 0) deallocate(std::exchange(sparse.newcomers[k], nullptr));
  flush_all(*ensure_cache());
  SlabUser user;
  EXPECT_GT(purge_slabs(user, WentBack::trim), kMiB / 4);
  EXPECT_EQ(purge_slabs(user, WentBack::trim), 0u) << "all of it went";
  EXPECT_TRUE(ground_is_valid());
  sparse.take(kMiB);
}

TEST(slab_ground, AFreedBlockIsRefused) {
  Sparse sparse(kMiB);
  sparse.take(kMiB / 2);
  void* block = nullptr;
  for (void* one : sparse.newcomers)
    if (is_on_ground(one)) block = one;
  ASSERT_NE(block, nullptr);
  const auto misuse = [&](int how) {
    return [&, how] {
      deallocate(block);
      if (how != 0) flush_all(*ensure_cache());
      deallocate(static_cast<char*>(block) + (how == 2 ? kGranule : 0));
      deallocate(block);
      return 0;
    };
  };
  for (int how : {0, 1, 2}) EXPECT_EQ(fork_and(misuse(how)), 1000 + SIGABRT) << how;
}

// Sizes drift, so that slabs become ground beside frees by threads that still read the tags of slabs.
TEST(slab_ground, ThreadsHandOnBlocksWhileSizesDrift) {
  constexpr unsigned kThreads = 4;
  constexpr usize kPlaces = 4096;
  static std::atomic<Filled*> places[kPlaces];
  run_threads(kThreads, [](unsigned thread) {
    Random random(test_seed("drift") + thread);
    const int steps = static_cast<int>(scaled(60'000));
    for (int step = 0; step < steps; ++step) {
      const usize middle = usize{48} << (step * 8 / steps);
      const auto value = static_cast<unsigned char>(random.below(256));
      auto* mine = new Filled(Filled::of(random.between(middle / 2, middle), value));
      Filled* const theirs = places[random.below(kPlaces)].exchange(mine);
      if (theirs == nullptr) continue;
      EXPECT_TRUE(theirs->holds());
      deallocate(theirs->block);
      delete theirs;
      if (step % 5000 == 0) purge_slabs(ensure_cache()->user, WentBack::trim);
    }
  });
  EXPECT_TRUE(ground_is_valid());
  for (auto& place : places) {
    if (const Filled* left = place.exchange(nullptr); left != nullptr) {
      EXPECT_TRUE(left->holds());
      deallocate(left->block);
      delete left;
    }
  }
  flush_all(*ensure_cache());
  expect_valid_heap();
}

// GROUND-4
TEST(slab_ground, AChildGoesOnWhereverItsSiblingsStood) {
  Sparse sparse(2 * kMiB);
  sparse.alone = false;
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      Sparse more(kMiB);
      more.alone = false;
      more.take(kMiB / 2);
    }
  });
  for (int k = 0; k < 20; ++k) {
    EXPECT_EQ(fork_and([&] {
      sparse.take(kMiB / 4);
      for (const Filled& one : sparse.survivors) {
        if (!one.holds()) return 1;
        deallocate(one.block);
      }
      for (void* block : sparse.newcomers) deallocate(block);
      trim(0);
      return ground_is_valid() ? 0 : 2;
    }), 0);
  }
  stop = true;
  other.join();
}

}  // namespace
}  // namespace freestone
