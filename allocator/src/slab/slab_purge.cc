// Room 7, slab: which memory inside slabs in use goes back to the kernel: whole pages of which every block is free.
//
// What the blocks of a class outside the slabs and its recent swings (span/recent_need.h) leave over is surplus. It
// goes
//   - as the heap grows: whoever makes it larger gives as much back from classes that have a surplus. A hand goes down
//     the heap for it, a part of the heap at a time, so that no call takes long;
//   - as the sizes change: the hand goes once round the heap while half of the bytes move to other classes, so that a
//     program which stays as large keeps no pages of sizes that it no longer uses, however fast it is. Only what its
//     classes grew by since a window began counts: blocks that come and go at random move nothing;
//   - with time: the hand goes once round the heap in `dirty_decay_ms` anyway;
//   - all at once when the blocks outside the slabs fell to half of their peak: a program that goes idle then keeps
//     little. Whoever sees it empties its cache first (give_back_cold in cache/cache.h).
//
// The kernel is called by the holder of a slab's token, for whom nobody waits.

#include "config/options.h"
#include "platform/os.h"
#include "slab/holding.h"
#include "span/recent_need.h"

namespace freestone {

namespace {

constexpr usize kWorthIt = 4 * kMiB;
constexpr usize kLookBytes = kMiB;     // growth from one look at the surplus to the next
constexpr usize kColdBytesMin = kMiB;  // less is left where it is
constexpr usize kColdDivisor = 32;     // and less than this part of what is in use
constexpr usize kWalkUnits = 16;       // units looked at per unit that the heap grew by
constexpr u64 kWindowMs = 128;         // in which blocks come and go without being a swing
constexpr usize kMovedDivisor = 2;     // such a window ends early when this part of the bytes is in other classes
constexpr usize kMovedUnitsMin = 256;  // that the hand goes on by: small heaps have little to give
constexpr usize kGrownPerLook = 2 * kMiB;  // what is made up for at once; the rest the next time
constexpr usize kUnitsPerTick = 64 * kKiB;  // what the hand passes at most because time passed
constexpr u32 kEventsPerLook = 128;         // refills and flushes of a thread
constexpr u32 kEventsPerSoonLook = 16;      // after the blocks became few
constexpr u32 kSoonLooks = 256;

Mutex looking{LockName::slab_purge};  // one thread at a time looks at the surplus; the others go on
Atomic<u64> looked_at;  // relaxed: what had come by the last look
Atomic<u32> soon_looks;  // relaxed: so many looks follow each other soon, for blocks that became few may be all freed
struct State {
  RecentNeed need;                            // of bytes in blocks outside the slabs
  RecentNeed class_need[kLastSmallClass + 1];  // the same by class
  usize most_out[2][kLastSmallClass + 1] = {};  // the most in this window and in the one before, by class
  usize began_with[kLastSmallClass + 1] = {};  // what was in use when this window began, by class
  usize moved = 0;      // the most that classes grew by since then, together
  bool turned = false;  // so much that the window is over
  usize unwalked = 0;   // of this and former windows, what the hand has not gone on for
  u64 window_ms = 0;    // when this window began
  usize peak = 0;       // the most of them since the slabs were last purged as a whole
  usize spare = 0;      // what the slabs were larger then, at most a quarter: a swing needs that again, too
  UnitIndex hand = 0;   // the walk goes on below this unit
  u64 walked_ms = 0;    // when it last went on because time passed
};
FREESTONE_FAR constinit State state FREESTONE_GUARDED_BY(looking);

// What the heap grew by. Pages that went back and are used again are not growth: they would call for others to go, and
// so on.
u64 came_bytes() {
  const auto of = [](Came how) { return traffic.came_bytes[static_cast<unsigned>(how)].load_relaxed(); };
  return of(Came::fresh) + of(Came::again) - refilled_bytes.load_relaxed();
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
u64 last_look(const Record& record) { return __atomic_load_n(&record.request_bytes, __ATOMIC_RELAXED); }
void set_last_look(Record& record, u64 look) { __atomic_store_n(&record.request_bytes, look, __ATOMIC_RELAXED); }

// Gives back the free pages of one slab. Returns the bytes.
usize purge_slab(SizeClass size_class, UnitIndex unit, SlabUser& user, WentBack why) {
  const usize page = os::page_bytes();
  const ClassInfo& info = class_info(size_class);
  Record& record = record_of(unit);
  if (looks_wholly_free(info, record)) return try_release(size_class, unit, user), 0;
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
  expect_blocks_clear(unit, info, words, SlabPages(empty));
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
  if (looks_wholly_free(info, record)) try_release(size_class, unit, user);
  return purged;
}

struct Surplus {
  usize of[kLastSmallClass + 1];
  usize bytes = 0;      // of all classes
  usize blocks = 0;     // bytes in blocks outside the slabs
  usize slabs = 0;      // bytes of slabs
  usize kept = 0;       // what recent swings of all blocks say will be needed soon
};

void look(Surplus& surplus) FREESTONE_REQUIRES(looking) {
  const u64 now = os::coarse_milliseconds();
  usize kept[kLastSmallClass + 1];
  usize all_kept = 0;
  usize moved = 0;
  const bool new_window = now - state.window_ms >= kWindowMs || state.turned;
  const bool long_ago = now - state.window_ms >= 2 * kWindowMs;
  if (new_window) state.window_ms = now;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    surplus.of[c] = 0;
    const usize units = slab_units_in_use[c].load_relaxed();
    if (new_window) state.began_with[c] = 0;
    if (units == 0) continue;
    const ClassInfo& info = class_info(c);
    const usize room = units / info.units * info.blocks * info.bytes;
    // May be read between a taker's steps and a giver's.
    const usize out = min_of(blocks_outside(c) * info.bytes, room);
    if (new_window) state.began_with[c] = out;
    moved += out - min_of(out, state.began_with[c]);
    if (new_window) state.most_out[1][c] = long_ago ? out : state.most_out[0][c];
    state.most_out[0][c] = new_window ? out : max_of(out, state.most_out[0][c]);
    const usize most = max_of(state.most_out[0][c], state.most_out[1][c]);
    state.class_need[c].note(out, now);
    kept[c] = state.class_need[c].kept(out) - min_of(state.class_need[c].kept(out), most - out);
    all_kept += kept[c];
    surplus.of[c] = room - min_of(room, most + empty_bytes[c].load_relaxed());
    surplus.blocks += out;
    surplus.slabs += units_to_bytes(units);
  }
  if (new_window) state.moved = 0;
  state.unwalked += moved - min_of(moved, state.moved);
  state.moved = max_of(state.moved, moved);
  state.turned = state.moved > max_of(kWorthIt, surplus.blocks / kMovedDivisor);
  state.need.note(surplus.blocks, now);
  surplus.kept = options.dirty_bytes == 0 ? 0 : state.need.kept(surplus.blocks);
  // What one class may need again another may need instead: together they keep no more than all blocks swing by.
  constexpr unsigned kShareShift = 16;  // bytes of a window, shifted so, fit into a word
  static_assert(kWindowBytes <= ~usize{0} >> kShareShift);
  const usize share = all_kept <= surplus.kept ? usize{1} << kShareShift : (surplus.kept << kShareShift) / all_kept;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    if (surplus.of[c] == 0) continue;
    surplus.of[c] -= min_of(surplus.of[c], kept[c] * share >> kShareShift);
    surplus.bytes += surplus.of[c];
  }
}

usize heap_units() { return region.frontier.load_acquire() - region.heap_start; }

// How far the hand goes because sizes changed, `blocks` bytes being in use.
usize units_moved(usize blocks) FREESTONE_REQUIRES(looking) {
  const usize turn = max_of<usize>(bytes_to_units(blocks / kMovedDivisor), 1);
  const usize units = heap_units() * min_of(state.unwalked >> kUnitShift, turn) / turn;
  if (units < kMovedUnitsMin) return 0;
  state.unwalked = 0;
  return units;
}

// How far the hand goes because time passed.
usize units_due() FREESTONE_REQUIRES(looking) {
  const u64 now = os::coarse_milliseconds();
  const u64 elapsed = now - state.walked_ms;
  if (elapsed < kWindowMs) return 0;
  state.walked_ms = now;
  const u64 round_ms = max_of(options.dirty_decay_ms, kWindowMs);
  return min_of(kUnitsPerTick, heap_units() * min_of(elapsed, round_ms) / round_ms);
}

// The hand goes on by so many units at most, and gives back so many bytes at most.
void walk(SlabUser& user, Surplus& surplus, usize units, usize most) FREESTONE_REQUIRES(looking) {
  units = min_of(units, heap_units());
  usize given = 0;
  usize walked = 0;
  while (walked < units && given < most && !purges_pause()) {
    if (state.hand <= region.heap_start || state.hand > region.frontier.load_acquire())
      state.hand = region.frontier.load_acquire();
    const UnitIndex unit = state.hand - 1;
    const u8 tag = tag_of(unit);
    const bool slab = tag != kTagNone && tag <= kLastSmallClass;
    const UnitIndex first = slab ? slab_start(class_info(tag), unit) : unit;
    if (slab && surplus.of[tag] > 0) {
      const usize went = purge_slab(tag, first, user, WentBack::slabs);
      surplus.of[tag] -= min_of(surplus.of[tag], went);
      given += went;
    }
    walked += state.hand - first;
    state.hand = first;
  }
}

}  // namespace

usize purge_slabs(SlabUser& user, WentBack why) {
  usize purged = 0;
  if (why == WentBack::trim) end_purge_pause();
  for (unsigned shard = 0; shard < shards_to_search(); ++shard) {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c)
      RoomTree(shard, c).for_each([&](UnitIndex unit) { purged += purge_slab(c, unit, user, why); });
  }
  user.token.store_relaxed(kNoUnit);
  return purged;
}

bool look_is_due(u32 events) {
  return events % (soon_looks.load_relaxed() != 0 ? kEventsPerSoonLook : kEventsPerLook) == 0;
}

// At most so many bytes of slabs have memory, free blocks and used ones together.
static usize touched_slab_bytes() {
  usize bytes = 0;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c)
    bytes += units_to_bytes(slab_units_in_use[c].load_relaxed()) - empty_bytes[c].load_relaxed();
  return bytes;
}

// `came`: what had come by now.
FREESTONE_APART static bool purge_cold_pages_slow(SlabUser& user, bool due, u64 came) {
  if (touched_slab_bytes() <= kColdBytesMin) {  // so little is left where it is
    looked_at.store_relaxed(came);
    return false;
  }
  const u64 grown = came - looked_at.load_relaxed();
  if (!looking.try_lock()) return false;
  Surplus surplus;
  look(surplus);
  if (surplus.blocks > state.peak) {
    state.peak = surplus.blocks;
    state.spare = min_of(surplus.slabs - min_of(surplus.slabs, surplus.blocks), surplus.blocks / 4);
  }
  const usize needed = surplus.kept == 0 ? surplus.blocks : surplus.blocks + surplus.kept + state.spare;
  u64 left = 0;  // of what it grew by
  const bool became_few = surplus.blocks <= state.peak / 2 && surplus.slabs >= needed + kWorthIt;
  if (const u32 soon = soon_looks.load_relaxed(); soon != 0) soon_looks.store_relaxed(soon - 1);
  if (became_few) {
    state.peak = surplus.blocks;
    soon_looks.store_relaxed(kSoonLooks);
  } else if (surplus.bytes > kColdBytesMin + surplus.blocks / kColdDivisor) {
    const usize at_once = min_of<u64>(grown, kGrownPerLook);
    left = grown - at_once;
    walk(user, surplus, (at_once >> kUnitShift) * kWalkUnits, at_once);
    walk(user, surplus, units_moved(surplus.blocks), kGrownPerLook);
    if (due) walk(user, surplus, units_due(), kGrownPerLook);
  }
  looked_at.store_relaxed(came - left);
  user.token.store_relaxed(kNoUnit);
  looking.unlock();
  return became_few;
}

bool purge_cold_pages(SlabUser& user, bool due) {
  const u64 came = came_bytes();
  if (!due && came - looked_at.load_relaxed() < kLookBytes) return false;
  return purge_cold_pages_slow(user, due, came);
}

void forget_slab_purge() { looking.reset_in_child(); }

}  // namespace freestone
