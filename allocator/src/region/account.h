// Room 5, region: the account of the memory that the allocator holds. Limits bound this figure.
//
// ACCOUNT-1  At rest `charged` is the sum of 16 KiB for every unit in use, 16 KiB for every dirty free unit, the bytes
//            of own mappings, and the accessible metadata. No block is charged by itself, so the fast paths do not
//            touch the account.
// ACCOUNT-2  `charged` rises only through charge() and charge_ahead(), never above the hard limit, or through
//            charge_anyway(), for the needs of the start. Code charges before it takes memory and uncharges after it
//            gave memory back, so the memory in use never exceeds the limit, not even for a moment.
// ACCOUNT-3  `charged` is the memory of ACCOUNT-1 plus each thread's lead: memory that it charged and has not taken
//            yet, or gave back and has not uncharged yet. At rest no thread leads. So the child of a fork counts the
//            account again from its memory and the thread that settles it: no other leads before (FORK-4).
//
// Any thread, no lock. Slow paths read `attention` to learn that a room above wants to run.
#pragma once

#include "base/atomic.h"
#include "base/check.h"
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

// ACCOUNT-3, of the calling thread; modulo 2^64.
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL usize bytes_ahead;
// Called where what counts as in use changes.
inline void note_in_force(usize bytes) { bytes_ahead -= bytes; }
inline void note_out_of_force(usize bytes) { bytes_ahead += bytes; }
// In the child of a fork.
void recount_charged(usize in_force);
inline bool is_limited() { return account.hard.load_relaxed() != kNoLimit; }

// The reasons why a slow path should call the attention hook; 0: none.
inline constexpr u32 kAttentionSoftLimit = 1;  // the soft limit was crossed
inline constexpr u32 kAttentionDump = 2;       // a signal asked for statistics
inline constexpr u32 kAttentionTimer = 4;      // some work recurs by the clock
inline constexpr u32 kAttentionBackground = 8;  // the background thread should start
inline constexpr u32 kAttentionLook = 16;       // a profile runs because somebody looks from outside
inline constexpr u32 kAttentionAsked = 0xff00'0000;  // another process asks; it writes this byte of the word
extern FREESTONE_HIDDEN Atomic<u32> attention;
// Runs on the thread that found `attention` nonzero. That thread holds no lock and is inside no slow path. The upkeep
// room defines it.
using AttentionHook = void (*)();
extern FREESTONE_HIDDEN const AttentionHook attention_hook;

inline void attend() {
  FREESTONE_CHECK("ACCOUNT-3", bytes_ahead == 0);
  if (FREESTONE_UNLIKELY(attention.load_relaxed() != 0)) attention_hook();
}

// Rises when memory is short. A thread that sees a new value on a slow path gives its cache back.
extern FREESTONE_HIDDEN Atomic<u32> pressure_epoch;

}  // namespace freestone
