// The tree of slabs with room, in every order of a few threads: TREE-1 and SLAB-4, and that no token is lost or
// doubled.
#include <gtest/gtest.h>

#include "explore/world.h"
#include "slab/room_tree.h"

namespace explore {
namespace {

using namespace freestone;

constexpr SizeClass kClass = 3;
constexpr UnitIndex kLow = kGroupUnits * 2;                        // in the first super
constexpr UnitIndex kHigh = kSuperGroups * kGroupUnits + 5;        // in the second
constexpr UnitIndex kSlabs[] = {kLow, kHigh};

// Tokens that threads took or hold, and those that lie in the tree.
struct Tokens {
  int claimed[2] = {};

  void take(UnitIndex unit) {
    if (unit != kNoUnit) ++claimed[unit == kHigh ? 1 : 0];
  }
};

bool lies_in_tree(UnitIndex unit) {
  return (slabs_with_room(unit / kGroupUnits, 0, kClass).load_seq() & bit(unit % kGroupUnits)) != 0;
}

// The state at the start: what an empty tree has become by earlier offers and claims.
void set_up(bool low_offered, bool stale_group) {
  slabs_with_room(kLow / kGroupUnits, 0, kClass).store_seq(low_offered ? bit(kLow % kGroupUnits) : 0);
  slabs_with_room(kHigh / kGroupUnits, 0, kClass).store_seq(0);
  super_at(0).groups_with_room[kClass].store_seq(low_offered || stale_group ? bit(kLow / kGroupUnits) : 0);
  super_at(1).groups_with_room[kClass].store_seq(0);
}

std::string judge(const Tokens& tokens, const int (&offered)[2]) {
  for (int s = 0; s < 2; ++s)
    if (tokens.claimed[s] + lies_in_tree(kSlabs[s]) != offered[s]) return "a token is lost or doubled";
  int in_tree = lies_in_tree(kLow) + lies_in_tree(kHigh);
  Atomic<UnitIndex> watch;
  while (RoomTree(0, kClass).claim_lowest(watch) != kNoUnit) --in_tree;
  return in_tree == 0 ? "" : "TREE-1: a search passed a slab that lies in the tree";
}

Outcome search(bool low_offered, bool stale_group, std::vector<int> actors, Bounds limits) {
  make_world();
  static Tokens tokens;
  static int offered[2];
  Scenario scenario;
  scenario.prepare = [=] {
    set_up(low_offered, stale_group);
    tokens = {};
    offered[0] = low_offered;
    offered[1] = 0;
    for (const int actor : actors)
      if (actor > 0) ++offered[actor - 1];
  };
  for (const int actor : actors) {
    scenario.threads.push_back([actor] {
      Atomic<UnitIndex> watch;
      if (actor == 0) {
        tokens.take(RoomTree(0, kClass).claim_lowest(watch));
      } else {
        RoomTree(0, kClass).offer(kSlabs[actor - 1]);
      }
    });
  }
  scenario.judge = [] { return judge(tokens, offered); };
  return explore_and_print(scenario, limits);
}

// 0: a search; 1: an offer of the low slab; 2: of the high one.
#ifdef FREESTONE_BROKEN_TREE
TEST(BrokenRoomTree, IsFoundOut) {
  const std::string problem = search(false, true, {0, 1, 0}, bounds(3, 1)).problem;
  std::puts(problem.c_str());
  EXPECT_NE(problem.find("TREE-1"), std::string::npos);
}
#else
TEST(RoomTree, KeepsEveryOfferVisibleBesideTwoSearches) {
  EXPECT_EQ(search(false, true, {0, 1, 0}, bounds(3, 1)).problem, "");
}
TEST(RoomTree, KeepsEveryOfferVisibleBesideOneSearch) {
  for (const bool stale : {false, true}) {
    EXPECT_EQ(search(false, stale, {0, 1}, bounds(4, 2)).problem, "");
    EXPECT_EQ(search(false, stale, {0, 2}, bounds(4, 2)).problem, "");
    EXPECT_EQ(search(true, stale, {0, 2, 0}, bounds(2, 1)).problem, "");
  }
}
TEST(RoomTree, KeepsTwoOffersVisible) {
  EXPECT_EQ(search(false, false, {1, 2, 0}, bounds(3, 1)).problem, "");
  EXPECT_EQ(search(false, true, {1, 2, 0}, bounds(3, 1)).problem, "");
}
#endif

}  // namespace
}  // namespace explore
