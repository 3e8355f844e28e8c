// Room 6, span: which units are free.
//
// Bitmaps with a word per group of 64 units, and the longest free run of each word beside it. A span is given the lowest
// address at which it fits, so the heap stays dense and its top drains. Free neighbours need no merging: they are
// adjacent bits.
//
//   free      nobody has it
//   dirty     free, and perhaps not zero
//   backed    dirty, and perhaps with memory behind it
//   measured  backed, and resident_pages says by how many 4 KiB pages
//
// A program that is given 64 KiB may touch one page of them. Before free memory is called too much, the kernel is asked
// (mincore) how much of it exists, once per unit; only what exists counts against the watermark and is worth purging. That a page is
// not resident does not make it zero: it may be swapped out.
//
// SPAN-1  measured, backed, dirty and free are each a subset of the next.
// SPAN-2  A unit that is being purged is in no bitmap: nobody can be given it while the kernel takes its memory.
// SPAN-3  longest_free[w] is the longest run of set bits in free_units[w].
// SPAN-4  backed_pages counts 4 KiB pages: for a measured unit what was measured, for an unmeasured one all.
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
  usize backed_bytes;     // of dirty units; at most what is resident when last looked at
  u64 purged_bytes;  // over the process's life
  u64 purge_calls;
};

// `units` units at a multiple of `alignment` units (a power of two). Fails only when the window is full or the kernel refuses,
// after everything dirty was given back.
Span take_span(usize units, usize alignment);
// Gives units back. `dirty` is false when they are known to be zero. Purges at once what exceeds the watermark.
void return_span(UnitIndex first, usize units, bool dirty);
// A span with `guard` more units behind it that fault on access; the guard is not in `units`. Where the system cannot make it fault,
// it is address space only. `return_guarded_span` takes both back.
Span take_guarded_span(usize units, usize alignment, usize guard);
void return_guarded_span(UnitIndex first, usize units, usize guard, bool dirty);
// Takes the `more` units behind a span of `units`, if they are free; `zeroed` says whether they are zero.
bool extend_span(UnitIndex first, usize units, usize more, bool& zeroed);

// Gives the memory of dirty units back to the kernel, highest first, until at most `keep_bytes` stay. Returns the bytes given.
usize purge_spans(usize keep_bytes);
// Gives back what was not needed for a while; cheap when called too early.
void decay_spans();

SpanCounts span_counts();

extern Mutex span_lock;  // for the fork handlers

// Debug: SPAN-1 and SPAN-3 hold for every group.
bool spans_are_valid();

}  // namespace freestone
