// Room 6, span: see span_heap.h.

#include "span/span_heap.h"

#include <cstring>

#include "base/bits.h"
#include "config/options.h"
#include "platform/os.h"
#include "region/account.h"

namespace freestone {

constinit Mutex span_lock;

namespace {

constexpr unsigned kWordUnits = kGroupUnits;
constexpr usize kInWordMax = 16;      // spans up to here are sought inside one word
constexpr unsigned kHintCount = 5;    // one search start per power of two up to kInWordMax
constexpr unsigned kDecayTicks = 16;  // decay steps per half-life
constexpr u32 kClockEvery = 32;       // operations between two looks at the clock

constexpr usize kPageBytes = 4 * kKiB;
constexpr usize kUnitPages = kUnitBytes / kPageBytes;

// All guarded by span_lock.
struct State {
  usize search_start[kHintCount] = {};  // no word below has a run of this length; 0 means unset
  usize backed_top = 0;                // no word above has a backed unit
  usize unmeasured_low = ~usize{0};            // no word outside [low, high] has a backed unit that is not measured
  usize unmeasured_high = 0;
  usize free_count = 0;
  usize dirty_count = 0;
  usize backed_pages = 0;     // SPAN-4
  usize backed_low_water = 0; // the least backed_pages since the last decay step: memory that nobody needed
  usize purged_pages = 0;     // went back for exceeding the watermark, not long ago
  usize regretted_pages = 0;  // of these, taken again since: the watermark is higher by them
  u64 last_decay_ms = 0;
  u32 operations = 0;
  bool purge_refused = false;    // the kernel keeps pages (locked memory): do not try again until asked
  bool measure_refused = false;  // no mincore here: everything counts as resident
};
constinit State state;

Atomic<u64> purged_bytes;  // relaxed: statistics
Atomic<u64> purge_calls;

usize first_word() { return region.heap_start / kWordUnits; }
usize end_word() { return region.frontier.load_relaxed() / kWordUnits; }
u64& free_word(usize word) { return super_at(word / kSuperGroups).free_units[word % kSuperGroups]; }
u64& dirty_word(usize word) { return super_at(word / kSuperGroups).dirty_units[word % kSuperGroups]; }
u64& backed_word(usize word) { return super_at(word / kSuperGroups).backed_units[word % kSuperGroups]; }
u64& measured_word(usize word) { return super_at(word / kSuperGroups).measured_units[word % kSuperGroups]; }
u8& resident_pages(usize unit) { return super_at(unit / kWordUnits / kSuperGroups).resident_pages[unit / kWordUnits % kSuperGroups][unit % kWordUnits]; }
u8& longest(usize word) { return super_at(word / kSuperGroups).longest_free[word % kSuperGroups]; }

// The hint that is valid for runs of `units`: of the largest power of two that is no longer.
unsigned hint_of(usize units) { return highest_bit(units); }

void note_free_changed(usize word) {
  const unsigned run = longest_run(free_word(word));
  longest(word) = static_cast<u8>(run);
  for (unsigned h = 0; h < kHintCount && (1U << h) <= run; ++h) state.search_start[h] = min_of(state.search_start[h], word);
}

// Applies `change(word, mask)` to every word that the units touch.
template <typename Change>
void for_words(UnitIndex first, usize units, Change change) {
  usize unit = first;
  const usize end = unit + units;
  while (unit < end) {
    const unsigned from = unit % kWordUnits;
    const auto count = static_cast<unsigned>(min_of<usize>(kWordUnits - from, end - unit));
    change(unit / kWordUnits, low_mask(count) << from);
    unit += count;
  }
}

void mark_free(UnitIndex first, usize units, bool dirty) {
  for_words(first, units, [&](usize word, u64 mask) {
    free_word(word) |= mask;
    if (dirty) {
      dirty_word(word) |= mask;
      backed_word(word) |= mask;
      state.backed_top = max_of(state.backed_top, word);
      state.unmeasured_low = min_of(state.unmeasured_low, word);
      state.unmeasured_high = max_of(state.unmeasured_high, word);
    }
    note_free_changed(word);
  });
  state.free_count += units;
  if (dirty) {
    state.dirty_count += units;
    state.backed_pages += units * kUnitPages;
  }
}

// The pages behind the units of `mask` in one word.
usize pages_behind(usize word, u64 mask) {
  const u64 measured = measured_word(word) & mask;
  usize pages = count_bits(backed_word(word) & mask & ~measured) * kUnitPages;
  for (u64 rest = measured; rest != 0; rest &= rest - 1) pages += resident_pages(word * kWordUnits + lowest_bit(rest));
  return pages;
}

// What taking these free units adds to the account: the pages behind them are charged for already.
usize charge_for(UnitIndex first, usize units) {
  usize pages = units * kUnitPages;
  for_words(first, units, [&](usize word, u64 mask) {
    if ((backed_word(word) & mask) != 0) pages -= pages_behind(word, mask);
  });
  return pages * kPageBytes;
}

// Returns whether all of the units were clean.
bool mark_taken(UnitIndex first, usize units) {
  usize dirty = 0;
  for_words(first, units, [&](usize word, u64 mask) {
    if ((dirty_word(word) & mask) != 0) {
      dirty += count_bits(dirty_word(word) & mask);
      state.backed_pages -= pages_behind(word, mask);
      measured_word(word) &= ~mask;
      backed_word(word) &= ~mask;
      dirty_word(word) &= ~mask;
    }
    free_word(word) &= ~mask;
    note_free_changed(word);
  });
  state.free_count -= units;
  state.dirty_count -= dirty;
  state.backed_low_water = min_of(state.backed_low_water, state.backed_pages);
  // Of small spans a program reuses most; only large ones cost enough to keep memory for.
  const usize again = units > bytes_to_units(kSharedRunBytesMax) ? min_of(state.purged_pages, (units - dirty) * kUnitPages) : 0;
  state.purged_pages -= again;
  state.regretted_pages += again;
  return dirty == 0;
}

// Asks the kernel which pages of the unmeasured units of one word exist.
void measure_word(usize word) {
  const u64 unmeasured = backed_word(word) & ~measured_word(word);
  if (unmeasured == 0) return;
  const usize first = word * kWordUnits + lowest_bit(unmeasured);
  const usize end = word * kWordUnits + highest_bit(unmeasured) + 1;
  u8 present[kWordUnits * kUnitPages];
  if (os::page_bytes() != kPageBytes || os::resident_pages(unit_address(static_cast<UnitIndex>(first)), units_to_bytes(end - first), present)) {
    state.measure_refused = true;
    return;
  }
  usize absent = 0;
  for (u64 rest = unmeasured; rest != 0; rest &= rest - 1) {
    const unsigned position = lowest_bit(rest);
    const usize unit = word * kWordUnits + position;
    u32 flags;
    static_assert(sizeof flags == kUnitPages);
    std::memcpy(&flags, present + (unit - first) * kUnitPages, sizeof flags);
    const usize pages = (flags & 0x01010101U) * 0x01010101U >> 24;
    resident_pages(unit) = static_cast<u8>(pages);
    if (pages == 0) {
      backed_word(word) &= ~bit(position);
    } else {
      measured_word(word) |= bit(position);
    }
    absent += kUnitPages - pages;
  }
  state.backed_pages -= absent;
  uncharge(absent * kPageBytes);
}

// Bits at positions that are multiples of `alignment` (a power of two up to 64).
u64 aligned_positions(usize alignment) {
  if (alignment >= 64) return 1;
  return ~u64{0} / low_mask(static_cast<unsigned>(alignment));
}

UnitIndex find_in_words(usize units, usize alignment) {
  const unsigned hint = hint_of(units);
  const u64 positions = aligned_positions(alignment);
  const usize end = end_word();
  bool could_hold = false;  // a word with a long enough run at a wrong alignment: the search start may not pass it
  for (usize word = max_of(state.search_start[hint], first_word()); word < end; ++word) {
    if (longest(word) < units) continue;
    const u64 starts = run_starts(free_word(word), static_cast<unsigned>(units)) & positions;
    if (starts != 0) {
      if (!could_hold && units == usize{1} << hint) state.search_start[hint] = word;
      return static_cast<UnitIndex>(word * kWordUnits + lowest_bit(starts));
    }
    could_hold = true;
  }
  if (!could_hold && units == usize{1} << hint) state.search_start[hint] = end;
  return kNoUnit;
}

UnitIndex find_across_words(usize units, usize alignment) {
  usize run_start = 0;
  usize run = 0;
  const auto fits = [&](usize& at) {
    at = round_up(run_start, alignment);
    return at + units <= run_start + run;
  };
  usize at = 0;
  // A run that crosses words has at least (units + 1) / 2 of its units, or 16, in one of them, and starts at most one word earlier
  // than the first such word.
  const unsigned hint = hint_of(min_of((units + 1) / 2, kInWordMax));
  const usize start = max_of(state.search_start[hint], first_word() + 1) - 1;
  bool hint_found = false;
  for (usize word = start, end = end_word(); word < end; ++word) {
    if (!hint_found && longest(word) >= (1U << hint)) {
      state.search_start[hint] = word;
      hint_found = true;
    }
    const u64 bits = free_word(word);
    if (bits == 0) {
      run = 0;
      continue;
    }
    unsigned position = 0;
    while (position < kWordUnits) {
      const u64 rest = bits >> position;
      if (rest == 0) {
        run = 0;
        break;
      }
      const unsigned zeros = lowest_bit(rest);
      if (zeros > 0) run = 0;
      position += zeros;
      const u64 ones = ~(bits >> position);
      const unsigned length = min_of(ones == 0 ? 64U : lowest_bit(ones), kWordUnits - position);
      if (run == 0) run_start = word * kWordUnits + position;
      run += length;
      position += length;
      if (fits(at)) return static_cast<UnitIndex>(at);
      if (position < kWordUnits) run = 0;
    }
  }
  return kNoUnit;
}

UnitIndex find(usize units, usize alignment) {
  return units <= kInWordMax && alignment <= kWordUnits ? find_in_words(units, alignment) : find_across_words(units, alignment);
}

usize live_pages() { return ((region.frontier.load_relaxed() - region.heap_start) - state.free_count) * kUnitPages; }

usize watermark_pages() { return options.dirty_bytes / kPageBytes + live_pages() / kDirtyLiveDivisor + state.regretted_pages; }

// The highest run of backed units, at most kPurgeBytesPerCall long, taken out of the bitmaps (SPAN-2).
UnitIndex take_highest_backed(usize& units, usize& pages) {
  const usize lowest = first_word();
  for (usize word = min_of(state.backed_top, end_word() - 1);; --word) {
    const u64 backed = word >= lowest ? backed_word(word) : 0;
    if (backed != 0) {
      state.backed_top = word;
      const unsigned top = highest_bit(backed);
      unsigned bottom = top;
      const usize limit = bytes_to_units(kPurgeBytesPerCall);
      while (bottom > 0 && (backed & bit(bottom - 1)) != 0 && top - bottom + 1 < limit) --bottom;
      units = top - bottom + 1;
      const auto first = static_cast<UnitIndex>(word * kWordUnits + bottom);
      const usize before = state.backed_pages;
      mark_taken(first, units);
      pages = before - state.backed_pages;
      return first;
    }
    if (word <= lowest) return kNoUnit;
  }
}

// Gives back the memory of about `excess` pages of free units. Called without the lock. Returns the pages given.
usize purge_pages(usize excess) {
  usize done = 0;
  while (done < excess) {
    usize units = 0;
    usize pages = 0;
    span_lock.lock();
    const UnitIndex first = take_highest_backed(units, pages);
    span_lock.unlock();
    if (first == kNoUnit) break;
    // With pages larger than a unit, only whole pages inside the run can be given back; a smaller run stays dirty.
    const usize page = os::page_bytes();
    const usize from = round_up(address_of(unit_address(first)), page);
    const usize to = round_down(address_of(unit_address(first)) + units_to_bytes(units), page);
    const bool whole = from == address_of(unit_address(first)) && to == from + units_to_bytes(units);
    const bool purged = from < to && !os::purge(reinterpret_cast<void*>(from), to - from);
    {
      LockGuard guard(span_lock);
      mark_free(first, units, !(purged && whole));
      if (!purged) state.purge_refused = true;
      if (purged && whole) {
        uncharge(pages * kPageBytes);
      } else {
        charge_anyway((units * kUnitPages - pages) * kPageBytes);
      }
    }
    if (!purged) break;
    purged_bytes.add_relaxed(pages * kPageBytes);
    purge_calls.add_relaxed(1);
    done += pages;
    if (!whole) break;
  }
  return done;
}

// Called after units were freed: what exceeds the watermark goes at once, down to three quarters of it, so that a program
// that now goes idle does not hoard and one that goes on does not purge at every free.
usize excess_over_watermark() {
  state.regretted_pages = min_of(state.regretted_pages, max_of(kRegretBytes / kPageBytes, live_pages() / 2));
  const usize mark = watermark_pages();
  if (state.backed_pages <= mark || state.purge_refused) return 0;
  for (usize word = state.unmeasured_low; !state.measure_refused && word <= state.unmeasured_high; ++word) measure_word(word);
  state.unmeasured_low = ~usize{0};
  state.unmeasured_high = 0;
  if (state.backed_pages <= mark) return 0;
  const usize excess = state.backed_pages - (mark - mark / 4);
  state.purged_pages += excess;
  return excess;
}

// How much of the memory that nobody needed since the last step is due, in pages.
usize due_by_decay() {
  if (++state.operations % kClockEvery != 0 || state.purge_refused) return 0;
  const u64 now = os::coarse_milliseconds();
  const u64 half_life = options.dirty_decay_ms;
  if (half_life == 0) return state.backed_pages;
  const u64 elapsed = now - state.last_decay_ms;
  if (elapsed < half_life / kDecayTicks) return 0;
  const bool first_step = state.last_decay_ms == 0;
  state.last_decay_ms = now;
  const usize unused = state.backed_low_water;
  state.backed_low_water = state.backed_pages;
  if (first_step) return 0;
  const auto decayed = [&](usize pages) {
    // 2^(-t) is close to 1 - 0.69 t for the short steps; longer pauses leave a quarter.
    if (elapsed >= 2 * half_life) return pages - pages / 4;
    return min_of(pages, static_cast<usize>(static_cast<u64>(pages) * elapsed * 11 / (half_life * 16)));
  };
  state.purged_pages -= decayed(state.purged_pages);
  state.regretted_pages -= decayed(state.regretted_pages);
  return decayed(unused);
}

// The units may still be guards, unless they are fresh: never in use before.
Span take_units(usize units, usize alignment, bool fresh) {
  for (int attempt = 0;; ++attempt) {
    {
      LockGuard guard(span_lock);
      UnitIndex first = fresh ? kNoUnit : find(units, alignment);
      if (first == kNoUnit) {
        const UnitIndex start = region.frontier.load_relaxed();
        const usize wanted = units + (fresh || alignment > kGroupUnits ? alignment : 0);
        if (const usize more = commit_units(wanted); more > 0) {
          mark_free(start, more, false);
          first = fresh ? static_cast<UnitIndex>(round_up(start, alignment)) : find(units, alignment);
        }
      }
      if (first != kNoUnit && charge(charge_for(first, units))) {
        const bool zeroed = mark_taken(first, units);
        return {first, zeroed};
      }
    }
    // Memory that the kernel gets back here may be what it refused a moment ago.
    if (attempt > 0 || purge_spans(0) == 0) return {};
  }
}

// Guards stay when the span in front of them goes: the next one of its length finds its own in place, two system calls less. Whatever
// else takes the units opens them first. False when the kernel refuses.
bool open_guards(UnitIndex first, usize units) {
  if (!guards_spans()) return true;
  usize from = units;
  usize end = 0;
  for (usize k = 0; k < units; ++k) {
    if (tag_of(first + static_cast<UnitIndex>(k)) != kTagGuard) continue;
    from = min_of(from, k);
    end = k + 1;
  }
  if (end == 0) return true;
  const UnitIndex start = first + static_cast<UnitIndex>(from);
  if (os::guard_remove(unit_address(start), units_to_bytes(end - from))) return false;
  set_tags(start, end - from, kTagNone);
  return true;
}

bool are_guards(UnitIndex first, usize units) {
  for (usize k = 0; k < units; ++k) {
    if (tag_of(first + static_cast<UnitIndex>(k)) != kTagGuard) return false;
  }
  return true;
}

void close_guards(UnitIndex first, usize units) {
  if (are_guards(first, units)) return;
  if (!os::guard_install(unit_address(first), units_to_bytes(units))) set_tags(first, units, kTagGuard);
}

// `units` units, of which `opened` from `skip` on are no guards.
Span take_opened(usize units, usize alignment, usize skip, usize opened) {
  const Span span = take_units(units, alignment, false);
  if (span.first == kNoUnit || open_guards(span.first + static_cast<UnitIndex>(skip), opened)) return span;
  return_span(span.first, units, !span.zeroed);
  return take_units(units, alignment, true);
}

}  // namespace

void return_span(UnitIndex first, usize units, bool dirty) {
  usize due;
  {
    LockGuard guard(span_lock);
    mark_free(first, units, dirty);
    if (!dirty) uncharge(units_to_bytes(units));
    due = max_of(excess_over_watermark(), due_by_decay());
  }
  if (FREESTONE_UNLIKELY(due > 0)) purge_pages(due);
}

namespace {

// How many units stay free in front of a guarded run.
usize random_gap() {
  static Atomic<u64> drawn;  // relaxed: any order of the numbers is as good
  u64 number = drawn.fetch_add_relaxed(1);
  if (FREESTONE_UNLIKELY(number == 0)) drawn.store_relaxed(number = os::entropy() | 1);
  return mix_bits(number) % (kRandomGapUnits + 1);
}

}  // namespace

Span take_span(usize units, usize alignment) { return take_opened(units, alignment, 0, units); }

Span take_guarded_span(usize units, usize alignment, usize guard) {
  if (guard == 0) return take_span(units, alignment);
  const usize gap = kMitigations.random_order && alignment == 1 ? random_gap() : 0;
  Span span = take_opened(gap + units + guard, alignment, gap, units);
  if (gap > 0 && span.first != kNoUnit) {
    return_span(span.first, gap, !span.zeroed);
    span.first += static_cast<UnitIndex>(gap);
  } else if (gap > 0) {
    span = take_opened(units + guard, alignment, 0, units);
  }
  if (span.first != kNoUnit) close_guards(span.first + static_cast<UnitIndex>(units), guard);
  return span;
}

void return_guarded_span(UnitIndex first, usize units, usize guard, bool dirty) {
  return_span(first, units, dirty);
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  if (guard > 0) return_span(behind, guard, !are_guards(behind, guard));  // what is a guard lost its contents
}

bool extend_span(UnitIndex first, usize units, usize more, bool& zeroed) {
  LockGuard guard(span_lock);
  const UnitIndex start = first + static_cast<UnitIndex>(units);
  if (start + more > region.frontier.load_relaxed()) return false;
  bool all_free = true;
  for_words(start, more, [&](usize word, u64 mask) { all_free = all_free && (free_word(word) & mask) == mask; });
  if (!all_free || !charge(charge_for(start, more))) return false;
  zeroed = mark_taken(start, more);
  return true;
}

usize purge_spans(usize keep_bytes) {
  usize excess;
  {
    LockGuard guard(span_lock);
    state.purge_refused = false;
    state.measure_refused = false;
    const usize keep = keep_bytes / kPageBytes;
    excess = state.backed_pages > keep ? state.backed_pages - keep : 0;
  }
  return purge_pages(excess) * kPageBytes;
}

void decay_spans() {
  usize due;
  {
    LockGuard guard(span_lock);
    state.operations = kClockEvery - 1;
    due = due_by_decay();
  }
  if (due > 0) purge_pages(due);
}

SpanCounts span_counts() {
  LockGuard guard(span_lock);
  return {region.frontier.load_relaxed() - region.heap_start, state.free_count, state.dirty_count, state.backed_pages * kPageBytes,
          purged_bytes.load_relaxed(), purge_calls.load_relaxed()};
}

bool spans_are_valid() {
  LockGuard guard(span_lock);
  usize free_units = 0;
  usize dirty_units = 0;
  usize pages = 0;
  for (usize word = first_word(); word < end_word(); ++word) {
    if ((measured_word(word) & ~backed_word(word)) != 0 || (backed_word(word) & ~dirty_word(word)) != 0 || (dirty_word(word) & ~free_word(word)) != 0) return false;
    if (longest(word) != longest_run(free_word(word))) return false;
    free_units += count_bits(free_word(word));
    dirty_units += count_bits(dirty_word(word));
    pages += pages_behind(word, ~u64{0});
  }
  return free_units == state.free_count && dirty_units == state.dirty_count && pages == state.backed_pages;
}

}  // namespace freestone
