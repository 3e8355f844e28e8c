// Room 3, config: the constants of a build that bound what the rooms keep and take.
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
// A smaller limit on address space or data counts as a limit.
inline constexpr usize kUnlimitedBytes = 256 * kGiB;
// A block above this gets a mapping of its own or fails: the heap does not grow for a size that the kernel refused.
inline constexpr usize kGrownRunBytesMax = kGiB;

// Shards of the slab trees. Each thread belongs to one. There are up to two for each core: more would only spread the
// heap thin.
inline constexpr unsigned kShardsMax = 16;

// Blocks up to this size share slabs. A larger one is a run of its own, or a mapping.
inline constexpr usize kSmallBytesMax = 32 * kKiB;
// The thread cache keeps runs up to the first size like blocks. Runs up to the second wait in the slots of the thread's
// set (span/run.cc).
inline constexpr usize kCachedBytesMax = 128 * kKiB;
inline constexpr usize kSharedRunBytesMax = kMiB;
// A block above this size gets a mapping of its own, and above the option map_bytes, which is at most this. Where there
// is no mapping left, it is a run (up to kGrownRunBytesMax).
inline constexpr usize kRunBytesMax = 32 * kMiB;

// Bounds of the thread caches, beside the option cache_bytes. A thread exceeds kCacheBytesFloor, or its share of 1 MiB
// beside more than 64 threads, only while all threads together hold less than 1/kCacheHeapDivisor of the heap and less
// than kCacheBytesTotal.
inline constexpr usize kCacheBytesFloor = 16 * kKiB;
inline constexpr usize kCacheHeapDivisor = 16;
// With fewer blocks than these a class that runs full and empty in turns, or whose blocks are small, would miss at each
// few calls: for them all threads together may hold 1/kCacheNeededDivisor of the heap. Of small blocks so many bytes.
inline constexpr unsigned kCacheBlocksNeeded = 7;
inline constexpr usize kCacheSmallNeeded = 4 * kKiB;
inline constexpr usize kCacheNeededDivisor = 4;
inline constexpr usize kCacheBytesTotal = 16 * kMiB;
// What all threads together may keep in runs.
inline constexpr usize kHeldRunBytes = 2 * kMiB;
// The blocks of one class in one transfer bin.
inline constexpr usize kTransferBytesPerBin = 32 * kKiB;

// From so much on the heap is filled with memory by frames, as span/frames.h says. Then the unused part, in the frame
// and in the slabs that each class has begun, is about a thirtieth of the heap.
inline constexpr usize kFrameBytes = 2 * kMiB;
inline constexpr usize kFramesFromBytes = 64 * kMiB;

// When memory falls out of use, the option dirty_bytes and 1/kDirtyLiveDivisor of what is in use stay for reuse.
inline constexpr usize kDirtyLiveDivisor = 8;
// The most that one system call gives back, and the most that one free gives back beyond four times what it freed. Both
// bound how long a free takes.
inline constexpr usize kPurgeBytesPerCall = kMiB;
inline constexpr usize kPurgeBytesPerFree = 4 * kMiB;
// After so many refusals in a row (mlockall, a sandbox) the kernel is not asked to take memory for so long. What it
// refused waits as long before it is offered again.
inline constexpr unsigned kRefusalsMax = 1024;
inline constexpr u64 kRefusedMs = 1000;

}  // namespace freestone
