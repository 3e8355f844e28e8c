// Room 6, span: see purge.h.

#include "span/purge.h"

#include "base/bits.h"
#include "config/options.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/guarding.h"
#include "span/free_memory.h"
#include "span/recent_need.h"
#include "span/run.h"
#include "span/span_map.h"

namespace freestone {

constinit Atomic<usize> kept_units;
constinit Atomic<usize> keepable_units;
constinit Atomic<u64> last_decay_ms;

namespace {

constexpr unsigned kDecayTicks = 16;  // decay steps per half-life
constexpr u32 kClockEvery = 32;       // operations between two looks at the clock

// All counts in units.
struct State {
  RecentNeed need;
  usize purged = 0;      // went back by the watermark, not long ago
  usize regretted = 0;   // of these, taken again since by large spans
  usize low_water = 0;   // the fewest dirty units since the last decay step: memory that nobody needed
  UnitIndex used_end = 0;  // no unit at or above was ever taken
  u32 operations = 0;
  bool above = false;    // the watermark was crossed, and its lower end not yet reached
  // The most that is purged at once. Halved when the kernel refuses, down to a page, which then waits among the refused
  // units; doubled when it does not.
  usize piece = kPurgeBytesPerCall >> kUnitShift;
  u64 refused_ms = 0;  // when refused units began to wait
};
constinit State state FREESTONE_GUARDED_BY(span_lock);

// How many units one free gives back beyond twice what it freed.
constexpr usize kPurgeStep = kPurgeBytesPerFree >> kUnitShift;

// In use and not only kept.
usize live_units() FREESTONE_REQUIRES(span_lock) {
  const usize live = span_map.live_units();
  return live - min_of(live, kept_units.load_relaxed());
}

// How many dirty units are due to go because the watermark was crossed: at most twice as many as were just freed, and
// kPurgeStep.
usize surplus(usize just_freed) FREESTONE_REQUIRES(span_lock) {
  const usize live = live_units();
  const usize always = (options.dirty_bytes >> kUnitShift) + live / kDirtyLiveDivisor;
  state.regretted = min_of(state.regretted, max_of(kRegretBytes >> kUnitShift, live / 2));
  const usize allowed = always + (options.dirty_bytes == 0 ? 0 : max_of(state.need.kept(live), state.regretted));
  const usize mark = allowed - min_of(allowed, kept_units.load_relaxed());
  const usize low_mark = mark - min_of(mark, always / 4);
  const usize dirty = span_map.purgeable_units();
  keepable_units.store_relaxed(allowed - min_of(allowed, dirty));
  state.above = dirty > mark || (state.above && dirty > low_mark);
  if (!state.above) return 0;
  const usize due = min_of(dirty - low_mark, 2 * just_freed + kPurgeStep);
  state.above = due < dirty - low_mark;
  state.purged += due;
  return due;
}

// How much of the memory that nobody needed since the last step is due.
usize due_by_decay() FREESTONE_REQUIRES(span_lock) {
  if (++state.operations % kClockEvery != 0) return 0;
  const u64 now = os::coarse_milliseconds();
  if (span_map.refused_units() != 0 && now - state.refused_ms >= kRefusedMs) {
    state.refused_ms = now;
    span_map.retry_refused();
  }
  const u64 half_life = options.dirty_decay_ms;
  if (half_life == 0) return span_map.purgeable_units();
  const u64 elapsed = now - last_decay_ms.load_relaxed();
  if (elapsed < half_life / kDecayTicks) return 0;
  const bool first_step = last_decay_ms.load_relaxed() == 0;
  last_decay_ms.store_relaxed(now);
  const usize unused = state.low_water;
  state.low_water = span_map.purgeable_units();
  if (first_step) return 0;
  const auto decayed = [&](usize units) {
    // 2^(-t) is close to 1 - 0.69 t for the short steps; longer pauses leave a quarter.
    if (elapsed >= 2 * half_life) return units - units / 4;
    return min_of(units, static_cast<usize>(static_cast<u64>(units) * elapsed * 11 / (half_life * 16)));
  };
  state.purged -= decayed(state.purged);
  state.regretted -= decayed(state.regretted);
  return decayed(unused);
}

// The kernel gets the memory. Where spans have guards the units are guards from here on: what is free and has no memory
// faults.
bool empty_memory(const SpanMap::DirtyStretch& stretch, WentBack why) {
  const usize bytes = units_to_bytes(stretch.units);
  // A filter of system calls may know no guards.
  if (!guards_spans() || !close_units(stretch.first, stretch.units, GuardOf::free_memory))
    return purge_range(unit_address(stretch.first), bytes, why);
  note_purge(true);
  note_back(why, units_to_bytes(count_bits(stretch.dirty)));
  return true;
}

// Purges one stretch of dirty units, and of the guards between them. Returns how many dirty units went back. False when
// nothing is left that could.
bool purge_oldest(usize units, WentBack why, usize& went_back) {
  const auto page_units = static_cast<unsigned>(max_of<usize>(os::page_bytes() >> kUnitShift, 1));
  SpanMap::DirtyStretch stretch;
  {
    LockGuard guard(span_lock);
    stretch = span_map.take_oldest_dirty(min_of(units, state.piece), page_units);
    if (stretch.first == kNoUnit) return false;
    state.low_water = min_of(state.low_water, span_map.purgeable_units());
  }
  expect_units_clear(stretch.first, stretch.units);
  const bool went = empty_memory(stretch, why);
  const usize dirty = count_bits(stretch.dirty);
  if (went) uncharge(units_to_bytes(dirty));  // before another thread can be given them, and charge again
  LockGuard guard(span_lock);
  if (went) {
    span_map.mark_free(stretch.first, stretch.units, false);
    state.piece = min_of(2 * state.piece, bytes_to_units(kPurgeBytesPerCall));
    went_back += dirty;
    return true;
  }
  const bool is_page = stretch.units <= page_units;
  if (is_page && span_map.refused_units() == 0) state.refused_ms = os::coarse_milliseconds();
  span_map.put_back(stretch, is_page);
  state.piece = max_of<usize>(stretch.units / 2, 1);
  return true;
}

usize purge_up_to(usize units, WentBack why) {
  usize done = 0;
  while (done < units && !purges_pause() && purge_oldest(units - done, why, done)) {
  }
  return done;
}

}  // namespace

Surplus surplus_after_take(UnitIndex first, usize units, usize dirty) {
  state.low_water = min_of(state.low_water, span_map.purgeable_units());
  state.need.note(live_units(), os::coarse_milliseconds());
  if (dirty == units) return {};
  note_came(first >= state.used_end ? Came::fresh : Came::again, units_to_bytes(units - dirty));
  state.used_end = max_of(state.used_end, first + static_cast<UnitIndex>(units));
  if (units > bytes_to_units(kRegrettedRunBytes)) {
    const usize again = min_of(state.purged, units - dirty);
    state.purged -= again;
    state.regretted += again;
  }
  return {surplus(0)};
}

void note_filled(UnitIndex first, usize units) {
  note_came(first >= state.used_end ? Came::fresh : Came::again, units_to_bytes(units));
  note_came(Came::populated, units_to_bytes(units));
  state.used_end = max_of(state.used_end, first + static_cast<UnitIndex>(units));
}

Surplus surplus_after_return(usize units) {
  state.need.note(live_units(), os::coarse_milliseconds());
  const usize above = surplus(units);
  const usize decayed = due_by_decay();
  return above >= decayed ? Surplus{above} : Surplus{decayed, WentBack::decay};
}

void purge_units(Surplus surplus) {
  purge_up_to(surplus.units, surplus.why);
  if (surplus.why == WentBack::decay) release_old_class_runs();
}

static usize purge_excess(usize keep, WentBack why) {
  usize excess;
  {
    LockGuard guard(span_lock);
    excess = span_map.purgeable_units() - min_of(span_map.purgeable_units(), keep);
  }
  return purge_up_to(excess, why);
}

usize purge_spans(usize keep_bytes, WentBack why) {
  const usize keep = keep_bytes >> kUnitShift;
  if (why == WentBack::trim) end_purge_pause();
  usize done = purge_excess(keep, why);
  if (why == WentBack::trim) {  // the program may have unlocked its memory
    {
      LockGuard guard(span_lock);
      span_map.retry_refused();
    }
    done += purge_excess(keep, why);
  }
  return units_to_bytes(done);
}

bool decay_is_due() {
  return os::coarse_milliseconds() - last_decay_ms.load_relaxed() >= options.dirty_decay_ms / kDecayTicks;
}

void decay_spans() {
  release_old_runs();
  release_old_class_runs();
  usize due;
  {
    LockGuard guard(span_lock);
    state.operations = kClockEvery - 1;
    due = due_by_decay();
  }
  purge_up_to(due, WentBack::decay);
}

}  // namespace freestone
