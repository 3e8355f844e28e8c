// Room 3, config: the heuristics, figures that somebody chose and that a measurement could move. A line above each says
// what it bounds and why. A figure that follows from another is written so. What a layout, an address space or the
// kernel fixes stands in build_config.h or beside its use.
#pragma once

#include "base/units.h"
#include "config/build_config.h"
#include "policy/policy.h"

namespace freestone {

// Caches.

// A thread may hold so much whatever all hold together, beside more than 64 threads its share of 1 MiB.
inline constexpr usize kCacheBytesFloor = 16 * kKiB;
// Beyond the floor, all threads together hold at most so much, and at most 1/kCacheHeapDivisor of the heap.
inline constexpr usize kCacheBytesTotal = 16 * kMiB;
inline constexpr usize kCacheHeapDivisor = 16;
// A class that is often found full and empty in turns needs so many blocks: with fewer it misses at each few calls.
inline constexpr unsigned kCacheBlocksNeeded = 7;
// Often: so many times for each unit of these blocks, because more bytes must save more.
inline constexpr unsigned kOftenMissed = 8;
// A class of blocks up to the first size needs the second in any case: they are cheap.
inline constexpr usize kCacheSmallBlockBytes = 256;
inline constexpr usize kCacheSmallNeeded = 4 * kKiB;
// For needed blocks all threads together may hold 1/kCacheNeededDivisor of the heap.
inline constexpr usize kCacheNeededDivisor = 4;
// What all threads together may keep in runs: two threads one of the longest each.
inline constexpr usize kHeldRunBytes = 2 * kSharedRunBytesMax;
// Blocks of one class in one transfer bin: room for one of the largest.
inline constexpr usize kTransferBytesPerBin = kSmallBytesMax;
// Arrays of the caches of ended threads, beside 1/kCacheHeapDivisor of the heap: those of a few threads that grew.
inline constexpr usize kParkedBytes = kMiB;
// Frees that a thread without a cache makes before it gets one: libc's, after the destructors, are fewer.
inline constexpr u8 kFreesAlone = 8;
// Events (cache/slow.h) from one look to the next: at the clock, at memory in slabs, at the blocks not needed.
inline constexpr u32 kEventsPerClock = 8;
inline constexpr u32 kEventsPerLook = 256;
inline constexpr u32 kEventsPerAdaptation = 1024;
// A thread with fewer refills between two ticks may go on without any: they bring no look either.
inline constexpr u64 kFewRefills = kEventsPerLook;
// What may be popped of a counted class before its pieces are joined, and the least number: freed blocks wait so long.
inline constexpr usize kPoppableBytes = 4 * kKiB;
inline constexpr usize kPoppableMin = 32;
// Fast build: a process's first looks at frees, each at so many cached blocks, show a short program its second free.
inline constexpr u32 kCloseLooks = 5 * 1024;
inline constexpr usize kLookPlaces = 64;
// Fast build: checked calls for the size of a block of a class until a table answers (TrustedBytes in front/heap.h).
inline constexpr unsigned kChecksForTrust = 64;
// A realloc leaves a block above 4 KiB in place while at most this part of it becomes unused.
inline constexpr usize kUnusedDivisor = 5;
// calloc looks for zero memory from this size on: below, clearing is cheaper than looking.
inline constexpr usize kKnownZeroFromBytes = 2 * kKiB;
// Tries for a lock before a thread sleeps, which takes system calls.
inline constexpr int kLockSpins = 64;

// Giving back.

// The option dirty_bytes and this part of what is in use stay for reuse when memory falls out of use.
inline constexpr usize kDirtyLiveDivisor = 8;
// One system call gives back so much at most, and one free four times what it freed and this, to bound its time.
inline constexpr usize kPurgeBytesPerCall = kMiB;
inline constexpr usize kPurgeBytesPerFree = 4 * kMiB;
// A fall of use is great only if so much is free: it goes whatever the budget says, and it empties caches.
inline constexpr usize kGreatFallBytes = 4 * kMiB;
// Ticks in the decay time: what is due goes at the next one.
inline constexpr u64 kTicksPerDecay = 4;
// The budget (region/purge_budget.h) saves and owes so much at most.
inline constexpr i64 kBudgetMostNs = 10'000'000;
// What it pays for a call, and for 4 KiB that went back and came again.
inline constexpr i64 kPurgeCallNs = 800;
inline constexpr i64 kMistakeNs = 800;
// A longer gap between two looks at the clock is no more work: a process with little CPU does not work meanwhile.
inline constexpr u64 kGapMs = 10;
// After so many refusals in a row (mlockall, a sandbox) the kernel is not asked so long; what it refused waits as long.
inline constexpr unsigned kRefusalsMax = 1024;
inline constexpr u64 kRefusedMs = 1000;
// At a limit all that can go goes once in so long, unless more came: a program may ask there all the time.
inline constexpr u64 kShortageEveryMs = 10;
// The age of a stored run is kept in steps of so much: 16 bits hold an hour.
inline constexpr u64 kStoredAgeMs = 64;

// Slabs.

// Free pages that stay in slabs; and this part of what is in use, more where the rest goes whatever that costs.
inline constexpr usize kSlabLeftBytes = kMitigations.quarantine ? kMiB : 16 * kMiB;
inline constexpr usize kSlabShareDivisor = 32;
inline constexpr usize kSlabStaysDivisor = kMitigations.quarantine ? 2 : kSlabShareDivisor;
// A look at them passes so many units and gives back so many bytes at most, to bound its time.
inline constexpr usize kSlabUnitsPerLook = 64 * kKiB;
inline constexpr usize kSlabBytesPerLook = 2 * kPurgeBytesPerCall;
// Grounds whose known hole may be too short before the heap grows, and slabs among which the sparsest becomes ground.
inline constexpr unsigned kGroundsTried = 4;
inline constexpr unsigned kSlabsTried = 16;
// A class whose blocks fill so many slabs gets the memory of its next one by one call.
inline constexpr usize kManySlabs = 16;

// A heap that grows, and large blocks.

// The heap grows by a quarter, at most by so much: it may not need all of a step.
inline constexpr usize kCommitStepMax = 64 * kMiB;
// The part of the heap that gets memory ahead by one call, instead of a fault for each page.
inline constexpr usize kAheadDivisor = 128;
// From so much on the heap is filled by frames: one is then as small a part of it as slabs may leave unused.
inline constexpr usize kFramesFromBytes = kSlabShareDivisor * kFrameBytes;
// thp:auto leaves huge pages to the system beyond this: a small heap has none.
inline constexpr usize kThpPlainBytes = 32 * kMiB;
// A run that moves to a mapping goes in such pieces, each to the kernel behind its copy: no more is held twice.
inline constexpr usize kMovedPieceBytes = kPurgeBytesPerCall / 4;

// Hardened build.

// The option quarantine_bytes holds for processes of up to so many threads; of more, they share.
inline constexpr usize kQuarantineThreads = 16;
// They enter the queue by so many at once, fewer of larger blocks: a slow path for each few calls.
inline constexpr u32 kBatchBlocks = 16;
// Free neighbours in random order, half as many of larger blocks: a processor fetches ahead while they lie close.
inline constexpr unsigned kNeighboursMost = 16;
// A random number of units in front of a run stays free, at most this many: its place is hard to predict.
inline constexpr usize kRandomGapUnits = 3;
// What a process may spend on seals before the allowance a millisecond (option hardening_rate) binds it.
inline constexpr usize kAllowanceStock = 512 * kMiB;
// The price of a seal: two system calls and the faults of the block's next use. The stock pays 64 of the dearest.
constexpr usize seal_cost(usize bytes) { return min_of(kMiB / 2 + 4 * bytes, kAllowanceStock / 64); }
// Refused seals from one look at the clock to the next, which earns.
inline constexpr u32 kSealsPerClock = 16;
// A run is sealed whatever the allowance says if this many of its pages, spread over it, are zero.
inline constexpr usize kPagesTried = 4;
// Addresses of sealed runs wait for so many later ones, of which each touches 3 KiB or a page of records, or for so
// many bytes of them: all their records, 1 % of the bytes, count against limits.
inline constexpr unsigned kWaitingSpans = 2048;
inline constexpr usize kWaitingBytes = 5 * kGiB;
// A free span up to this size is checked when it is taken, since it went back zero: bounds how long that takes.
inline constexpr usize kLookedAtBytesMax = 8 * kMiB;
// A check of the heap by malloc_trim looks at so much. A run, and the tags of a group, count as this much.
inline constexpr usize kTrimCheckBytes = 16 * kMiB;
inline constexpr usize kWalkLookBytes = 4 * kKiB;
// It looks at so much of a slab at once if all of it is free, and at so much of an untouched block beside a used one.
inline constexpr usize kLookedAtOnceBytes = kKiB;
inline constexpr usize kBesideBytes = 64;

// Background.

// The background thread sleeps for a tick, within these bounds.
inline constexpr u64 kBackgroundMinMs = 20;
inline constexpr u64 kBackgroundMaxMs = 1000;
// The live page is renewed, and memory pressure looked at, once in so long.
inline constexpr u64 kLivePagePeriodMs = 500;
inline constexpr u64 kPressurePeriodMs = 100;

}  // namespace freestone
