// Room 6, span: how much of the memory that fell out of use is likely to be needed again soon.
//
// The first time that a program's use shrinks, nobody knows whether it will rise again. The surplus then goes at once,
// so a program that goes idle after its peak holds little. If use rises again soon, that was a swing, and giving memory
// back in between only cost faults: the next time as much is kept. A swing is observed from the use alone, whether or
// not anything was given back, so keeping it does not make it forgotten; it fades when it is no longer seen.
//
//   use   peak ..../\........../\            the swing is what came back: min(use, peak) - trough
//                 /  \        /  \           soon: within kSoonMs of the trough
//         _______/    \______/    \___       idle: nobody called for kIdleMs; then the trough is forgotten
//                      trough
//
// NEED-1  use + kept(use) is never above the peak of the last moments.
//
// Time is a parameter. No lock here.
#pragma once

#include "base/check.h"
#include "base/units.h"

namespace freestone {

class RecentNeed {
 public:
  static constexpr u64 kIdleMs = 100;
  static constexpr u64 kSoonMs = 1000;
  static constexpr u64 kFadeMs = 2000;  // in which half of what is not seen again is forgotten

  // The use is `use` now.
  void note(usize use, u64 now_ms) {
    if (now_ms - fade_ms_ >= kFadeMs) fade(use, now_ms);
    const bool idle = now_ms - seen_ms_ > kIdleMs;
    seen_ms_ = now_ms;
    recent_peak_ = max_of(recent_peak_, use);
    peak_seen_ = max_of(peak_seen_, use);
    const bool soon = !idle && now_ms - trough_ms_ <= kSoonMs;
    if (const usize back = min_of(use, peak_); soon && back > trough_) note_swing(back - trough_);
    if (use >= peak_ || !soon) {
      peak_ = trough_ = use;
      trough_ms_ = now_ms;
    } else if (use <= trough_) {
      trough_ = use;
      trough_ms_ = now_ms;
    }
    FREESTONE_CHECK("NEED-1", use + kept(use) <= recent_peak_);
  }

  // How much is worth keeping beyond the use. Nothing once the use fell much further than any swing: then something
  // else has ended.
  usize kept(usize use) const {
    if (peak_ - min_of(use, peak_) > swing_ + swing_ / 2) return 0;
    return min_of(swing_, recent_peak_ - min_of(use, recent_peak_));
  }

 private:
  void note_swing(usize swing) {
    swing_ = max_of(swing_, swing);
    swing_seen_ = max_of(swing_seen_, swing);
  }
  // A pause of 16 times kFadeMs leaves nothing.
  void fade(usize use, u64 now_ms) {
    const u64 times = min_of<u64>((now_ms - fade_ms_) / kFadeMs, 16);
    fade_ms_ = now_ms;
    swing_ = times == 16 ? 0 : swing_seen_ + ((swing_ - swing_seen_) >> times);
    recent_peak_ = times == 16 ? use : peak_seen_ + ((recent_peak_ - peak_seen_) >> times);
    swing_seen_ = 0;
    peak_seen_ = use;
  }

  usize peak_ = 0;         // the highest use since a trough was left behind
  usize trough_ = 0;       // the lowest use since the peak
  usize swing_ = 0;        // the largest that was seen, fading
  usize swing_seen_ = 0;   // the largest since it last faded
  usize recent_peak_ = 0;  // the highest use, fading
  usize peak_seen_ = 0;    // the highest since it last faded
  u64 trough_ms_ = 0;
  u64 seen_ms_ = 0;
  u64 fade_ms_ = 0;
};

}  // namespace freestone
