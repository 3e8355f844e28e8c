// A small heap for the explorer: metadata and tags exist, blocks have addresses and no memory. Stands in for the rooms
// region and span.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "explore/explorer.h"
#include "region/region.h"
#include "slab/slab.h"

namespace explore {

inline constexpr freestone::usize kSupers = 3;

// Before anything else; no execution may run.
void make_world();
// How many slabs the code asked for, or gave back, since the last reset.
extern unsigned spans_returned;
// The next span to be had, freestone::kNoUnit for none.
extern freestone::UnitIndex next_span;

// FREESTONE_EXPLORE_PREEMPTIONS and FREESTONE_EXPLORE_STALE make the search longer.
inline Bounds bounds(unsigned preemptions, unsigned stale) {
  const auto given = [](const char* name, unsigned value) {
    const char* text = std::getenv(name);
    return text == nullptr ? value : static_cast<unsigned>(std::atoi(text));
  };
  return {given("FREESTONE_EXPLORE_PREEMPTIONS", preemptions), given("FREESTONE_EXPLORE_STALE", stale)};
}

inline Outcome explore_and_print(const Scenario& scenario, Bounds limits) {
  Outcome outcome = explore(scenario, limits);
  std::printf("%llu executions with at most %u interruptions and %u stale loads\n",
              static_cast<unsigned long long>(outcome.executions), limits.preemptions, limits.stale);
  return outcome;
}

}  // namespace explore
