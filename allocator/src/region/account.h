// Room 5, region: the account of what the allocator holds. Limits bound this figure.
//
// ACCOUNT-1  At rest `charged` is the sum of 16 KiB for every unit in use, 16 KiB for every dirty free unit, the bytes
//            of own mappings, and the accessible metadata. No block is charged by itself, so the fast paths do not
//            touch the account.
// ACCOUNT-2  `charged` rises only through charge() and charge_ahead(), never above the hard limit, or through
//            charge_anyway(), for what the start needs. Code that takes memory charges first; code that gives it back
//            uncharges afterwards. So the memory in use never exceeds the limit either, not even for a moment.
//
// Any thread, no lock. Slow paths read `attention` to learn that a room above wants to run.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

namespace freestone {

inline constexpr usize kNoLimit = ~usize{0};

struct Account {
  Atomic<usize> charged;
  Atomic<usize> peak;             // the highest `charged` so far
  Atomic<usize> soft{kNoLimit};
  Atomic<usize> hard{kNoLimit};
  Atomic<u64> soft_crossings;     // charges that found `charged` above the soft limit
  Atomic<u64> refused_charges;    // charges that would have exceeded the hard limit
};
extern FREESTONE_HIDDEN Account account;

// Adds to the account. False, with nothing changed, if the hard limit forbids it.
bool charge(usize bytes);
// The same for memory that the kernel may still refuse. If it does, uncharge() leaves no trace. Once the kernel has
// given the memory, confirm_charge() updates the peak and checks the soft limit.
bool charge_ahead(usize bytes);
void confirm_charge();
void charge_anyway(usize bytes);
void uncharge(usize bytes);
inline bool is_limited() { return account.hard.load_relaxed() != kNoLimit; }

// The reasons why a slow path should call the attention hook; 0: none.
inline constexpr u32 kAttentionSoftLimit = 1;  // the soft limit was crossed
inline constexpr u32 kAttentionDump = 2;       // a signal asked for statistics
inline constexpr u32 kAttentionTimer = 4;      // some work recurs by the clock
inline constexpr u32 kAttentionBackground = 8;  // the background thread should start
extern FREESTONE_HIDDEN Atomic<u32> attention;
// Runs on the thread that found `attention` nonzero. That thread holds no lock and is inside no slow path. The upkeep
// room defines it.
using AttentionHook = void (*)();
extern FREESTONE_HIDDEN const AttentionHook attention_hook;

inline void attend() {
  if (FREESTONE_UNLIKELY(attention.load_relaxed() != 0)) attention_hook();
}

// Rises when memory is short. A thread that sees a new value on a slow path gives its cache back.
extern FREESTONE_HIDDEN Atomic<u32> pressure_epoch;

}  // namespace freestone
