#include "writer/clock.h"

#include <ctime>

#include "recorder/shared.h"

namespace freestone::trace {
namespace {

constexpr unsigned kReadings = 16;
constexpr uint64_t kCloseNs = 2000;  // a reading of both clocks within this time is good enough

}  // namespace

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

Instant read_instant() {
  Instant best;
  uint64_t least = ~uint64_t{0};
  for (unsigned i = 0; i < kReadings && least > kCloseNs; i++) {
    const uint64_t before = monotonic_ns();
    const uint64_t tick = fsr_ticks();
    const uint64_t took = monotonic_ns() - before;
    if (took < least) best = {tick, before + took / 2}, least = took;
  }
  return best;
}

}  // namespace freestone::trace
