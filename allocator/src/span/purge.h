// Room 6, span: when the memory of free units goes back to the kernel.
//
// The option dirty_bytes and an eighth of what is live stay dirty. More is surplus: a free that finds it gives back a
// few MiB plus four times what it freed, the next frees the rest; so does a thread that takes clean units. What nobody
// took for the decay time goes at a tick (decay_spans). All of it only while that is worth its cost
// (region/purge_budget.h).
//
// The kernel is called without a lock, on units that are in no bitmap meanwhile (SPAN-2). What it refuses, as it does
// where a page is locked, is split down to a page, and only that page waits, kRefusedMs. If it refuses often in a row,
// it is left alone as long (purges_pause in region/traffic.h).
#pragma once

#include "config/heuristics.h"
#include "config/options.h"
#include "region/region.h"
#include "region/traffic.h"

namespace freestone {

// What the store holds (run_store.h). Relaxed: a moment's error moves what may stay by one run.
extern FREESTONE_HIDDEN Atomic<usize> kept_units;
// How much of the share no dirty unit uses, when somebody last looked at it.
extern FREESTONE_HIDDEN Atomic<usize> keepable_units;

inline u64 tick_ms() { return max_of<u64>(options.dirty_decay_ms / kTicksPerDecay, 1); }
inline u64 idle_ms() { return kTicksPerDecay * tick_ms(); }
// Looks at the clock. Slow paths call it now and then.
bool tick_is_due();
// Whether free memory goes back at once, whatever that costs.
inline bool gives_all() {
  return options.dirty_decay_ms == 0 || options.dirty_bytes == 0 || options.give_back_percent >= kPercentAll;
}
inline bool may_give_back() { return gives_all() || purge_budget.allows(options.give_back_percent); }
inline bool may_fall() { return gives_all() || purge_budget.may_fall(options.give_back_percent); }

// Gives dirty memory back, highest first, until at most `keep_bytes` stay. Returns the bytes given.
usize purge_spans(usize keep_bytes, WentBack why);
// The time that the process was at work or idle, as the budget counts it.
extern FREESTONE_HIDDEN Atomic<u64> worked_ms;
// At a tick: gives back what the law allows no longer.
void decay_spans();

// Notes that units without memory have some from here on.
void note_taken(UnitIndex first, usize units) FREESTONE_REQUIRES(span_lock);
// Gives units back. `dirty` is false when they are known to be zero. Purges a bounded part of the surplus.
void return_span(UnitIndex first, usize units, bool dirty);
// The same with `guard` units behind them that fault, where the system can make them.
void return_guarded_span(UnitIndex first, usize units, usize guard, bool dirty);
// Spans of `units` units each, under one lock. Who gives clean ones back has uncharged for them.
void return_spans(usize units, unsigned count, const UnitIndex* spans, bool dirty = true);

// Called by whoever took or freed units. They return what is to go back now: give that to purge_units once the lock is
// free. `first` is the first unit taken, `dirty` how many of them were dirty.
struct Surplus {
  usize units = 0;
};
Surplus surplus_after_take(UnitIndex first, usize units, usize dirty) FREESTONE_REQUIRES(span_lock);
Surplus surplus_after_return(usize units) FREESTONE_REQUIRES(span_lock);
void purge_units(Surplus surplus) FREESTONE_EXCLUDES(span_lock);

}  // namespace freestone
