// A slab becomes ground beside threads that give its blocks back and take some, in every order: GROUND-1 to GROUND-3,
// SLAB-2, and that no block is lost or handed out twice.
#include "slab/ground.cc"  // its lists are no atomics: they are put back by hand

#include <gtest/gtest.h>

#include <algorithm>

#include "explore/world.h"

namespace freestone {

static Atomic<u64> maps[2 * kWordsPerUnit];
static int maps_out;
void* take_metadata(usize) {
  ++maps_out;
  return maps;
}
void return_metadata(void*, usize) { --maps_out; }

}  // namespace freestone

namespace explore {
namespace {

using namespace freestone;

const SizeClass kOld = class_of(2048);
const SizeClass kNew = class_of(1152);

struct Actor {
  bool converts = false;
  bool reuses = false;  // takes of the new ground and, when that has ended, makes a slab of it
  bool purges = false;
  std::vector<size_t> gives = {};
  unsigned takes = 0;
};

// A slab of which the first `held` blocks are outside at the start. Who does not give them back keeps them.
struct World {
  UnitIndex slab = 0;
  size_t held;
  std::vector<void*> blocks;  // of the slab, in the order of addresses
  std::vector<void*> live;    // at the end
  bool is_reused = false;
  SlabUser users[4];

  explicit World(size_t held_at_start) : held(held_at_start) {
    make_world();
    static UnitIndex next = 8 * kGroupUnits;
    slab = next_span = next += kGroupUnits;
    region.heap_start = slab;  // all that the judge walks over
    region.frontier.store_relaxed(slab + 1);
    blocks = take(class_info(kOld).blocks, users[0]);
    std::sort(blocks.begin(), blocks.end());
    return_blocks(kOld, users[0], &blocks[held], static_cast<unsigned>(blocks.size() - held));
  }
  ~World() {  // the slab leaves the tree
    prepare();
    take(blocks.size() - held, users[0]);
  }
  void prepare() {
    state = {};
    maps_out = 0;
    for (Atomic<u64>& word : maps) word.store_relaxed(0);
    spans_returned = 0;
    next_span = kNoUnit;
    is_reused = false;
    set_tag(slab, kOld);
    record_of(slab).size_class = kOld;
    record_of(slab).last_look = 0;
  }
  std::vector<void*> take(size_t count, SlabUser& user) {
    std::vector<void*> out(count);
    if (count != 0) out.resize(take_blocks(kOld, user, unsigned(count), unsigned(count), out.data(), BlockPlace::slab));
    return out;
  }

  void act(const Actor& actor, SlabUser& user) {
    if (actor.converts) convert(actor.reuses, user);
    if (actor.purges) purge_ground(slab, WentBack::slabs);
    for (const size_t block : actor.gives) {
      if (tag_of_block(blocks[block]) != kOld) broken("GROUND-2", "a free finds the block's class");
      return_blocks(kOld, user, &blocks[block], 1);
    }
    const std::vector<void*> taken = take(actor.takes, user);
    live.insert(live.end(), taken.begin(), taken.end());
  }
  void convert(bool reuses, SlabUser& user) {
    Ended ended;
    void* out[32];
    bool takes = false;
    {
      LockGuard guard(ground_lock);
      takes = make_ground(kOld, slab, user, ended) && ended.count == 0 && reuses;
      if (takes) take_from(Ground(slab), kNew, out, out + 1);
      blocks_of[kNew].add_relaxed(takes ? 1 : 0);
    }
    finish(ended);
    if (takes) return_to_ground(kNew, out, 1);
    if (!reuses || spans_returned == 0) return;
    {
      LockGuard guard(ground_lock);
    }  // stands for the span room's: sees all that came before the end
    next_span = slab;
    const unsigned all = class_info(kNew).blocks;
    is_reused = take_blocks(kNew, user, all, all, out, BlockPlace::slab) == all;
  }

  std::string judge() {
    std::sort(live.begin(), live.end());
    if (tag_of(slab) == kOld) {
      if (!slabs_are_valid()) return "SLAB-3 or SLAB-4 does not hold at rest";
      const std::vector<void*> rest = take(blocks.size() - live.size(), users[0]);
      live.insert(live.end(), rest.begin(), rest.end());
      std::sort(live.begin(), live.end());
      if (live != blocks) return "a block of the slab is lost or handed out twice";
      return_blocks(kOld, users[0], rest.data(), static_cast<unsigned>(rest.size()));
      return "";
    }
    if (RoomTree(0, kOld).finds(slab)) return "GROUND-3 or SLAB-2: what is no slab of the class is offered";
    if (tag_of(slab) == kTagGround) {
      std::vector<void*> found;
      for_each_on_ground(slab, [&](void* block, usize) { return found.push_back(block), true; });
      if (found != live || !ground_is_valid()) return "GROUND-1 or GROUND-2: a block is lost or handed out twice";
      if (live.empty()) return "ground is all free and did not end";
      return_to_ground(kOld, live.data(), static_cast<unsigned>(live.size()));
    } else if (!live.empty()) {
      return "ground with live blocks ended";
    }
    if (spans_returned != 1) return "ground ends " + std::to_string(spans_returned) + " times";
    if (maps_out != 0 || blocks_on_ground(kOld) + blocks_on_ground(kNew) + ground_use().bytes != 0)
      return "something is left of the ground";
    const u64 summary = record_of(slab).summary.load_relaxed();
    if (is_reused && (summary & (kWordsMask | kBusy)) != 0) return "SLAB-2: a late giver changed the next slab";
    return "";
  }

  std::string problem(const std::vector<Actor>& actors, Bounds limits) {
    Scenario scenario;
    std::vector<void*> kept(blocks.begin(), blocks.begin() + static_cast<std::ptrdiff_t>(held));
    for (const Actor& actor : actors) {
      for (const size_t block : actor.gives) kept.erase(std::find(kept.begin(), kept.end(), blocks[block]));
      SlabUser& user = users[scenario.threads.size()];
      scenario.threads.push_back([this, &actor, &user] { act(actor, user); });
    }
    scenario.prepare = [&] {
      prepare();
      live = kept;
    };
    scenario.judge = [this] { return judge(); };
    return explore_and_print(scenario, limits).problem;
  }
};

constexpr const char* kNothing = "";
const Actor kConverter{.converts = true};
const Actor kReuser{.converts = true, .reuses = true};

TEST(Ground, BringsHomeWhatALateGiverGaveToTheWords) {
  EXPECT_EQ(World(2).problem({kConverter, {.gives = {0}}}, bounds(3, 1)), kNothing);
}

TEST(Ground, OfASlabWithTwoGivers) {
  EXPECT_EQ(World(3).problem({kConverter, {.gives = {0}}, {.gives = {1}}}, bounds(2, 1)), kNothing);
}

TEST(Ground, OrASlabWithARefill) {
  EXPECT_EQ(World(2).problem({kConverter, {.gives = {0}}, {.takes = 2}}, bounds(2, 1)), kNothing);
}

TEST(Ground, EndsBesideALateGiver) { EXPECT_EQ(World(1).problem({kReuser, {.gives = {0}}}, bounds(3, 1)), kNothing); }

TEST(Ground, EndsBesideAPurge) {
  EXPECT_EQ(World(1).problem({kConverter, {.gives = {0}}, {.purges = true}}, bounds(2, 1)), kNothing);
}

}  // namespace
}  // namespace explore
