// Room 3, config: the constants of a build. Each number that bounds something is named here once.
#pragma once

#include "base/units.h"

namespace freestone {

// The region: tried at the first size and halved on refusal.
inline constexpr usize kRegionBytesMax = kTiB;
inline constexpr usize kRegionBytesMin = 16 * kMiB;
// Below this a refused reservation means that address space is limited: keep at most half of what can be had, the
// program needs the rest for stacks, libraries and its own mappings.
inline constexpr usize kRegionBytesUnlimited = 256 * kGiB;

// Shards of the slab trees. A thread belongs to one; more shards than cores only dilute the heap.
inline constexpr unsigned kShardsMax = 16;

// Blocks up to this size live in slabs, above it in runs of their own.
inline constexpr usize kSmallBytesMax = 32 * kKiB;
// Runs up to this size are kept by the thread cache like blocks; up to the next size by the run cache of the thread's shard.
inline constexpr usize kCachedBytesMax = 128 * kKiB;
inline constexpr usize kSharedRunBytesMax = kMiB;
// Runs above this size get a mapping of their own.
inline constexpr usize kRunBytesMax = 32 * kMiB;

// The thread cache: what one thread may hold besides the option cache_bytes, and all threads together. Beyond kCacheBytesSmall a thread
// takes more only while all hold less than this part of the heap, and less than kCacheBytesBeyond.
inline constexpr usize kCacheBytesSmall = 256 * kKiB;
inline constexpr usize kCacheHeapDivisor = 8;
inline constexpr usize kCacheBytesBeyond = 8 * kMiB;
inline constexpr usize kCacheBytesTotal = 64 * kMiB;
inline constexpr usize kCacheBytesFloor = 16 * kKiB;
// The runs that threads keep, all together.
inline constexpr usize kHeldRunBytes = 2 * kMiB;
// Blocks of one class that wait between the threads of a shard and others.
inline constexpr usize kTransferBytesPerBin = 32 * kKiB;

// Dirty free memory kept for reuse: the option dirty_bytes plus this fraction of what is in use.
inline constexpr usize kDirtyLiveDivisor = 8;
// A program that takes memory for a large block again soon after it went back for being too much adds that much to it: so many bytes at
// most, or half of what is in use.
inline constexpr usize kRegretBytes = 20 * kMiB;
inline constexpr usize kPurgeBytesPerCall = kMiB;

}  // namespace freestone
