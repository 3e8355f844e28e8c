// Room 7, slab: see ground.h.

#include "slab/ground.h"

#include "base/bits.h"
#include "config/heuristics.h"
#include "platform/os.h"
#include "region/metadata.h"
#include "region/traffic.h"
#include "slab/ground_giver.h"
#include "slab/holding.h"
#include "span/purge.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

constexpr unsigned kBands = highest_bit(kSlabUnitsMax * kGranulesPerUnit) + 1;  // of the known hole, by doubling
// As the place of a hole; the ground is in no list. There is none, or the kernel is at work on it.
constexpr u16 kNoHole = 0xfffe, kUnlisted = 0xffff;

constexpr unsigned kSkippedMost = 4 * kGroundsTried - 1;  // searches for a giver, after searches in vain

Mutex ground_lock{LockName::ground};
struct State {
  UnitIndex lists[kBands + 1] = {};  // by band_of their hole; 0: none
  unsigned skip = 0;                 // so many searches for a giver are left out
  unsigned skip_next = 0;
  bool abandoned = false;  // GROUND-4
};
FREESTONE_FAR constinit State state FREESTONE_GUARDED_BY(ground_lock);

// Relaxed.
Atomic<usize> units_of_ground;
Atomic<usize> blocks_of[kLastSmallClass + 1];

// 0: no hole is known.
unsigned band_of(usize hole) { return highest_bit(2 * hole + 1); }
UnitIndex& list_for(usize hole) FREESTONE_REQUIRES(ground_lock) { return state.lists[band_of(hole)]; }

void leave_list(const Ground& ground) FREESTONE_REQUIRES(ground_lock) {
  GroundUnit& facts = ground.facts();
  if (facts.hole_at >= kNoHole) return;
  (facts.previous != 0 ? record_of(facts.previous).ground.next : list_for(facts.hole)) = facts.next;
  if (facts.next != 0) record_of(facts.next).ground.previous = facts.previous;
}

// The hole of which new blocks are taken. 0 granules: it is not known, or there is none.
void set_hole(const Ground& ground, usize at, usize granules) FREESTONE_REQUIRES(ground_lock) {
  GroundUnit& facts = ground.facts();
  if (facts.hole_at == kUnlisted) return;
  const bool stays = facts.hole_at != kNoHole && at != kNoHole && band_of(facts.hole) == band_of(granules);
  if (!stays) leave_list(ground);
  facts.hole = static_cast<u16>(granules);
  facts.hole_at = static_cast<u16>(at);
  if (stays || at == kNoHole) return;
  UnitIndex& head = list_for(granules);
  facts.previous = 0;
  facts.next = head;
  if (head != 0) record_of(head).ground.previous = ground.first;
  head = ground.first;
}

// Looks for the longest hole. Returns its length.
usize look_for_hole(const Ground& ground) FREESTONE_REQUIRES(ground_lock) {
  usize longest = 0, at = kNoHole;
  ground.for_each_hole([&](usize from, usize length) {
    if (length > longest) longest = length, at = from;
  });
  set_hole(ground, at, longest);
  return longest;
}

// Takes blocks from the known hole; they go below `top`, down to `bottom` at most.
void** take_from(const Ground& ground, SizeClass size_class, void** bottom, void** top)
    FREESTONE_REQUIRES(ground_lock) {
  const usize granules = granules_of(size_class);
  usize at = ground.facts().hole_at, left = ground.facts().hole;
  for (; left >= granules && top != bottom; at += granules, left -= granules) {
    ground.toggle(at, granules);
    *--top = ground.at(at);
  }
  set_hole(ground, at, left < granules ? 0 : left);
  return top;
}

// Ground that is all free, until it goes back to the span room outside the lock.
struct Ended {
  UnitIndex first[8];
  usize units[8];
  unsigned count = 0;
};

void end_if_free(const Ground& ground, usize hole, Ended& ended) FREESTONE_REQUIRES(ground_lock) {
  GroundUnit& facts = ground.facts();
  if (hole != ground.granules() || facts.hole_at == kUnlisted || ended.count == 8) return;
  leave_list(ground);
  const usize units = ground.words / kWordsPerUnit;
  Record& record = *ground.head;
  set_tags(ground.first, units, kTagNone);
  record.summary.store_seq((generation_of(record.summary.load_relaxed()) + 1) << kGenerationShift);  // SLAB-2
  units_of_ground.sub_relaxed(units);
  return_metadata(ground.starts, 2 * ground.words * sizeof(u64));
  ended.first[ended.count] = ground.first;
  ended.units[ended.count++] = units;
}

// A block of so many granules comes back. Returns the hole in which it lies then. Aborts when there is no such block.
usize put_back(const Ground& ground, usize from, usize granules) FREESTONE_REQUIRES(ground_lock) {
  const usize end = ground.next(ground.starts, from + 1);
  if (end < from + granules || !ground.toggle(from, granules))
    fail("double free", ground.at(from), "nothing is allocated there");
  const usize begin = Ground::behind_last(ground.lasts, from);
  if (state.abandoned) return 0;
  if (end - begin > ground.facts().hole) set_hole(ground, begin, end - begin);
  return end - begin;
}

// What was given to the words of the slab that the ground was.
void collect(const Ground& ground, Ended& ended) FREESTONE_REQUIRES(ground_lock) {
  Record& record = *ground.head;
  const SizeClass size_class = record.size_class;
  const usize granules = granules_of(size_class);
  for (unsigned w = 0; w < slab_words(class_info(size_class)); ++w) {
    for (u64 left = record.words[w].exchange_seq(0); left != 0; left &= left - 1) {
      blocks_of[size_class].sub_relaxed(1);
      put_back(ground, (w * 64 + lowest_bit(left)) * granules, granules);
    }
  }
  end_if_free(ground, ground.facts().hole, ended);
}

void finish(const Ended& ended) {
  for (unsigned k = 0; k < ended.count; ++k) return_span(ended.first[k], ended.units[k], true);
}

// Makes ground of a slab. False if somebody else holds its token, or memory is out.
bool make_ground(SizeClass size_class, UnitIndex unit, SlabUser& user, Ended& ended) FREESTONE_REQUIRES(ground_lock) {
  const ClassInfo& info = class_info(size_class);
  Record& record = record_of(unit);
  const usize words = info.units * kWordsPerUnit;
  auto* maps = static_cast<Atomic<u64>*>(take_metadata(2 * words * sizeof(u64)));
  if (maps == nullptr) return false;
  if (!tree_of(record, size_class).claim(unit, user.token)) {
    return_metadata(maps, 2 * words * sizeof(u64));
    return false;
  }
  begin_holding(record);
  for (u32 k = 0; k < info.units; ++k)
    record_of(unit + k).ground = {maps, unit, 0, 0, 0, kNoHole}, record_of(unit + k).run_units = info.units;
  const Ground ground(unit);
  const usize granules = granules_of(size_class);
  usize used = 0;
  for (unsigned w = 0; w < slab_words(info); ++w) {
    const u64 live = full_word(info, w) & ~record.words[w].exchange_seq(0);
    used += count_bits(live);
    for (u64 left = live; left != 0; left &= left - 1) ground.toggle((w * 64 + lowest_bit(left)) * granules, granules);
  }
  blocks_of[size_class].add_relaxed(used);
  empty_bytes[size_class].sub_relaxed(count_bits(record.empty_pages.load_relaxed()) * os::page_bytes());
  record.empty_pages.store_relaxed(0);
  record.zero_blocks.store_relaxed(0);
  slab_units_in_use[size_class].sub_relaxed(info.units);
  units_of_ground.add_relaxed(info.units);
  // GROUND-2
  for (u32 k = 0; k < info.units; ++k) tag_place(unit + k).store_release(kTagGround);
  look_for_hole(ground);
  user.token.store_relaxed(kNoUnit);
  collect(ground, ended);
  return true;
}

// A ground whose known hole has so many granules.
UnitIndex find_hole(usize granules) FREESTONE_REQUIRES(ground_lock) {
  unsigned band = band_of(granules);
  unsigned missed = 0;
  for (UnitIndex unit = state.lists[band]; unit != 0 && missed < kGroundsTried; ++missed) {
    const GroundUnit& facts = record_of(unit).ground;
    if (facts.hole >= granules) return unit;
    unit = facts.next;
  }
  while (++band <= kBands) {
    if (state.lists[band] != 0) return state.lists[band];
  }
  return kNoUnit;
}

// Looks for holes in a few grounds whose hole was used up; kNoUnit if none has so many granules.
UnitIndex look_for_holes(usize granules) FREESTONE_REQUIRES(ground_lock) {
  for (unsigned looks = 0; looks < kGroundsTried && list_for(0) != 0; ++looks) {
    const Ground ground(list_for(0));
    if (look_for_hole(ground) >= granules) return ground.first;
  }
  return kNoUnit;
}

// Makes ground of a sparse slab, if another class has one with room.
bool enlarge(SizeClass taker, SlabUser& user, Ended& ended) FREESTONE_REQUIRES(ground_lock) {
  if (state.skip != 0) {
    --state.skip;
    return false;
  }
  const Giver giver = find_giver(taker);
  const bool found = giver.unit != kNoUnit && make_ground(giver.size_class, giver.unit, user, ended);
  state.skip_next = found ? 0 : min_of(2 * state.skip_next + 1, kSkippedMost);
  state.skip = state.skip_next;
  return found;
}

}  // namespace

void** take_from_ground(SizeClass size_class, SlabUser& user, void** bottom, void** top) {
  if (!ground_lock.try_lock()) return top;
  void** const end = top;
  Ended ended;
  const usize granules = granules_of(size_class);
  while (top != bottom && !state.abandoned) {
    UnitIndex unit = find_hole(granules);
    if (unit == kNoUnit && top == end) unit = look_for_holes(granules);
    if (unit != kNoUnit) {
      top = take_from(Ground(unit), size_class, bottom, top);
    } else if (top != end || !enlarge(size_class, user, ended)) {
      break;
    }
  }
  blocks_of[size_class].add_relaxed(static_cast<usize>(end - top));
  ground_lock.unlock();
  finish(ended);
  return top;
}

unsigned return_to_ground(SizeClass size_class, void* const* blocks, unsigned count) {
  const usize granules = granules_of(size_class);
  unsigned k = 0;
  do {
    Ended ended;
    {
      LockGuard guard(ground_lock);
      for (Ground ground(blocks[k]); k < count && ended.count < 8; ++k) {
        void* const block = blocks[k];
        usize granule = ground.granule_of(block);
        if (granule >= ground.granules()) {
          if (!is_on_ground(block)) break;
          ground = Ground(block);
          granule = ground.granule_of(block);
        }
        if (address_of(block) % kGranule != 0) fail_block("invalid free", block, class_info(size_class).bytes);
        end_if_free(ground, put_back(ground, granule, granules), ended);
      }
    }
    finish(ended);
  } while (k < count && is_on_ground(blocks[k]));
  blocks_of[size_class].sub_relaxed(k);
  return k;
}

void collect_from_words(UnitIndex unit) {
  Ended ended;
  {
    LockGuard guard(ground_lock);
    if (tag_of(unit) == kTagGround) collect(Ground(unit), ended);
  }
  finish(ended);
}

GroundBlock find_on_ground(const void* pointer) {
  see_ground(unit_of(pointer));
  const Ground ground(pointer);
  const usize granule = ground.granule_of(pointer);
  const usize behind_start = Ground::behind_last(ground.starts, granule + 1);
  if (behind_start == 0) return {};
  const usize last = ground.next(ground.lasts, behind_start - 1);
  if (last < granule || last == ground.granules()) return {};
  return {ground.at(behind_start - 1), (last - behind_start + 2) * kGranule};
}

SlabPlace place_on_ground(SizeClass size_class, const void* pointer) {
  return class_on_ground(pointer) == size_class ? SlabPlace::used_block : SlabPlace::no_block;
}

usize ground_units_at(UnitIndex unit) { return record_of(unit).run_units; }

usize blocks_on_ground(SizeClass size_class) { return blocks_of[size_class].load_relaxed(); }

GroundUse ground_use() {
  GroundUse use = {units_to_bytes(units_of_ground.load_relaxed()), 0};
  if (use.bytes == 0) return use;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) use.used_bytes += blocks_of[c].load_relaxed() * class_info(c).bytes;
  use.used_bytes = min_of(use.used_bytes, use.bytes);
  return use;
}

// The whole pages that lie in holes, as bits.
static u64 pages_in_holes(const Ground& ground, usize page) {
  u64 pages = 0;
  ground.for_each_hole([&](usize from, usize length) {
    const usize first = (from * kGranule + page - 1) / page, end = (from + length) * kGranule / page;
    if (first < end) pages |= low_mask(static_cast<unsigned>(end)) & ~low_mask(static_cast<unsigned>(first));
  });
  return pages;
}

usize purge_ground(UnitIndex unit, WentBack why) {
  if (purges_pause()) return 0;
  const usize page = os::page_bytes();
  u64 pages = 0;
  {
    LockGuard guard(ground_lock);
    if (tag_of(unit) != kTagGround || state.abandoned) return 0;
    const Ground ground(unit);
    if (ground.first != unit || ground.facts().hole_at == kUnlisted) return 0;
    if (ground.granules() * kGranule % page != 0) return 0;  // a page that reaches into neighbours is not ours to purge
    u64 look = 1;
    for (usize w = 0; w < ground.words; ++w) look = (look ^ ground.starts[w].load_relaxed()) * 0x9E3779B97F4A7C15u + 1;
    if (__atomic_exchange_n(&ground.head->last_look, look, __ATOMIC_RELAXED) == look) return 0;
    pages = pages_in_holes(ground, page);
    if (pages == 0) return 0;
    leave_list(ground);  // nobody takes from it while the kernel does
    ground.facts().hole = 0;
    ground.facts().hole_at = kUnlisted;
  }
  usize purged = 0;
  for (u64 left = pages; left != 0 && !purges_pause();) {
    const unsigned first = lowest_bit(left), count = trailing_ones(left >> first);
    if (purge_range(unit_address(unit) + first * page, count * page, why)) purged += count * page;
    left &= ~(low_mask(count) << first);
  }
  Ended ended;
  {
    LockGuard guard(ground_lock);
    const Ground ground(unit);
    ground.facts().hole_at = kNoHole;
    end_if_free(ground, look_for_hole(ground), ended);
  }
  finish(ended);
  return purged;
}

bool ground_is_valid() {
  {
    LockGuard guard(ground_lock);
    if (state.abandoned) return true;
  }
  bool valid = true;
  for (UnitIndex unit = region.heap_start; unit < region.frontier.load_acquire(); ++unit) {
    if (tag_of(unit) != kTagGround) continue;
    const Ground ground(unit);
    usize end = 0;
    for (usize at = 0; (at = ground.next(ground.starts, at)) != ground.granules(); ++at) {
      const SizeClass size_class = class_on_ground(ground.at(at));
      if (at < end || size_class == 0 || size_class > kLastSmallClass) valid = false;
      end = at + granules_of(size_class);
      if (end > ground.granules() || granules_of(size_class) * kGranule != class_info(size_class).bytes) valid = false;
    }
    unit = ground.first + static_cast<UnitIndex>(ground.words / kWordsPerUnit) - 1;
  }
  return valid;
}

void repair_ground_in_child(Cut cut) {
  if (!ground_lock.seize_in_child(cut)) return;
  state.abandoned = true;
  ground_lock.unlock();
}

}  // namespace freestone
