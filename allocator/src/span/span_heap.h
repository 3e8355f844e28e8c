// Room 6, span: which units are free.
//
// One bitmap of free units and one of dirty ones (free and perhaps not zero), a word per group of 64 units, with the
// longest free run of each word beside it. A span is given the lowest address at which it fits, so the heap stays dense
// and its top drains. Free neighbours need no merging: they are adjacent bits.
//
// SPAN-1  dirty is a subset of free.
// SPAN-2  A unit that is being purged is in neither bitmap: nobody can be given it while the kernel takes its memory.
// SPAN-3  longest_free[w] is the longest run of set bits in free_units[w].
//
// One lock for all; it is held for a search and a few words, never across a system call other than a commit.
#pragma once

#include "platform/mutex.h"
#include "region/region.h"

namespace freestone {

struct Span {
  UnitIndex first = kNoUnit;  // kNoUnit: there was no room
  bool zeroed = false;        // every byte of it is zero
};

struct SpanCounts {
  usize committed_units;  // accessible
  usize free_units;
  usize dirty_units;
  u64 purged_bytes;  // over the process's life
  u64 purge_calls;
};

// `units` units at a multiple of `alignment` units (a power of two). Fails only when the window is full or the kernel refuses,
// after everything dirty was given back.
Span take_span(usize units, usize alignment);
// Gives units back. `dirty` is false when they are known to be zero. Purges at once what exceeds the watermark.
void return_span(UnitIndex first, usize units, bool dirty);
// Takes the `more` units behind a span of `units`, if they are free; `zeroed` says whether they are zero.
bool extend_span(UnitIndex first, usize units, usize more, bool& zeroed);

// Gives dirty units back to the kernel, highest first, until at most `keep_bytes` stay. Returns the bytes given.
usize purge_spans(usize keep_bytes);
// Gives back what was not needed for a while; cheap when called too early.
void decay_spans();

SpanCounts span_counts();

extern Mutex span_lock;  // for the fork handlers

// Debug: SPAN-1 and SPAN-3 hold for every group.
bool spans_are_valid();

}  // namespace freestone
