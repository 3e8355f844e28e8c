// Room 5, region: the account of what the allocator holds, which is the figure that limits are about.
//
// ACCOUNT-1  At rest `charged` is: 16 KiB for every unit in use, 16 KiB for every dirty free unit, the bytes of own
//            mappings, and the accessible metadata. A block is never charged for by itself, so the fast paths know
//            nothing of it.
// ACCOUNT-2  `charged` rises only through charge() and charge_ahead(), never above the hard limit, or through
//            charge_anyway(), for what the start needs. Whoever takes memory charges first; whoever gives it back
//            uncharges afterwards. So the memory in use never exceeds the limit either, not even for a moment.
//
// Any thread, no lock. `attention` is what slow paths look at to learn that something above wants to run there.
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

// Adds to the account; false, and nothing is changed, when the hard limit forbids it.
bool charge(usize bytes);
// The same for memory that the kernel may still refuse: then uncharge() leaves no trace. Once the kernel
// has given it, confirm_charge() looks at the peak and at the soft limit.
bool charge_ahead(usize bytes);
void confirm_charge();
void charge_anyway(usize bytes);
void uncharge(usize bytes);
inline bool is_limited() { return account.hard.load_relaxed() != kNoLimit; }

// The reasons why a slow path should call the attention hook; 0 while nothing wants it.
inline constexpr u32 kAttentionSoftLimit = 1;  // the soft limit was crossed
inline constexpr u32 kAttentionDump = 2;       // a signal asked for statistics
inline constexpr u32 kAttentionTimer = 4;      // something is to be done every so many milliseconds
inline constexpr u32 kAttentionBackground = 8;  // the background thread is to be started
extern FREESTONE_HIDDEN Atomic<u32> attention;
// Runs on the thread that found `attention` nonzero, with no lock held and no slow path under way. The upkeep room
// defines it.
using AttentionHook = void (*)();
extern FREESTONE_HIDDEN const AttentionHook attention_hook;

inline void attend() {
  if (FREESTONE_UNLIKELY(attention.load_relaxed() != 0)) attention_hook();
}

// Rises when memory is short: a thread that sees a new value on a slow path gives its cache back.
extern FREESTONE_HIDDEN Atomic<u32> pressure_epoch;

}  // namespace freestone
