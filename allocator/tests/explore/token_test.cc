// The token of a slab in every order of a few threads that give blocks back and take blocks: SLAB-1 to SLAB-4, and that
// no block is lost or handed out twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "explore/world.h"
#include "slab/room_tree.h"

namespace explore {
namespace {

using namespace freestone;

struct Case {
  SizeClass size_class;
  UnitIndex slab;
  std::vector<void*> blocks;  // all blocks of the slab
};

// A slab of a class with few blocks (one word) or with several words.
Case carve(bool several_words) {
  make_world();
  Case made;
  made.size_class = several_words ? 1 : kLastSmallClass;
  const ClassInfo& info = class_info(made.size_class);
  static UnitIndex next = 8 * kGroupUnits;
  made.slab = next += kGroupUnits;
  next_span = made.slab;
  SlabUser user;
  made.blocks.resize(info.blocks);
  if (take_blocks(made.size_class, user, info.blocks, info.blocks, made.blocks.data()) != info.blocks) std::abort();
  std::sort(made.blocks.begin(), made.blocks.end());
  return made;
}

// What each thread does: gives these blocks back, or takes up to so many.
struct Actor {
  std::vector<size_t> gives;
  unsigned takes = 0;
};

// All blocks but those in `held` are free at the start; each block of `held` is with the thread that gives it back, or
// with nobody.
Outcome search(const Case& made, const std::vector<size_t>& held, const std::vector<Actor>& actors, Bounds limits) {
  static std::vector<void*> taken;
  static SlabUser users[4];
  const ClassInfo& info = class_info(made.size_class);
  std::vector<void*> free_at_start;
  for (size_t i = 0; i < made.blocks.size(); ++i)
    if (std::find(held.begin(), held.end(), i) == held.end()) free_at_start.push_back(made.blocks[i]);
  if (!free_at_start.empty()) {
    SlabUser user;
    return_blocks(made.size_class, user, free_at_start.data(), static_cast<unsigned>(free_at_start.size()));
  }
  Scenario scenario;
  scenario.prepare = [&] {
    taken.clear();
    spans_returned = 0;
    next_span = kNoUnit;
    set_tags(made.slab, info.units, static_cast<u8>(made.size_class));
  };
  for (size_t t = 0; t < actors.size(); ++t) {
    const Actor& actor = actors[t];
    scenario.threads.push_back([&made, &actor, t] {
      for (const size_t block : actor.gives) return_blocks(made.size_class, users[t], &made.blocks[block], 1);
      if (actor.takes == 0) return;
      void* out[64];
      const unsigned got = take_blocks(made.size_class, users[t], actor.takes, actor.takes, out, BlockPlace::slab);
      taken.insert(taken.end(), out, out + got);
    });
  }
  size_t given = 0;
  for (const Actor& actor : actors) given += actor.gives.size();
  const size_t outside = held.size() - given;
  scenario.judge = [&, outside]() -> std::string {
    std::vector<void*> all = taken;
    if (spans_returned > 1) return "SLAB-2: the slab was released twice";
    if (spans_returned == 1) return all.size() + outside == 0 ? "" : "SLAB-2: a slab with live blocks was released";
    if (!slabs_are_valid()) return "SLAB-3 or SLAB-4 does not hold at rest";
    SlabUser user;
    std::vector<void*> rest(made.blocks.size());
    const size_t left = made.blocks.size() - outside - all.size();
    if (left > 0)
      rest.resize(take_blocks(made.size_class, user, static_cast<unsigned>(left), static_cast<unsigned>(rest.size()),
                              rest.data()));
    if (left == 0) rest.clear();
    if (rest.size() != left)
      return "a free block is not found: " + std::to_string(rest.size()) + " of " + std::to_string(left);
    all.insert(all.end(), rest.begin(), rest.end());
    std::sort(all.begin(), all.end());
    if (std::adjacent_find(all.begin(), all.end()) != all.end()) return "a block was handed out twice";
    // Back to how it was, for the next execution: what the explorer did not see is undone by hand.
    if (!rest.empty()) return_blocks(made.size_class, user, rest.data(), static_cast<unsigned>(rest.size()));
    return "";
  };
  Outcome outcome = explore_and_print(scenario, limits);
  // The slab leaves the tree: the next case has one of its own.
  set_tags(made.slab, info.units, static_cast<u8>(made.size_class));
  SlabUser user;
  std::vector<void*> rest(made.blocks.size() + 1);
  while (take_blocks(made.size_class, user, 1, static_cast<unsigned>(made.blocks.size()), rest.data()) != 0) {
  }
  return outcome;
}

std::vector<size_t> all_of(const Case& made) {
  std::vector<size_t> all(made.blocks.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

constexpr const char* kNothing = "";

TEST(Token, IsMadeOnceByTwoGivers) {
  const Case made = carve(false);
  EXPECT_EQ(search(made, all_of(made), {{{0}, 0}, {{1}, 0}}, bounds(4, 1)).problem, kNothing);
}

TEST(Token, OfATakerLosesNoBlockOfAGiver) {
  const Case made = carve(false);
  EXPECT_EQ(search(made, all_of(made), {{{0}, 0}, {{1}, 0}, {{}, 2}}, bounds(2, 1)).problem, kNothing);
}

TEST(Token, OfTwoTakersIsOne) {
  EXPECT_EQ(search(carve(false), {0, 1}, {{{0}, 0}, {{}, 2}, {{}, 2}}, bounds(2, 1)).problem, kNothing);
}

TEST(Token, ReleasesASlabOnceAndNeverBesideATaker) {
  EXPECT_EQ(search(carve(false), {0, 1}, {{{0}, 0}, {{1}, 0}}, bounds(3, 1)).problem, kNothing);
}

TEST(Token, OfASlabOfSeveralWordsLosesNoBlock) {
  const Case made = carve(true);
  const std::vector<size_t> all = all_of(made);
  EXPECT_EQ(search(made, all, {{{0}, 0}, {{all.back()}, 0}, {{}, 2}}, bounds(2, 1)).problem, kNothing);
}

}  // namespace
}  // namespace explore
