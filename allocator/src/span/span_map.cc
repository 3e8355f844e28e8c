// Room 6, span: see span_map.h.

#include "span/span_map.h"

#include "base/check.h"
#include "config/build_config.h"
#include "policy/policy.h"

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

FREESTONE_FAR u64 dirty_supers[2][(kSupersMax + 63) / 64] FREESTONE_GUARDED_BY(span_lock);

u64& dirty_of_age(unsigned age, usize word) FREESTONE_REQUIRES(span_lock) {
  return super_at(word / kSuperGroups).dirty_units[age][word % kSuperGroups];
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

// SPAN-3, of one word; whether the bit of its super is set where it must be.
bool is_marked_above(unsigned age, usize word) FREESTONE_REQUIRES(span_lock) {
  const usize super = word / kSuperGroups;
  const bool any = dirty_of_age(age, word) != 0;
  if (any != ((super_at(super).dirty_groups[age] & bit(word % kSuperGroups)) != 0)) return false;
  return !any || (dirty_supers[age][super / 64] & bit(super % 64)) != 0;
}

// SPAN-1, of one word.
bool is_consistent(usize word) FREESTONE_REQUIRES(span_lock) {
  const u64 old = dirty_of_age(0, word);
  const u64 young = dirty_of_age(1, word);
  return (old & young) == 0 && ((old | young) & ~super_at(word / kSuperGroups).free_units[word % kSuperGroups]) == 0;
}

}  // namespace

u64 SpanMap::dirty_word(usize word) const { return dirty_of_age(0, word) | dirty_of_age(1, word); }

void SpanMap::set_dirty(usize word, u64 mask) {
  const usize super = word / kSuperGroups;
  dirty_of_age(younger_, word) |= mask;
  super_at(super).dirty_groups[younger_] |= bit(word % kSuperGroups);
  dirty_supers[younger_][super / 64] |= bit(super % 64);
}

void SpanMap::clear_dirty(usize word, u64 mask) {
  const usize super = word / kSuperGroups;
  for (unsigned age = 0; age < 2; ++age) {
    u64& dirty = dirty_of_age(age, word);
    if ((dirty &= ~mask) != 0) continue;
    u64& groups = super_at(super).dirty_groups[age];
    if ((groups &= ~bit(word % kSuperGroups)) == 0) dirty_supers[age][super / 64] &= ~bit(super % 64);
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
  mark_free(first, units, false);
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
  usize dirty = 0;
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    dirty += count_bits(dirty_word(word) & mask);
  });
  return dirty;
}

void SpanMap::mark_free(UnitIndex first, usize units, bool dirty) {
  for_words(first, units, [&](usize word, u64 mask) FREESTONE_REQUIRES(span_lock) {
    FREESTONE_CHECK("SPAN-2", (storage.free_word(word) & mask) == 0);
    if (dirty) set_dirty(word, mask);
    order_stores();  // SPAN-4
    FREESTONE_CHECK("SPAN-4", !dirty || (dirty_word(word) & mask) == mask);
    storage.free_word(word) |= mask;
    FREESTONE_CHECK("SPAN-1", is_consistent(word));
    FREESTONE_CHECK("SPAN-3", is_marked_above(0, word) && is_marked_above(1, word));
  });
  tree_.note_changed(first / kWordUnits, (first + units - 1) / kWordUnits);
  free_count_ += units;
  if (dirty) dirty_count_ += units;
}

usize SpanMap::mark_taken(UnitIndex first, usize units) {
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
    FREESTONE_CHECK("SPAN-3", is_marked_above(0, word) && is_marked_above(1, word));
  });
  tree_.note_changed(first / kWordUnits, (first + units - 1) / kWordUnits);
  free_count_ -= units;
  dirty_count_ -= dirty;
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

UnitIndex SpanMap::take_oldest_dirty(usize& units, usize& dirty) {
  if (dirty_count_ == 0) return kNoUnit;
  const usize last = region.frontier.load_relaxed() / kWordUnits / kSuperGroups / 64;
  usize supers = last + 1;
  for (;;) {
    while (supers > 0 && dirty_supers[younger_ ^ 1][supers - 1] == 0) --supers;
    if (supers > 0) break;
    younger_ ^= 1;
    supers = last + 1;
  }
  const unsigned age = younger_ ^ 1;
  const usize super = (supers - 1) * 64 + highest_bit(dirty_supers[age][supers - 1]);
  const usize word = super * kSuperGroups + highest_bit(super_at(super).dirty_groups[age]);
  const u64 older = dirty_of_age(age, word);
  const unsigned top = highest_bit(older);
  const u64 guards = kMitigations.guards ? guards_among(word, storage.free_word(word), older, top) : 0;
  const u64 below = ~(older | guards) & low_mask(top);  // the highest unit under the stretch that is neither
  unsigned bottom = below == 0 ? 0 : highest_bit(below) + 1;
  u64 stretch = older & low_mask(top + 1) & ~low_mask(bottom);
  while (count_bits(stretch) > units) stretch &= stretch - 1;
  bottom = lowest_bit(stretch);
  units = top + 1 - bottom;
  const auto first = static_cast<UnitIndex>(word * kWordUnits + bottom);
  dirty = mark_taken(first, units);
  return first;
}

void SpanMap::count_anew() {
  free_count_ = dirty_count_ = 0;
  const usize end = (region.frontier.load_relaxed() + kWordUnits - 1) / kWordUnits;
  for (usize word = region.heap_start / kWordUnits; word < end; ++word) {
    const u64 dirty = dirty_word(word) & storage.free_word(word);
    clear_dirty(word, ~u64{0});
    if (dirty != 0) set_dirty(word, dirty);
    free_count_ += count_bits(storage.free_word(word));
    dirty_count_ += count_bits(dirty);
  }
  tree_.rebuild();
}

bool SpanMap::is_valid() {
  usize free_units = 0;
  usize dirty_units = 0;
  const usize end = (region.frontier.load_relaxed() + kWordUnits - 1) / kWordUnits;
  for (usize word = region.heap_start / kWordUnits; word < end; ++word) {
    if (!is_consistent(word) || !is_marked_above(0, word) || !is_marked_above(1, word)) return false;
    free_units += count_bits(storage.free_word(word));
    dirty_units += count_bits(dirty_word(word));
  }
  return free_units == free_count_ && dirty_units == dirty_count_ && tree_.is_valid();
}

}  // namespace freestone
