// Room 5, region: memory that went to the kernel and came from it, counted by cause, so every page fault and every call
// has a cause. Any thread, no lock; relaxed, since these are statistics.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"
#include "region/purge_budget.h"

namespace freestone {

enum class WentBack : unsigned {
  surplus,    // free spans beyond what may stay
  decay,      // free spans that nobody needed for a while
  slabs,      // whole free pages inside slabs, after few live blocks were left or the pages grew cold
  trim,       // the program asked
  shortage,   // a limit was reached, memory is short, or the kernel refused
  hardening,  // freed blocks that are sealed or cleared
  mapping,    // own mappings, unmapped
};
inline constexpr unsigned kWentBackKinds = 7;

// Ranges that were taken without memory behind them: the first touch of each page faults.
enum class Came : unsigned {
  fresh,      // never used before
  again,      // it went back before
  populated,  // populated by one call instead of a fault per page; also counted above
  mapping,    // own mappings
};
inline constexpr unsigned kCameKinds = 4;

struct Traffic {
  Atomic<u64> back_bytes[kWentBackKinds];
  Atomic<u64> back_calls[kWentBackKinds];
  Atomic<u64> came_bytes[kCameKinds];
};
extern FREESTONE_HIDDEN Traffic traffic;

inline void note_back(WentBack why, usize bytes) {
  traffic.back_bytes[static_cast<unsigned>(why)].add_relaxed(bytes);
  traffic.back_calls[static_cast<unsigned>(why)].add_relaxed(1);
  if (why <= WentBack::slabs) purge_budget.went_back(bytes);
}
inline void note_came(Came how, usize bytes) {
  traffic.came_bytes[static_cast<unsigned>(how)].add_relaxed(bytes);
  if (how == Came::again) purge_budget.came_again(bytes);
}

// Gives the memory of a range of whole pages back and keeps the range. False if the kernel refuses, as it does where a
// page is locked, or if a page reaches beyond the range, as pages larger than a unit may.
bool purge_range(void* start, usize bytes, WentBack why);

// Whether the kernel refused kRefusalsMax times in a row, less than kRefusedMs ago, or the thread keeps its pages: then
// purge_range refuses by itself.
bool purges_pause();
// Called where memory must go back now: the kernel is asked again.
void end_purge_pause();
// The outcome of a call that gives memory back beside purge_range.
void note_purge(bool went);

}  // namespace freestone
