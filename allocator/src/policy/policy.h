// Room 2, policy: which mitigations a build has. One structural constant; empty in the fast build.
//
// The bits are chosen at build time (FREESTONE_MITIGATIONS; each can be built alone, so that its cost can be drawn).
// Code asks with `if constexpr`, so both branches always compile and what is off leaves no instruction. What each one
// defends against, and what it costs, stands in docs/HARDENING.md.
#pragma once

#include "base/units.h"

#ifndef FREESTONE_MITIGATIONS
#define FREESTONE_MITIGATIONS 0
#endif

namespace freestone {

struct Mitigations {
  bool trailer;  // a canary and a keyed word behind every block: double and invalid free, overflow by one byte, wrong
                 // sizes, alignments and origins
  bool zero_on_free;  // freed memory is cleared, and must still be clear, all of it, whenever it changes hands
  bool random_order;  // the order in which blocks of a fresh slab are handed out
  bool quarantine;    // freed blocks wait, and leave in random order
  bool guards;  // inaccessible memory behind and before every slab and run, and in place of memory that went back to
                // the kernel
  bool neighbours;    // a free looks at the end of the block before, too
  bool zero_size;     // malloc(0) gives an address that faults

  constexpr bool any() const {
    return trailer || zero_on_free || random_order || quarantine || guards || neighbours || zero_size;
  }
};

inline constexpr unsigned kMitigationBits = FREESTONE_MITIGATIONS;
inline constexpr Mitigations kMitigations = {
    .trailer = (kMitigationBits & 1U) != 0,
    .zero_on_free = (kMitigationBits & 2U) != 0,
    .random_order = (kMitigationBits & 4U) != 0,
    .quarantine = (kMitigationBits & 8U) != 0,
    .guards = (kMitigationBits & 16U) != 0,
    .neighbours = (kMitigationBits & 32U) != 0,
    .zero_size = (kMitigationBits & 64U) != 0,
};
static_assert(!kMitigations.neighbours || kMitigations.trailer, "a neighbour is known by its trailer");
static_assert(!kMitigations.zero_on_free || kMitigations.trailer,
              "fresh blocks are told from freed ones by the trailer");
static_assert(!kMitigations.quarantine || kMitigations.trailer,
              "only what the trailer checked goes into the quarantine");
static_assert(!kMitigations.zero_size || kMitigations.trailer, "zero-size blocks return through the checked free");

// The bytes of each block that the program cannot use: its check word.
inline constexpr usize kHeldBackBytes = kMitigations.trailer ? sizeof(u64) : 0;

// Blocks are no smaller, so that their two ends can be checked and cleared without looking at the size.
inline constexpr usize kBlockBytesMin = kMitigations.trailer ? 32 : 16;

// A free clears so many bytes at the start of a large run that is not sealed.
inline constexpr usize kClearAlwaysBytes = 256;
// What a thread may seal before the allowance per millisecond (option hardening_rate) binds it, and what one seal
// counts for: two calls of the kernel, and the faults of the block's next use. The stock covers 64 of the largest.
inline constexpr usize kAllowanceStock = 512 * kMiB;
constexpr usize seal_cost(usize bytes) { return min_of(kMiB / 2 + 4 * bytes, kAllowanceStock / 64); }
// Beyond the allowance one large run in so many is sealed all the same.
inline constexpr unsigned kSealAnyway = 8;
// The quarantine of a thread: places for small blocks, and for larger ones up to the largest in a slab.
inline constexpr usize kQuarantineSmallMax = 256;
inline constexpr unsigned kQuarantineSmallPlaces = 64;
inline constexpr unsigned kQuarantineMediumPlaces = 4;
// Spans up to this size are looked at when they are taken from among the free ones: they were given back zero.
inline constexpr usize kLookedAtBytesMax = 256 * kKiB;
// The process keeps so many freed runs sealed, up to this size. Larger ones lose their memory and go.
inline constexpr unsigned kSealedPlaces = 64;
inline constexpr usize kSealedBytesMax = 4 * kMiB;
// Cleared class runs wait in so many places for each of so many groups of threads: at most 2 MiB in all.
inline constexpr unsigned kWaitingRuns = 4;
inline constexpr unsigned kWaitingSets = 4;
// A class run that the program used in part loses its memory so many times when it is freed. Later it is cleared, so
// that a block that comes and goes needs no system call.
inline constexpr unsigned kEmptiedTimes = 2;
// Up to so many units in front of a run stay free, at random, so that the place of the next run cannot be predicted.
inline constexpr usize kRandomGapUnits = 3;

}  // namespace freestone
