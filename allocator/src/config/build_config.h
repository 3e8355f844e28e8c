// Room 3, config: the structure of a build: its address space, its shards, its bands of sizes. heuristics.h has the
// figures that a measurement could move.
#pragma once

#include "base/units.h"

#ifndef FREESTONE_COUNT_LOCKS
#define FREESTONE_COUNT_LOCKS 0
#endif

namespace freestone {

// Whether locks count how often and how long they are held (platform/lock_counts.h).
inline constexpr bool kCountsLocks = FREESTONE_COUNT_LOCKS != 0;

// The window: the addresses that the heap may grow over. The narrow one serves address spaces of 39 bits.
inline constexpr usize kWindowBytes = kTiB;
inline constexpr usize kWindowBytesNarrow = 64 * kGiB;
// This part of it, its last, is for spans of up to 1 MiB.
inline constexpr usize kSmallWindowDivisor = 16;
// If no fixed place is free, the kernel chooses where to reserve the window. Each refusal halves its size, from the
// first of these down to the second.
inline constexpr usize kReservedBytesMax = 64 * kGiB;
inline constexpr usize kReservedBytesMin = 16 * kMiB;
// Below such a limit on address space or data there are no guards: they would take a third of it. A larger one that is
// met takes them away where it can.
inline constexpr usize kGuardedFromBytes = 2 * kGiB;
// A block above this gets a mapping of its own or fails: the heap does not grow for a size that the kernel refused.
inline constexpr usize kGrownRunBytesMax = kGiB;

// Shards of the slab trees. Each thread belongs to one. There are up to two for each core: more would only spread the
// heap thin.
inline constexpr unsigned kShardsMax = 16;

// Blocks up to this size share slabs. A larger one is a run of its own, or a mapping.
inline constexpr usize kSmallBytesMax = 32 * kKiB;
// The thread cache keeps runs up to the first size like blocks. Runs up to the second wait in span/run_store.h.
inline constexpr usize kCachedBytesMax = 128 * kKiB;
inline constexpr usize kSharedRunBytesMax = kMiB;
// A block above this size gets a mapping of its own, and above the option map_bytes, which is at most this. Where there
// is no mapping left, it is a run (up to kGrownRunBytesMax).
inline constexpr usize kRunBytesMax = 32 * kMiB;

// What one huge page covers (span/frames.h).
inline constexpr usize kFrameBytes = 2 * kMiB;

}  // namespace freestone
