// Room 7, slab: class runs, the blocks from kSmallBytesMax to kCachedBytesMax. Each is a span of its own; the thread
// caches keep them like blocks of slabs. Any thread; no lock of its own.
#pragma once

#include "slab/slab.h"

namespace freestone {

// Takes a class run; sets `zeroed` to whether its memory is zero. Null when memory is out.
void* take_class_run(SizeClass size_class, unsigned shard, bool& zeroed);
// Takes at least one, unless memory is out, and at most `room`; the lowest address comes last. Returns how many.
unsigned take_class_runs(SizeClass size_class, unsigned shard, unsigned room, void** out);
// Gives class runs back; in the fast build at most kClassRunsMax. With `keep`, a few of them wait for who needs one
// next (span/run_store.h).
inline constexpr unsigned kClassRunsMax = kCachedBytesMax / (kSmallBytesMax + 1);
void return_class_runs(SizeClass size_class, unsigned shard, void* const* runs, unsigned count, bool keep);

// Gives a class run back that the hardened build cleared, or seals.
void return_cleared_class_run(SizeClass size_class, unsigned shard, UnitIndex first);
void seal_class_run(SizeClass size_class, UnitIndex first);

// Notes that a live run changed its class in place.
void note_run_resized(SizeClass from, SizeClass to);
// Those that are live or in a thread cache.
usize class_runs_outside(SizeClass size_class);

}  // namespace freestone
