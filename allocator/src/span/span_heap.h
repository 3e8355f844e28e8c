// Room 6, span: spans, as they are taken. purge.h and run_store.h take them back.
//
// A span gets the lowest address at which it fits, so the heap stays dense and its top drains. Free neighbours need no
// merging: they are adjacent bits (span_map.h). Dirty memory goes back to the kernel by the rules of purge.h.
//
// Two locks. `span_lock` guards the bitmaps and is held for a search and a few words, never across a system call.
// `growth_lock` is held by the one thread that makes the heap larger, across the kernel's work; it is taken before
// span_lock.
#pragma once

#include "platform/mutex.h"
#include "policy/policy.h"
#include "region/guarding.h"
#include "region/region.h"

namespace freestone {

struct Span {
  UnitIndex first = kNoUnit;  // kNoUnit: there was no room
  bool zeroed = false;        // every byte of it is zero
  bool is_empty = false;      // of a guarded span: it has no memory behind it
  i64 dirty = -1;             // as SpanMap::dirty_bits, where zero_on_free is on

  // Whether these of its units are known to be zero.
  bool is_zero(usize unit) const { return zeroed || (dirty >> min_of<usize>(unit, 63) & 1) == 0; }
  bool is_zero(usize from, usize units) const {
    while (units > 0 && is_zero(from)) ++from, --units;
    return units == 0;
  }
};

struct SpanCounts {
  usize committed_units;  // accessible
  usize free_units;
  usize dirty_units;
};

// `units` units at a multiple of `alignment` units (a power of two). Fails when the window is full, when the kernel
// refuses addresses, or when the limit refuses even after everything dirty was given back.
Span take_span(usize units, usize alignment);
// Up to `count` spans of `units` units each, under one lock; fewer than asked for when there is no room or no memory.
// Returns how many. For builds without guards.
unsigned take_spans(usize units, unsigned count, UnitIndex* spans);
// `units` units with free ones behind them, `room` units in all, if there is such a place. For builds without guards.
Span take_span_to_grow(usize units, usize room);
// Groups that were never in use, for dedicated.h, as many as the heap grows by: nobody is charged for them. None when
// there is no room.
Grown take_fresh_groups();
// Makes the unit in front of a guarded span a guard too, if it is free: then a write just before the span's start
// faults.
void close_front(UnitIndex first, GuardOf what);
// A span with `guard` more units behind it that fault on access; the guard is not in `units`. Where the system cannot
// make it fault, it is address space only. `return_guarded_span` takes both back.
Span take_guarded_span(usize units, usize alignment, usize guard);
// Ends the program if free memory of a group that must be zero is not (HARD-2). Returns how many bytes it looked at.
usize check_free_spans(UnitIndex first, UnitIndex end);
// Takes the `more` units behind a span of `units`, if they are free.
Span extend_span(UnitIndex first, usize units, usize more);
// The same for a span with a guard, which moves behind them. False if they are not free.
bool extend_guarded_span(UnitIndex first, usize units, usize more, usize guard);

SpanCounts span_counts();

// In the child of a fork, by the thread that settles it: if another thread was inside, counts again what follows from
// the bitmaps, and finishes or undoes the growth of the heap.
void repair_spans_in_child(Cut cut = Cut::fork);
// ACCOUNT-1, of the units; then.
usize charged_span_bytes();

// Debug: SPAN-1 and SPAN-3 hold for every word.
bool spans_are_valid();

}  // namespace freestone
