// Room 6, span: see purge.h.

#include "span/purge.h"

#include "base/bits.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "platform/leaving.h"
#include "region/account.h"
#include "region/guarding.h"
#include "span/free_memory.h"
#include "span/span_map.h"

namespace freestone {

constinit Atomic<usize> kept_units;
constinit Atomic<usize> keepable_units;
constinit Atomic<u64> worked_ms;

namespace {

Atomic<u64> last_tick_ms;  // by the coarse clock, as the next; relaxed: a hint
Atomic<u64> last_look_ms;

// All counts in units.
struct State {
  u64 ticked_ms = 0;       // worked_ms at the last tick
  u64 aged_ms = 0;         // worked_ms when the older dirty units became older
  UnitIndex used_end = 0;  // no unit at or above was ever taken
  // The most that is purged at once. Halved when the kernel refuses, down to a page, which then waits among the refused
  // units; doubled when it does not.
  usize piece = kPurgeBytesPerCall >> kUnitShift;
  u64 refused_ms = 0;  // when refused units began to wait
  // A great fall of use: what may go of it, whatever that costs, and the least in use since it began.
  usize falling = 0;
  usize lowest = 0;
};
constinit State state FREESTONE_GUARDED_BY(span_lock);

// How many units one free gives back beyond four times what it freed.
constexpr usize kPurgeStep = kPurgeBytesPerFree >> kUnitShift;

// In use and not only kept.
usize live_units() FREESTONE_REQUIRES(span_lock) {
  const usize live = span_map.live_units();
  return live - min_of(live, kept_units.load_relaxed());
}

// How many units may stay dirty at once. What the store holds takes from it.
usize allowed_units() FREESTONE_REQUIRES(span_lock) {
  const usize share = (options.dirty_bytes >> kUnitShift) + live_units() / kDirtyLiveDivisor;
  const usize allowed = gives_all() ? 0 : share;
  keepable_units.store_relaxed(share - min_of(share, span_map.purgeable_units()));
  return allowed - min_of(allowed, kept_units.load_relaxed());
}

// Nothing goes until half as much is free as is in use: then it lies in longer stretches, and takes fewer calls. With
// what is above goes what one call more takes, so that not every free makes a call.
usize surplus() FREESTONE_REQUIRES(span_lock) {
  const usize dirty = span_map.purgeable_units(), allowed = allowed_units(), live = live_units();
  if (dirty >= 2 * live + bytes_to_units(kGreatFallBytes) && may_fall()) {
    state.falling = dirty;
    state.lowest = live;
  } else if (live < state.lowest) {
    state.falling += state.lowest - live;
    state.lowest = live;
  }
  if (dirty <= allowed || (!gives_all() && dirty < live / 2)) return 0;
  const usize most = may_give_back() ? dirty : options.give_back_percent != 0 ? state.falling : 0;
  return min_of(most, dirty - allowed + min_of(allowed / 4, bytes_to_units(kPurgeBytesPerCall)));
}

// `clean`: how many of the units had no memory.
void note_came_units(UnitIndex first, usize units, usize clean) FREESTONE_REQUIRES(span_lock) {
  note_came(first >= state.used_end ? Came::fresh : Came::again, units_to_bytes(clean));
  state.used_end = max_of(state.used_end, first + static_cast<UnitIndex>(units));
}

// What time makes due: what nobody took for half of the decay time to all of it, and all that is free where the process
// was idle; in one tick no more than in so much time.
usize due_by_time() FREESTONE_REQUIRES(span_lock) {
  const u64 now = os::coarse_milliseconds(), worked = worked_ms.load_relaxed();
  const u64 counted = worked - state.ticked_ms;
  state.ticked_ms = worked;
  last_tick_ms.store_relaxed(now);
  if (span_map.refused_units() != 0 && now - state.refused_ms >= kRefusedMs) {
    state.refused_ms = now;
    span_map.retry_refused();
  }
  const usize most = kPurgeStep * max_of<usize>(counted / tick_ms(), 1);
  usize due = surplus();
  if (!may_give_back()) return due;
  if (gives_all() || counted >= idle_ms()) {
    due = span_map.purgeable_units();
  } else if (span_map.take_age_changed()) {
    state.aged_ms = worked;
  } else if (worked - state.aged_ms >= idle_ms() / 2) {
    if (span_map.older_units() == 0) {
      span_map.make_older();
      state.aged_ms = worked;
    } else {
      due = max_of(due, span_map.older_units());
    }
  }
  return min_of(due, most);
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
  }
  expect_units_clear(stretch.first, stretch.units);
  const bool went = empty_memory(stretch, why);
  const usize dirty = count_bits(stretch.dirty);
  if (went) uncharge(units_to_bytes(dirty));  // before another thread can be given them, and charge again
  LockGuard guard(span_lock);
  if (went) {
    span_map.set_free(stretch.first, stretch.units, false);
    state.piece = min_of(2 * state.piece, bytes_to_units(kPurgeBytesPerCall));
    went_back += dirty;
    const usize fell = min_of(dirty, state.falling);
    state.falling -= fell;
    if (why <= WentBack::slabs) purge_budget.fell(units_to_bytes(fell));  // else the program or a limit asked
    return true;
  }
  const bool is_page = stretch.units <= page_units;
  if (is_page && span_map.refused_units() == 0) state.refused_ms = os::coarse_milliseconds();
  span_map.put_back(stretch, is_page);
  state.piece = max_of<usize>(dirty / 2, 1);  // guards inside do not count as progress
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
  if (dirty == units) return {};
  note_came_units(first, units, units - dirty);
  return {min_of(surplus(), kPurgeStep)};
}

void note_taken(UnitIndex first, usize units) { note_came_units(first, units, units); }

Surplus surplus_after_return(usize units) { return {min_of(surplus(), 4 * units + kPurgeStep)}; }

void purge_units(Surplus surplus) {
  if (!os::leaves_surplus()) purge_up_to(surplus.units, WentBack::surplus);
}

void expect_units_clear(UnitIndex first, usize units) {
  if constexpr (!kMitigations.zero_on_free) return;
  for (UnitIndex unit = first; unit < first + units; ++unit) {
    if (tag_of(unit) != kTagGuard) expect_clear(unit_address(unit), kUnitBytes);
  }
}

void return_span(UnitIndex first, usize units, bool dirty) {
  if (!dirty) uncharge(units_to_bytes(units));  // before another thread can be given them, and charge again
  return_spans(units, 1, &first, dirty);
}

void return_guarded_span(UnitIndex first, usize units, usize guard, bool dirty) {
  return_span(first, units, dirty);
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  if (guard > 0) return_span(behind, guard, !all_tagged(behind, guard, kTagGuard));  // a guard has no contents
}

void return_spans(usize units, unsigned count, const UnitIndex* spans, bool dirty) {
  Surplus due;
  {
    LockGuard guard(span_lock);
    for (unsigned k = 0; k < count; ++k) span_map.set_free(spans[k], units, dirty);
    due = surplus_after_return(count * units);
  }
  if (FREESTONE_UNLIKELY(due.units > 0)) purge_units(due);
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

bool tick_is_due() {
  const u64 now = os::coarse_milliseconds();
  if (now != last_look_ms.load_relaxed()) {
    const u64 before = last_look_ms.exchange_seq(now);
    if (before != 0 && now > before)
      worked_ms.add_relaxed(purge_budget.pass(now - before, idle_ms(), options.give_back_percent));
  }
  return now - last_tick_ms.load_relaxed() >= tick_ms() && !os::leaves_surplus();
}

void decay_spans() {
  // The background thread is not the program: only a rest is for it to see.
  if (os::coarse_milliseconds() - last_look_ms.load_relaxed() >= idle_ms()) tick_is_due();
  usize due;
  {
    LockGuard guard(span_lock);
    due = due_by_time();
    if (os::keeping.is_background) due = max_of(due, surplus());  // no free gives it back
  }
  purge_up_to(due, WentBack::decay);
}

}  // namespace freestone
