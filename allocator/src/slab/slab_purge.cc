// Room 7, slab: which memory inside slabs in use goes back to the kernel: whole pages of which every block is free.
//
// A share of it stays, all classes taken together. More is surplus, and while that is worth its cost
// (region/purge_budget.h) a hand goes down the heap and gives free pages back: as much as the heap grows by since the
// last look, and a quarter of the surplus with each tick; a look passes a quarter of the heap and gives back 2 MiB at
// most. Where only its class can use a slab, more stays, but what the heap grows by goes in any case.
//
// All of it goes at once in a great fall, when the blocks outside the slabs fell to a quarter of their peak: a program
// that goes idle then keeps little. The thread that sees it empties its cache first (give_back_cold in cache/slow.h).
//
// The kernel is called by the holder of a slab's token, for whom nobody waits.

#include "config/heuristics.h"
#include "config/options.h"
#include "platform/leaving.h"
#include "slab/ground.h"
#include "slab/holding.h"
#include "span/purge.h"

namespace freestone {

namespace {

constexpr bool kGivesIfGrown = kMitigations.quarantine;  // what the heap grows by goes though the budget is overdrawn

Mutex looking{LockName::slab_purge};  // one thread at a time looks at the surplus; the others go on
Atomic<u64> looked_at;                // relaxed: what had come by the last look
struct State {
  usize peak = 0;      // the most of them since the slabs were last purged as a whole
  u64 tick = 0;        // of the last look
  UnitIndex hand = 0;  // the walk goes on below this unit
};
FREESTONE_FAR constinit State state FREESTONE_GUARDED_BY(looking);

// What the heap grew by. What went back and is used again is no growth: it would call for more to go, and so on. Where
// only its class can use a slab, it is: one class after another would keep its most.
u64 came_bytes() {
  const auto came = [](Came how) { return traffic.came_bytes[static_cast<unsigned>(how)].load_relaxed(); };
  return came(Came::fresh) + (kGivesIfGrown ? came(Came::again) : 0);
}

// What decides whether a slab has free pages with memory, in one number. A slab that looks as when it was last purged
// has none, so that a program which asks for it all the time pays for what changed. The number stands where a run has
// its request: only the holder of the token writes it, since the record may be a run's by the next moment. A reader of
// another's number looks once more, or not at a slab that was emptied a moment ago.
u64 look_of(SizeClass size_class, const u64* words, u64 empty_pages) {
  u64 look = size_class ^ empty_pages;
  for (unsigned w = 0; w < slab_words(class_info(size_class)); ++w) look = (look ^ words[w]) * 0x9E3779B97F4A7C15u + 1;
  return look;
}
u64 last_look(const Record& record) { return __atomic_load_n(&record.last_look, __ATOMIC_RELAXED); }
void set_last_look(Record& record, u64 look) { __atomic_store_n(&record.last_look, look, __ATOMIC_RELAXED); }

// Gives back the free pages of one slab. Returns the bytes.
usize purge_slab(SizeClass size_class, UnitIndex unit, SlabUser& user, WentBack why, Retiring& retiring) {
  const usize page = os::page_bytes();
  const ClassInfo& info = class_info(size_class);
  Record& record = record_of(unit);
  if (looks_wholly_free(info, record)) return try_release(size_class, unit, user, retiring);
  if (units_to_bytes(info.units) % page != 0) return 0;  // a page that reaches into neighbours is not ours to purge
  u64 words[kSlabWordsMax];
  load_words(info, record, words);
  if (last_look(record) == look_of(size_class, words, record.empty_pages.load_relaxed())) return 0;
  if (!tree_of(record, size_class).claim(unit, user.token)) return 0;
  begin_holding(record);
  load_words(info, record, words);  // these stay free: nobody takes blocks without the token
  usize purged = 0;
  bool refused = false;
  u64 empty = record.empty_pages.load_relaxed();
  expect_blocks_clear(unit, info, words, SlabPages(empty), false);
  unsigned most = 64;  // at once; after a refusal page by page, since one of them may be locked
  for (u64 left = free_pages(info, words, page) & ~empty; left != 0 && !purges_pause();) {
    const unsigned first = lowest_bit(left);
    const unsigned count = min_of(trailing_ones(left >> first), most);
    const u64 pages = low_mask(count) << first;
    if (!purge_range(unit_address(unit) + first * page, count * page, why)) {
      refused = true;
      if (count == 1) left &= ~pages;
      most = 1;
      continue;
    }
    left &= ~pages;
    empty |= pages;
    purged += count * page;
    record.is_fresh = 0;
  }
  record.empty_pages.store_relaxed(empty);
  if (!refused && !purges_pause()) set_last_look(record, look_of(size_class, words, empty));
  empty_bytes[size_class].add_relaxed(purged);
  end_holding(record, size_class, unit, load_words(info, record, words));
  if (looks_wholly_free(info, record)) purged += try_release(size_class, unit, user, retiring);
  return purged;
}

struct Look {
  usize free[kLastSmallClass + 1];  // bytes of slabs that are free and have memory, by class
  usize blocks = 0;                 // bytes in blocks outside the slabs
  usize touched = 0;                // bytes of slabs that have memory

  usize unused() const { return touched - min_of(touched, blocks); }
};

// False when so little has memory that all of it may stay.
bool look(Look& found) FREESTONE_REQUIRES(looking) {
  const GroundUse ground = ground_use();
  found.blocks = ground.used_bytes;
  found.touched = ground.bytes;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c)
    found.touched += units_to_bytes(slab_units_in_use[c].load_relaxed()) - empty_bytes[c].load_relaxed();
  if (found.touched <= kSlabLeftBytes) return false;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    const SlabUse use = slab_use(c);
    found.free[c] = use.free_bytes;
    found.blocks += use.outside_bytes;
  }
  return true;
}

// The hand passes so many units and gives back so many bytes at most.
void walk(SlabUser& user, Look& found, usize units, usize most) FREESTONE_REQUIRES(looking) {
  Retiring retiring(user, WentBack::slabs);
  usize given = 0;
  usize walked = 0;
  while (walked < units && given < most && !purges_pause()) {
    if (state.hand <= region.heap_start || state.hand > region.frontier.load_acquire())
      state.hand = region.frontier.load_acquire();
    const UnitIndex unit = state.hand - 1;
    const u8 tag = tag_of(unit);
    const bool slab = tag != kTagNone && tag <= kLastSmallClass;
    const UnitIndex first = slab ? slab_start(class_info(tag), unit) : unit;
    if (slab && found.free[tag] > 0) {
      const usize went = purge_slab(tag, first, user, WentBack::slabs, retiring);
      found.free[tag] -= min_of(found.free[tag], went);
      given += went;
    }
    if (tag == kTagGround) given += purge_ground(unit, WentBack::slabs);
    walked += state.hand - first;
    state.hand = first;
  }
}

}  // namespace

usize purge_slabs(SlabUser& user, WentBack why) {
  usize purged = 0;
  if (why == WentBack::trim) end_purge_pause();
  Retiring retiring(user, why);
  for (unsigned shard = 0; shard < shards_to_search(); ++shard) {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c)
      RoomTree(shard, c).for_each([&](UnitIndex unit) { purged += purge_slab(c, unit, user, why, retiring); });
  }
  retiring.finish();
  user.token.store_relaxed(kNoUnit);
  if (ground_use().bytes != 0) {
    for (UnitIndex unit = region.heap_start; unit < region.frontier.load_acquire(); ++unit) {
      if (tag_of(unit) == kTagGround) purged += purge_ground(unit, why);
    }
  }
  if (why == WentBack::slabs) purge_budget.fell(purged);
  return purged;
}

SlabUse slab_use(SizeClass size_class) {
  SlabUse use = {};
  const usize units = slab_units_in_use[size_class].load_relaxed();
  if (units == 0) return use;
  const ClassInfo& info = class_info(size_class);
  use.slabs = units / info.units;
  use.bytes = units_to_bytes(units);
  const usize room = use.slabs * info.blocks * info.bytes;
  // May be read between a taker's steps and a giver's.
  const usize outside = blocks_outside(size_class), on_ground = blocks_on_ground(size_class);
  use.outside_bytes = min_of((outside - min_of(outside, on_ground)) * info.bytes, room);
  use.empty_bytes = min_of(empty_bytes[size_class].load_relaxed(), use.bytes);
  use.free_bytes = room - min_of(room, use.outside_bytes + use.empty_bytes);
  return use;
}

bool purge_cold_pages(SlabUser& user, bool due) {
  if (os::leaves_surplus()) return false;
  const u64 came = came_bytes();
  if (!due && came - looked_at.load_relaxed() < kPurgeBytesPerCall) return false;
  if (!looking.try_lock()) return false;
  const u64 grown = came - looked_at.load_relaxed();
  looked_at.store_relaxed(came);
  Look found;
  if (!look(found)) {
    looking.unlock();
    return false;
  }
  const u64 tick = worked_ms.load_relaxed() / tick_ms();
  const u64 ticks = min_of(tick - state.tick, kTicksPerDecay);
  state.tick = tick;
  const bool may = may_give_back();
  const usize stays = kGivesIfGrown || may ? kSlabLeftBytes + found.blocks / kSlabStaysDivisor : found.unused();
  const usize surplus = found.unused() - min_of(found.unused(), stays);
  state.peak = max_of(state.peak, found.blocks);
  const bool became_few = found.blocks <= state.peak / 4 && surplus >= kGreatFallBytes && may_fall();
  if (became_few) {
    state.peak = found.blocks;
  } else if (surplus > 0) {
    const usize heap = region.frontier.load_acquire() - region.heap_start;
    walk(user, found, min_of(heap / kTicksPerDecay, kSlabUnitsPerLook),
         min_of(min_of(surplus, kSlabBytesPerLook), grown + (may ? surplus * ticks / kTicksPerDecay : 0)));
  }
  user.token.store_relaxed(kNoUnit);
  looking.unlock();
  return became_few;
}

usize unused_slab_bytes() {
  usize bytes = ground_use().bytes - ground_use().used_bytes;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) bytes += slab_use(c).bytes - slab_use(c).outside_bytes;
  return bytes;
}

void forget_slab_purge() { looking.reset_in_child(); }

}  // namespace freestone
