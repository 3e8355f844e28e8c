// writer/clock.h: the clock, and the counter by which programs date their calls.
#pragma once

#include <cstdint>

namespace freestone::trace {

uint64_t monotonic_ns();

// Where the counter stood at a time of the clock. The two cannot be read at once, so the quickest of several readings
// counts: a writer that lost its processor between them would date calls wrongly.
struct Instant {
  uint64_t tick = 0;
  uint64_t ns = 0;
};

Instant read_instant();

}  // namespace freestone::trace
