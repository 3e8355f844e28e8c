// Room 3, config: the constants of a build. Each number that bounds something is named here once.
#pragma once

#include "base/units.h"

#ifndef FREESTONE_COUNT_LOCKS
#define FREESTONE_COUNT_LOCKS 0
#endif

namespace freestone {

// Whether locks count how often and how long they are held (platform/lock_counts.h).
inline constexpr bool kCountsLocks = FREESTONE_COUNT_LOCKS != 0;

// The window: the addresses that the heap may grow over. The second is for an address space of 39 bits.
inline constexpr usize kWindowBytes = kTiB;
inline constexpr usize kWindowBytesNarrow = 64 * kGiB;
// Where no fixed place can be had, the window is reserved where the kernel chooses, at the first size, halved on
// refusal.
inline constexpr usize kReservedBytesMax = 64 * kGiB;
inline constexpr usize kReservedBytesMin = 16 * kMiB;
// Below this, address space or data count as limited.
inline constexpr usize kUnlimitedBytes = 256 * kGiB;
// A block above this gets a mapping of its own or fails: the heap does not grow for a size that the kernel refused to
// map.
inline constexpr usize kGrownRunBytesMax = kGiB;

// Shards of the slab trees. A thread belongs to one; more shards than cores only dilute the heap.
inline constexpr unsigned kShardsMax = 16;

// Blocks up to this size live in slabs, above it in runs of their own.
inline constexpr usize kSmallBytesMax = 32 * kKiB;
// Runs up to this size are kept by the thread cache like blocks; up to the next size by the run cache of the thread's
// shard.
inline constexpr usize kCachedBytesMax = 128 * kKiB;
inline constexpr usize kSharedRunBytesMax = kMiB;
// Runs above that and up to here too, one per doubling in the process; they count as free memory that is kept.
inline constexpr usize kKeptRunBytesMax = 8 * kMiB;
inline constexpr usize kKeptRunsBytesMax = 6 * kMiB;  // all of these together
// Runs above this size get a mapping of their own.
inline constexpr usize kRunBytesMax = 32 * kMiB;

// The thread cache: what one thread may hold besides the option cache_bytes, and all threads together. Beyond
// kCacheBytesSmall a thread takes more only while all hold less than this part of the heap, and less than
// kCacheBytesBeyond.
inline constexpr usize kCacheBytesSmall = 256 * kKiB;
inline constexpr usize kCacheHeapDivisor = 8;
inline constexpr usize kCacheBytesBeyond = 8 * kMiB;
inline constexpr usize kCacheBytesTotal = 16 * kMiB;
inline constexpr usize kCacheBytesFloor = 16 * kKiB;
// The runs that threads keep, all together.
inline constexpr usize kHeldRunBytes = 2 * kMiB;
// The blocks of one class in one transfer bin.
inline constexpr usize kTransferBytesPerBin = 32 * kKiB;

// The first slab in a frame of 2 MiB fills the frame with memory, once the heap has kFramesFromBytes and is as large as
// kFramesFromSlabs such slabs. Then what may stay unused, in the frame and in the slabs that each class has begun, is
// about a thirtieth of the heap. Slabs of blocks above the last size fill none: a program may touch only a part of
// each.
inline constexpr usize kFrameBytes = 2 * kMiB;
inline constexpr usize kFramesFromBytes = 64 * kMiB;
inline constexpr usize kFramesFromSlabs = 512;
inline constexpr usize kFrameBlockBytesMax = 8 * kKiB;
// Only a heap up to this size moves the memory of frames: each moved frame may become a mapping of its own.
inline constexpr usize kMovedHeapBytesMax = 8 * kGiB;

// Dirty free memory kept for reuse: the option dirty_bytes plus this fraction of what is in use.
inline constexpr usize kDirtyLiveDivisor = 8;
inline constexpr usize kRegretBytes = 20 * kMiB;
// What one system call gives back, and what one free gives back beyond twice what it freed. Both bound how long that
// takes.
inline constexpr usize kPurgeBytesPerCall = kMiB;
inline constexpr usize kPurgeBytesPerFree = 4 * kMiB;

}  // namespace freestone
