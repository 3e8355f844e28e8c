// writer/clock.h: the clock, and the counter that programs use to date their calls.
#pragma once

#include <cstdint>

namespace freestone::trace {

uint64_t monotonic_ns();

// The counter's value at a time of the clock. Nobody can read both at once, so the quickest of several readings counts:
// a writer that lost its processor between the two would date calls wrongly.
struct Instant {
  uint64_t tick = 0;
  uint64_t ns = 0;
};

Instant read_instant();

}  // namespace freestone::trace
