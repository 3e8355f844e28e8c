// Room 6, span: see span_map.h.

#include "span/span_map.h"

#include <utility>

#include "base/check.h"
#include "config/build_config.h"
#include "policy/policy.h"
#include "region/account.h"

namespace freestone {

constinit SpanMap span_map;

namespace {

constexpr usize kSupersMax = kWindowBytes >> (kUnitShift + kWordShift + 2 * kFanShift);

// The nodes above the supers, the root first: a small heap touches one page of them.
constexpr unsigned kSuperLevel = 2;
constexpr unsigned levels_for(usize supers) {
  return supers <= 1 ? kSuperLevel : 1 + levels_for((supers + kFan - 1) / kFan);
}
constexpr unsigned kLevels = levels_for(kSupersMax);
constexpr usize nodes_at(unsigned level) { return max_of<usize>(1, kSupersMax >> (kFanShift * (level - kSuperLevel))); }
constexpr usize nodes_above(unsigned level) {
  return level == kLevels ? 0 : nodes_at(level + 1) + nodes_above(level + 1);
}
FREESTONE_FAR FreeSummary upper_nodes[nodes_above(kSuperLevel)] FREESTONE_GUARDED_BY(span_lock);

FREESTONE_FAR u64 dirty_supers[kDirtySets][(kSupersMax + 63) / 64] FREESTONE_GUARDED_BY(span_lock);

u64& dirty_in(unsigned set, usize word) FREESTONE_REQUIRES(span_lock) {
  return super_at(word / kSuperGroups).dirty_units[set][word % kSuperGroups];
}

// Applies `visit(word, mask)` to every word that the units touch.
template <typename Visit>
void for_words(UnitIndex first, usize units, Visit visit) FREESTONE_REQUIRES(span_lock) {
  usize unit = first;
  const usize end = unit + units;
  while (unit < end) {
    const unsigned from = unit % kWordUnits;
    const auto count = static_cast<unsigned>(min_of<usize>(kWordUnits - from, end - unit));
    visit(unit / kWordUnits, low_mask(count) << from);
    unit += count;
  }
}

constexpr HeapStorage storage;

// SPAN-3, of one word; whether the bits of its super are set where they must be.
bool is_marked_above(usize word) FREESTONE_REQUIRES(span_lock) {
  const usize super = word / kSuperGroups;
  for (unsigned set = 0; set < kDirtySets; ++set) {
    const bool any = dirty_in(set, word) != 0;
    if (any != ((super_at(super).dirty_groups[set] & bit(word % kSuperGroups)) != 0)) return false;
    if (any && (dirty_supers[set][super / 64] & bit(super % 64)) == 0) return false;
  }
  return true;
}

// SPAN-1, of one word.
bool is_consistent(usize word) FREESTONE_REQUIRES(span_lock) {
  u64 seen = ~super_at(word / kSuperGroups).free_units[word % kSuperGroups];
  for (unsigned set = 0; set < kDirtySets; ++set) {
    if ((dirty_in(set, word) & seen) != 0) return false;
    seen |= dirty_in(set, word);
  }
  return true;
}

// Spreads bits over the pages of `page_units` that they lie in: to pages with any bit, or with all.
u64 pages_with_any(u64 bits, unsigned page_units) {
  const u64 first_of_pages = ~u64{0} / low_mask(page_units);
  for (unsigned by = 1; by < page_units; by *= 2) bits |= bits >> by;
  return (bits & first_of_pages) * low_mask(page_units);
}
u64 pages_with_all(u64 bits, unsigned page_units) { return ~pages_with_any(~bits, page_units); }

}  // namespace

u64 SpanMap::dirty_word(usize word) const { return dirty_in(0, word) | dirty_in(1, word) | dirty_in(2, word); }

void SpanMap::set_dirty(usize word, u64 mask, unsigned set) {
  const usize super = word / kSuperGroups;
  dirty_in(set, word) |= mask;
  super_at(super).dirty_groups[set] |= bit(word % kSuperGroups);
  dirty_supers[set][super / 64] |= bit(super % 64);
  counts_[set] += count_bits(mask);
}

void SpanMap::clear_dirty(usize word, u64 mask) {
  const usize super = word / kSuperGroups;
  for (unsigned set = 0; set < kDirtySets; ++set) {
    u64& dirty = dirty_in(set, word);
    counts_[set] -= count_bits(dirty & mask);
    if ((dirty &= ~mask) != 0) continue;
    u64& groups = super_at(super).dirty_groups[set];
    if ((groups &= ~bit(word % kSuperGroups)) == 0) dirty_supers[set][super / 64] &= ~bit(super % 64);
  }
}

FreeSummary& HeapStorage::node(unsigned level, usize index) const {
  switch (level) {
    case 0: return super_at(index / kSuperGroups).free_in_group[index % kSuperGroups];
    case 1: return super_at(index / kFan).free_in_octet[index % kFan];
    case kSuperLevel: return super_at(index).free_in_super;
    default: return upper_nodes[nodes_above(level) + index];
  }
}

usize HeapStorage::step(unsigned level) const { return level == kSuperLevel ? kSuperStride : sizeof(FreeSummary); }

void SpanMap::add(UnitIndex first, usize units) {
  tree_.cover(region.heap_start, first + units);
  added_ += units;
  note_in_force(units_to_bytes(units));
  set_free(first, units, false);
}

void SpanMap::free_anew(UnitIndex first, usize units) {
  tree_.cover(region.heap_start, first + units);
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) { storage.free_word(word) |= mask; });
}

UnitIndex SpanMap::find(usize units, usize alignment) {
  constexpr usize kNone = FreeTree<HeapStorage>::kNone;
  const auto found = [](usize unit) { return unit == kNone ? kNoUnit : static_cast<UnitIndex>(unit); };
  const auto aligned = [&] { return tree_.find_aligned(highest_bit(alignment)); };
  if (alignment == 1) return found(tree_.find(units));
  if (units == alignment && units <= kWordUnits) return found(aligned());
  // Neither is frequent. The lowest stretch of the length may lie well by chance; a longer one always does.
  usize unit = tree_.find(units);
  if (unit == kNone || unit % alignment == 0) return found(unit);
  unit = units < alignment && alignment <= kWordUnits ? aligned() : tree_.find(units + alignment - 1);
  return unit == kNone ? kNoUnit : static_cast<UnitIndex>(round_up(unit, alignment));
}

bool SpanMap::are_free(UnitIndex first, usize units) const {
  bool all = true;
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    all = all && (storage.free_word(word) & mask) == mask;
  });
  return all;
}

usize SpanMap::count_dirty(UnitIndex first, usize units) const {
  if (dirty_units() == 0) return 0;
  usize dirty = 0;
  for_words(first, units,
            [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) { dirty += count_bits(dirty_word(word) & mask); });
  return dirty;
}

i64 SpanMap::dirty_bits(UnitIndex first, usize units) const {
  u64 bits = 0;
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    const u64 dirty = dirty_word(word) & mask;
    const usize start = word * kWordUnits;
    if (start <= first) {
      bits |= dirty >> (first - start);
    } else if (start - first < 63) {
      bits |= dirty << (start - first);
      if (dirty >> (kWordUnits - (start - first)) != 0) bits |= bit(63);
    } else if (dirty != 0) {
      bits |= bit(63);
    }
  });
  return static_cast<i64>(bits);
}

void SpanMap::set_free_in(UnitIndex first, usize units, bool dirty, unsigned set) {
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    FREESTONE_CHECK("SPAN-2", (storage.free_word(word) & mask) == 0);
    if (dirty) set_dirty(word, mask, set);
    order_stores();  // SPAN-4
    FREESTONE_CHECK("SPAN-4", !dirty || (dirty_word(word) & mask) == mask);
    storage.free_word(word) |= mask;
    FREESTONE_CHECK("SPAN-1", is_consistent(word));
    FREESTONE_CHECK("SPAN-3", is_marked_above(word));
  });
  tree_.note_changed(first / kWordUnits, (first + units - 1) / kWordUnits);
  free_count_ += units;
  if (!dirty) note_out_of_force(units_to_bytes(units));
}

usize SpanMap::set_taken(UnitIndex first, usize units) {
  usize dirty = 0;
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    FREESTONE_CHECK("SPAN-2", (storage.free_word(word) & mask) == mask);
    storage.free_word(word) &= ~mask;
    order_stores();  // SPAN-4
    if (const u64 gone = dirty_word(word) & mask; gone != 0) {
      dirty += count_bits(gone);
      clear_dirty(word, gone);
    }
    FREESTONE_CHECK("SPAN-1", is_consistent(word));
    FREESTONE_CHECK("SPAN-3", is_marked_above(word));
  });
  tree_.note_changed(first / kWordUnits, (first + units - 1) / kWordUnits);
  free_count_ -= units;
  note_in_force(units_to_bytes(units - dirty));
  return dirty;
}

// Those of the free units of `word` below `top` that are guards, in one piece with what is dirty above them. A free
// unit's tag changes only while somebody has taken it.
[[maybe_unused]] static u64 guards_among(usize word, u64 free, u64 dirty, unsigned top) {
  u64 guards = 0;
  for (unsigned at = top; at-- > 0 && (free >> at & 1) != 0;) {
    if ((dirty >> at & 1) != 0) continue;
    if (tag_of(static_cast<UnitIndex>(word * kWordUnits + at)) != kTagGuard) break;
    guards |= bit(at);
  }
  return guards;
}

bool SpanMap::find_older() {
  if (counts_[older_] != 0) return true;
  if (retries_) {
    retries_ = false;
    std::swap(older_, refused_);
  }
  if (counts_[older_] == 0) {
    make_older();
    age_changed_ = true;
  }
  return counts_[older_] != 0;
}

SpanMap::DirtyStretch SpanMap::take_oldest_dirty(usize units, unsigned page_units) {
  while (find_older()) {
    usize supers = (region.frontier.load_relaxed() - 1) / kWordUnits / kSuperGroups / 64;
    while (dirty_supers[older_][supers] == 0) --supers;
    const usize super = supers * 64 + highest_bit(dirty_supers[older_][supers]);
    const usize word = super * kSuperGroups + highest_bit(super_at(super).dirty_groups[older_]);
    const u64 older = dirty_in(older_, word);
    const u64 may_go = older & pages_with_all(storage.free_word(word), page_units);
    if (may_go != older) {
      clear_dirty(word, older & ~may_go);
      set_dirty(word, older & ~may_go, refused_);
    }
    if (may_go == 0) continue;
    const u64 pages = pages_with_any(may_go, page_units);
    const unsigned top = highest_bit(pages);
    const u64 guards = kMitigations.guards ? guards_among(word, storage.free_word(word), may_go, top) : 0;
    const u64 below = ~(pages | guards) & low_mask(top);  // the highest unit under the stretch that is neither
    unsigned bottom = below == 0 ? 0 : highest_bit(below) + 1;
    u64 stretch = pages & low_mask(top + 1) & ~low_mask(bottom);
    while (count_bits(stretch) > max_of<usize>(units, page_units))
      stretch &= ~(low_mask(page_units) << lowest_bit(stretch));
    bottom = lowest_bit(stretch);
    const DirtyStretch taken{static_cast<UnitIndex>(word * kWordUnits + bottom), top + 1 - bottom,
                             (dirty_word(word) >> bottom) & low_mask(top + 1 - bottom)};
    set_taken(taken.first, taken.units);
    return taken;
  }
  return {};
}

void SpanMap::put_back(const DirtyStretch& stretch, bool refused) {
  for (unsigned from = 0; from < stretch.units;) {
    const bool dirty = (stretch.dirty >> from & 1) != 0;
    const u64 others = (dirty ? ~stretch.dirty : stretch.dirty) & ~low_mask(from);
    const unsigned to = others == 0 ? 64 : lowest_bit(others);
    const unsigned end = min_of(to, static_cast<unsigned>(stretch.units));
    set_free_in(stretch.first + from, end - from, dirty, refused ? refused_ : older_);
    from = end;
  }
}

FREESTONE_SLOW void SpanMap::count_anew() {
  younger_ = 0;  // they may have been changing their roles
  older_ = 1;
  refused_ = 2;
  retries_ = false;
  free_count_ = 0;
  usize dirty_count = 0;
  added_ = added_units();
  const usize end = (region.frontier.load_relaxed() + kWordUnits - 1) / kWordUnits;
  for (usize word = region.heap_start / kWordUnits; word < end; ++word) {
    const u64 dirty = dirty_word(word) & storage.free_word(word);
    clear_dirty(word, ~u64{0});
    if (dirty != 0) set_dirty(word, dirty, younger_);
    dirty_count += count_bits(dirty);
    free_count_ += count_bits(storage.free_word(word));
  }
  counts_[older_] = counts_[refused_] = 0;
  counts_[younger_] = dirty_count;
  tree_.rebuild();
}

FREESTONE_SLOW bool SpanMap::is_valid() {
  usize free_units = 0;
  usize counts[kDirtySets] = {};
  const usize end = (region.frontier.load_relaxed() + kWordUnits - 1) / kWordUnits;
  for (usize word = region.heap_start / kWordUnits; word < end; ++word) {
    if (!is_consistent(word) || !is_marked_above(word)) return false;
    free_units += count_bits(storage.free_word(word));
    for (unsigned set = 0; set < kDirtySets; ++set) counts[set] += count_bits(dirty_in(set, word));
  }
  for (unsigned set = 0; set < kDirtySets; ++set) {
    if (counts[set] != counts_[set]) return false;
  }
  return free_units == free_count_ && tree_.is_valid();
}

}  // namespace freestone
