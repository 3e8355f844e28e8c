// Room 6, span: the law of retention, how much memory that fell out of use is kept for reuse.
//
// The first time that a program's use falls, nobody knows whether it will rise again: a share is kept, the rest is
// surplus. What falls and comes back was a swing, and giving memory back in between only cost faults: from then on a
// fall as deep is kept as a whole. A swing is observed from the use alone, whether or not anything was given back:
// keeping memory for a swing does not hide the next swing. All of it is forgotten with one half-life: the recent peak,
// above which nothing is kept, and the swing. The use is what the caller says: memory that did not fit a request may
// count, too.
//
//   use   top  ..../\........../\            the swing is what came back: min(use, top) - trough
//                 /  \        /  \           idle: nobody called for a whole tick; then top and trough are forgotten
//         _______/    \______/    \___
//                      trough
//
// KEEP-1  use + kept(use) is never above the recent peak.
//
// Two things follow it: free spans (purge.cc), and free pages inside slabs (slab/slab_purge.cc). Time is a parameter,
// in ticks, of which a half-life has kTicksPerHalfLife. No lock here.
#pragma once

#include "base/check.h"
#include "base/units.h"

namespace freestone {

inline constexpr u64 kTicksPerHalfLife = 32;

// The highest of some values. What is not seen again in a window loses half in a half-life.
class FadingMost {
 public:
  static constexpr u64 kWindowsPerHalfLife = 4;
  usize value() const { return value_; }
  void note(usize value) {
    value_ = max_of(value_, value);
    seen_ = max_of(seen_, value);
  }
  // So many windows ended; never below `floor`.
  void fade(u64 windows, usize floor) {
    static_assert(kWindowsPerHalfLife == 4);
    usize beyond = value_ - min_of(value_, floor);
    for (u64 k = min_of<u64>(windows, kForgotten); k > 0; --k) beyond -= (beyond * 41 + 255) / 256;  // 2^(-1/4) stays
    if (windows >= kForgotten) beyond = 0;
    value_ = max_of(floor + beyond, windows == 1 ? seen_ : 0);
    seen_ = floor;
  }

 private:
  static constexpr u64 kForgotten = 16 * kWindowsPerHalfLife;
  usize value_ = 0;
  usize seen_ = 0;  // in this window
};

class Retention {
 public:
  // The use is `use` now.
  void note(usize use, u64 now) {
    if (FREESTONE_UNLIKELY(now != now_)) pass_to(use, now);
    if (const usize back = min_of(use, top_); back > trough_) swing_.note(back - trough_);
    peak_.note(use);
    if (use >= top_) top_ = trough_ = use;
    trough_ = min_of(trough_, use);
    FREESTONE_CHECK("KEEP-1", use + kept(use, ~usize{0}) <= peak_.value());
  }

  // How much is worth keeping beyond the use: of what it fell by, the share or what came back before. A fall of more
  // than 1.5 times the largest swing ends the pattern: then only the share is kept.
  usize kept(usize use, usize share) const {
    const usize fell = top_ - min_of(use, top_);
    const usize swing = fell > swing_.value() + swing_.value() / 2 ? 0 : swing_.value();
    return min_of(peak_.value() - min_of(use, peak_.value()), max_of(share, swing));
  }

 private:
  static constexpr u64 kWindowTicks = kTicksPerHalfLife / FadingMost::kWindowsPerHalfLife;

  void pass_to(usize use, u64 now) {
    if (const u64 windows = now / kWindowTicks - now_ / kWindowTicks; windows != 0) {
      swing_.fade(windows, 0);
      peak_.fade(windows, use);
      top_ = min_of(top_, peak_.value());
    }
    if (now - now_ > 1) top_ = trough_ = use;
    now_ = now;
  }

  FadingMost peak_;   // the recent peak
  FadingMost swing_;  // the largest swing
  usize top_ = 0;     // the highest use since a trough was left behind
  usize trough_ = 0;  // the lowest use since then
  u64 now_ = 0;
};

}  // namespace freestone
