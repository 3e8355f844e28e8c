// Room 6, span: see run.h.

#include "span/run.h"

#include <cstring>

#include "base/bits.h"
#include "config/options.h"
#include "platform/os.h"
#include "policy/policy.h"
#include "region/account.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

constexpr usize kUnitsMin = (kCachedBytesMax >> kUnitShift) + 1;
constexpr usize kUnitsMax = kSharedRunBytesMax >> kUnitShift;
constexpr unsigned kSlots = highest_bit(kUnitsMax - 1) - highest_bit(kUnitsMin - 1) + 1;
constexpr unsigned kSets = 4;
static_assert(kSets * 2 * kSharedRunBytesMax <= 8 * kMiB && kSlots == 3, "slots of 1/4, 1/2 and 1 MiB in each set");

// A slot holds first | units << 32 | time << 48 in one word, so that they are exchanged together; 0: empty. The time is
// in steps of kStampMs.
struct alignas(64) Set {
  Atomic<u64> slot[kSlots];
};
Set sets[kSets];
constexpr u64 kStampMs = 64;
constexpr unsigned kStampShift = 48;

// Slots of class runs and slabs, for each length.
constexpr usize kClassUnitsMax = kCachedBytesMax >> kUnitShift;
constexpr unsigned kClassSlots = 8;
struct alignas(64) ClassSlots {
  Atomic<u64> slot[kClassSlots];
};
ClassSlots class_slots[kSets * kClassUnitsMax];
// The number of those for a length, and of their bit in class_runs_kept.
unsigned class_row(unsigned shard, usize units) {
  return static_cast<unsigned>(shard % kSets * kClassUnitsMax + units - 1);
}

Atomic<usize> runs_taken;  // relaxed: statistics; from the span heap, so those in slots are included
Atomic<usize> units_taken;

usize units_of(u64 slot) { return slot >> 32 & low_mask(kStampShift - 32); }
UnitIndex first_of(u64 slot) { return static_cast<UnitIndex>(slot); }
Atomic<u64>& slot_for(unsigned shard, usize units) {
  return sets[shard % kSets].slot[highest_bit(units - 1) - highest_bit(kUnitsMin - 1)];
}

// Whether a free run is zero (HARD-2).
bool is_emptied(UnitIndex first) { return kMitigations.zero_on_free && record_of(first).run_state != RunState::used; }

void end_run(UnitIndex first, usize units) {
  runs_taken.sub_relaxed(1);
  units_taken.sub_relaxed(units);
  set_tags(first, units, kTagNone);
}

// What was cleared keeps its memory.
void return_to_spans(UnitIndex first, usize units) {
  const usize bytes = units_to_bytes(units);
  const bool is_zero = is_emptied(first);
  if (is_zero) expect_run_clear(unit_address(first), bytes);
  end_run(first, units);
  const usize guard = guards_spans() ? 1 : 0;
  if (is_zero) return return_guarded_span(first, units, guard, true);
  return_used_span(first, units, guard);
}

UnitIndex begin_run(const Span& span, usize units) {
  if (span.first == kNoUnit) return kNoUnit;
  set_tag(span.first, kTagRun);
  set_tags(span.first + 1, units - 1, kTagInside);
  runs_taken.add_relaxed(1);
  units_taken.add_relaxed(units);
  record_of(span.first).run_units = static_cast<u32>(units);
  if constexpr (kMitigations.zero_on_free) record_of(span.first).run_state = RunState::fresh;
  return span.first;
}

void evict(u64 slot) {
  if (slot != 0) return_to_spans(first_of(slot), units_of(slot));
}

// Needs no look at the clock. A run may go a tick early.
u64 stamped(UnitIndex first, usize units) {
  return u64{first} | u64{units} << 32 | worked_ms.load_relaxed() / kStampMs << kStampShift;
}

bool is_old(u64 slot, u64 now) {
  const u64 age = (now - (slot >> kStampShift)) & low_mask(64 - kStampShift);
  return slot != 0 && age * kStampMs >= options.dirty_decay_ms / 2;
}

template <typename Visit>
void for_class_slots(u64 rows, Visit visit) {
  for (; rows != 0; rows &= rows - 1) {
    for (Atomic<u64>& slot : class_slots[lowest_bit(rows)].slot) visit(slot);
  }
}

void empty_slot(Atomic<u64>& slot) {
  const u64 run = slot.exchange_seq(0);
  kept_units.sub_relaxed(units_of(run));
  evict(run);
}

template <typename Visit>
void for_run_slots(Visit visit) {
  for (Set& set : sets) {
    for (Atomic<u64>& slot : set.slot) visit(slot);
  }
}

void evict_class_run(Atomic<u64>& slot) {
  // Seq, as both steps of keep_class_run: either this sees the run, or that sees the bit cleared and sets it.
  const u64 run = slot.load_seq() != 0 ? slot.exchange_seq(0) : 0;
  if (run == 0) return;
  kept_units.sub_relaxed(units_of(run));
  return_span(first_of(run), units_of(run), true);
}

// Whether slots may hold so many units more: a share of the heap, as caches have. None where options give free memory
// back at once.
bool fits_share(usize units) {
  return options.dirty_decay_ms != 0 && options.dirty_bytes != 0 &&
         units_to_bytes(kept_units.load_relaxed() + units) <= account.charged.load_relaxed() / kCacheHeapDivisor;
}

void put_away(unsigned shard, UnitIndex first, usize units) {
  if (!is_kept_run(units_to_bytes(units)) || !fits_share(units)) return return_to_spans(first, units);
  kept_units.add_relaxed(units);
  const u64 old = slot_for(shard, units).exchange_seq(stamped(first, units));
  kept_units.sub_relaxed(units_of(old));
  evict(old);
}

// A kept run of exactly this length. One of another length leaves its slot, so that the next run of this length is
// kept.
UnitIndex pop(unsigned shard, usize units) {
  Atomic<u64>& slot = slot_for(shard, units);
  if (slot.load_relaxed() == 0) return kNoUnit;
  const u64 run = slot.exchange_seq(0);
  kept_units.sub_relaxed(units_of(run));
  if (FREESTONE_LIKELY(units_of(run) == units)) return first_of(run);
  evict(run);
  return kNoUnit;
}

}  // namespace

UnitIndex take_run(unsigned shard, usize units, usize alignment, bool& zeroed) {
  const usize bytes = units_to_bytes(units);
  UnitIndex first = alignment == 1 && is_kept_run(bytes) ? pop(shard, units) : kNoUnit;
  zeroed = false;
  if (first == kNoUnit) {
    const Span span = take_guarded_span(units, alignment, guards_spans() ? 1 : 0);
    zeroed = span.zeroed;
    return begin_run(span, units);
  }
  record_of(first).run_units = static_cast<u32>(units);
  zeroed = is_emptied(first);  // whoever hands it out checks that
  return first;
}

UnitIndex take_run_to_grow(usize units) { return begin_run(take_span_to_grow(units, 2 * units), units); }

bool return_run(unsigned shard, UnitIndex first) {
  const u32 units = record_of(first).run_units;
  if (units == 0) return false;
  record_of(first).run_units = 0;
  put_away(shard, first, units);
  return true;
}

void move_run(UnitIndex first, void* to) {
  constexpr usize kPiece = 256 * kKiB;
  const u32 units = record_of(first).run_units;
  record_of(first).run_units = 0;
  char* const from = unit_address(first);
  bool emptied = true;
  for (usize at = 0; at < units_to_bytes(units); at += kPiece) {
    const usize bytes = min_of(kPiece, units_to_bytes(units) - at);
    std::memcpy(static_cast<char*>(to) + at, from + at, bytes);
    emptied &= purge_range(from + at, bytes, WentBack::surplus);
  }
  end_run(first, units);
  return_span(first, units, !emptied);
}

void seal_run(UnitIndex first) {
  runs_taken.sub_relaxed(1);
  units_taken.sub_relaxed(run_units(first));
  seal_span(first, run_units(first));
}

void return_sealed_run(UnitIndex first) {
  const u32 units = record_of(first).run_units;
  record_of(first).run_units = 0;
  return_sealed_span(first, units);
}

void hold_run(HeldRun& held, unsigned shard, UnitIndex first) {
  const UnitIndex old_first = held.first;
  const u32 old_units = held.units.load_relaxed();
  held.units.store_release(0);
  held.put(first, record_of(first));
  if (old_units != 0) put_away(shard, old_first, old_units);
}

void release_held_run(HeldRun& held) {
  const u32 units = held.units.load_relaxed();
  if (units == 0) return;
  held.units.store_release(0);
  return_to_spans(held.first, units);
}

bool resize_run(UnitIndex first, usize units) {
  const usize old = run_units(first);
  if (units > old) {
    if (!extend_guarded_span(first, old, units - old, guards_spans() ? 1 : 0)) return false;
    set_tags(first + static_cast<UnitIndex>(old), units - old, kTagInside);
    units_taken.add_relaxed(units - old);
  } else if (units < old) {
    if constexpr (kMitigations.guards) return false;  // hardened/large.cc makes the pages behind fault
    const auto tail = first + static_cast<UnitIndex>(units);
    set_tags(tail, old - units, kTagNone);
    units_taken.sub_relaxed(old - units);
    return_used_span(tail, old - units, 0);
  }
  record_of(first).run_units = static_cast<u32>(units);
  return true;
}

constinit Atomic<u32> class_runs_kept;  // a bit for each row of slots: set where it may hold a run
static_assert(kSets * kClassUnitsMax <= 32);

bool keep_class_run(unsigned shard, UnitIndex first, usize units) {
  const usize kept = kept_units.load_relaxed() + units;
  if (options.dirty_decay_ms == 0 || units_to_bytes(kept) > options.dirty_bytes || kept > keepable_units.load_relaxed())
    return false;
  const u64 run = stamped(first, units);
  const unsigned row = class_row(shard, units);
  for (Atomic<u64>& slot : class_slots[row].slot) {
    u64 empty = 0;
    if (slot.load_relaxed() != 0) continue;
    kept_units.add_relaxed(units);
    if (slot.replace_seq(empty, run)) {
      if ((class_runs_kept.load_seq() & bit(row)) == 0) class_runs_kept.or_seq(static_cast<u32>(bit(row)));
      return true;
    }
    kept_units.sub_relaxed(units);
  }
  return false;
}

UnitIndex take_kept_class_run(unsigned shard, usize units, usize alignment) {
  const unsigned row = class_row(shard, units);
  if ((class_runs_kept.load_relaxed() & bit(row)) == 0) return kNoUnit;
  for (Atomic<u64>& slot : class_slots[row].slot) {
    u64 run = slot.load_relaxed();
    if (run == 0 || first_of(run) % alignment != 0 || !slot.replace_seq(run, 0)) continue;
    kept_units.sub_relaxed(units);
    return first_of(run);
  }
  return kNoUnit;
}

void release_class_runs() {
  if (class_runs_kept.load_relaxed() == 0) return;
  for_class_slots(class_runs_kept.exchange_seq(0), evict_class_run);
}

void flush_runs() {
  release_class_runs();
  for_run_slots(empty_slot);
}

void release_old_runs() {
  if (kept_units.load_relaxed() == 0) return;
  const u64 now = worked_ms.load_relaxed() / kStampMs;
  for_run_slots([now](Atomic<u64>& slot) {
    if (is_old(slot.load_relaxed(), now)) empty_slot(slot);
  });
  for_class_slots(class_runs_kept.load_relaxed(), [now](Atomic<u64>& slot) {
    if (is_old(slot.load_relaxed(), now)) evict_class_run(slot);
  });
}

RunCounts run_counts() {
  usize cached = 0;
  usize cached_units = 0;
  const auto count = [&](const Atomic<u64>& slot) {
    const u64 run = slot.load_relaxed();
    cached += run != 0 ? 1 : 0;
    cached_units += units_of(run);
  };
  for_run_slots(count);
  const usize runs = runs_taken.load_relaxed();
  const usize units = units_taken.load_relaxed();
  usize class_units = 0;
  for_class_slots(class_runs_kept.load_relaxed(),
                  [&](const Atomic<u64>& slot) { class_units += units_of(slot.load_relaxed()); });
  return {runs, runs - min_of(runs, cached), units_to_bytes(units - min_of(units, cached_units)),
          units_to_bytes(cached_units + class_units)};
}

}  // namespace freestone
