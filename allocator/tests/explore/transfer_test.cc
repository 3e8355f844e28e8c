// The bins between threads in every order of a few that give, take and drain: TRANSFER-1 to TRANSFER-3, and that no
// block is lost or doubled.
#include "cache/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "explore/world.h"

namespace explore {
namespace {

using namespace freestone;

constexpr SizeClass kClass = kLastSmallClass;

// A slab of which all blocks are out; the first two are what the threads pass on.
std::vector<void*> carve() {
  make_world();
  static UnitIndex next = 8 * kGroupUnits;
  next_span = next += kGroupUnits;
  const ClassInfo& info = class_info(kClass);
  std::vector<void*> blocks(info.blocks);
  SlabUser user;
  if (take_blocks(kClass, user, info.blocks, info.blocks, blocks.data()) != info.blocks) std::abort();
  return blocks;
}

struct World {
  std::vector<void*> blocks = carve();
  std::vector<void*> held;  // by the threads, at the end
  SlabUser users[3];

  void give(size_t first, unsigned count) {
    const unsigned given = give_to_transfer(kClass, 0, blocks.data() + first, count);
    for (size_t k = first + given; k < first + count; ++k) held.push_back(blocks[k]);
  }
  void take(unsigned room) {
    void* out[4];
    const unsigned got = take_from_transfer(kClass, 0, room, out);
    held.insert(held.end(), out, out + got);
  }

  Outcome search(size_t passed, std::vector<std::function<void()>> threads, Bounds limits) {
    Scenario scenario;
    scenario.prepare = [this] { held.clear(); };
    scenario.threads = std::move(threads);
    scenario.judge = [this, passed]() -> std::string {
      void* waiting[8];
      std::vector<void*> all = held;
      all.insert(all.end(), waiting, waiting + copy_transfer_blocks(waiting, 8));
      for (size_t k = 0; k < passed; ++k)
        if (is_block_free(kClass, blocks[k])) all.push_back(blocks[k]);
      std::sort(all.begin(), all.end());
      std::vector<void*> expected(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(passed));
      std::sort(expected.begin(), expected.end());
      return all == expected ? ""
                             : "TRANSFER-2: a block is lost or doubled: " + std::to_string(all.size()) + " of " +
                                   std::to_string(passed);
    };
    return explore_and_print(scenario, limits);
  }
};

constexpr const char* kNothing = "";

TEST(Transfer, PassesEachBlockToOneTaker) {
  World w;
  EXPECT_EQ(w.search(2, {[&] { w.give(0, 2); }, [&] { w.take(1); }, [&] { w.take(2); }}, bounds(2, 1)).problem,
            kNothing);
}

TEST(Transfer, TakesWhatTwoGiveAtOnce) {
  World w;
  EXPECT_EQ(w.search(2, {[&] { w.give(0, 1); }, [&] { w.give(1, 1); }, [&] { w.take(2); }}, bounds(2, 1)).problem,
            kNothing);
}

TEST(Transfer, DrainsBesideGiversAndTakers) {
  World w;
  EXPECT_EQ(w.search(2, {[&] { w.give(0, 2); }, [&] { w.take(1); }, [&] { drain_transfer(w.users[2]); }}, bounds(2, 1))
                .problem,
            kNothing);
}

}  // namespace
}  // namespace explore
