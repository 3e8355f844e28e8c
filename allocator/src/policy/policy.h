// Room 2, policy: which mitigations a build has. One structural constant; empty in the fast build.
//
// FREESTONE_MITIGATIONS chooses the bits at build time. A build can have a single one, to measure its cost. Code asks
// with `if constexpr`, so both branches always compile and a mitigation that is off leaves no instruction.
// docs/HARDENING.md has the defence and the cost of each.
#pragma once

#include "base/units.h"

#ifndef FREESTONE_MITIGATIONS
#define FREESTONE_MITIGATIONS 0
#endif

namespace freestone {

struct Mitigations {
  bool trailer;  // a canary and a keyed word behind every block find double and invalid frees, overflows by one byte,
                 // and wrong sizes, alignments and origins
  bool zero_on_free;  // freed memory is cleared; all of it must still be clear whenever it changes hands
  bool random_order;  // a slab hands out neighbouring blocks in random order
  bool quarantine;    // freed blocks wait, and leave in random order; the addresses of a slab serve one size class
  bool guards;  // memory before and behind every slab and run is inaccessible, as is memory that went back to the
                // kernel
  bool neighbours;    // a free also checks the end of the block before
  bool zero_size;     // malloc(0) returns an address that faults
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

// Consequences of the mitigations elsewhere. Each names the mitigations that need it, so a build with a single one is
// otherwise the fast build.

// The exported functions go through the room hardened, which knows a live block by its trailer. The fast build's own
// looks at frees are left out (CACHE-5).
inline constexpr bool kChecksEveryCall = kMitigations.trailer;
// Blocks go from one thread's cache to another's and past the slabs: in transfer bins, in a parked cache. Off if the
// next owner must not receive the block freed last.
inline constexpr bool kHandsBlocksOn = !kMitigations.random_order && !kMitigations.quarantine;
// A freed class run waits unchanged for the next request of its length, and several are taken at once. Off if it must
// be checked as it goes back, or lies between guards.
inline constexpr bool kKeepsClassRuns = !kMitigations.zero_on_free && !kMitigations.guards;
// Blocks that go back to their slabs are sorted by the word of their bit: their order is random if they leave the slab
// or the cache in random order, and a check of each block visits them by address.
inline constexpr bool kSortsReturns =
    kMitigations.random_order || kMitigations.quarantine || kMitigations.zero_on_free;
// Frames of 2 MiB get their memory at once. Off if guards lie in them.
inline constexpr bool kFillsFrames = !kMitigations.guards;
// Blocks of types that hold pointers have slabs of their own, if the compiler says so (abi/compiler_calls.cc): a stale
// or overflowing pointer to bytes then never meets a pointer. It needs addresses that serve one class.
inline constexpr unsigned kPartitions = kMitigations.quarantine ? 2 : 1;
// Sparse slabs become ground, whose holes serve every class. Off if addresses serve one class, or if what a block holds
// beside the program's bytes follows from its place in a slab.
inline constexpr bool kSharesGround = kMitigationBits == 0;

// The bytes of each block that the program cannot use: its check word.
inline constexpr usize kHeldBackBytes = kMitigations.trailer ? sizeof(u64) : 0;

// No block is smaller, so both of its ends can be checked and cleared without looking at the size.
inline constexpr usize kBlockBytesMin = kMitigations.trailer ? 32 : 16;

}  // namespace freestone
