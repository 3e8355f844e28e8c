// Room 1, base: checks of the invariants that comments state, named by their labels.
//
// Builds with FREESTONE_CHECKS=1 run them: dev, sanitizers, coverage, fuzz targets, the explorer. A check that fails
// ends the process with a line that names it. Other builds compile the conditions and drop every instruction.
#pragma once

#include "base/compiler.h"

#ifndef FREESTONE_CHECKS
#define FREESTONE_CHECKS 0
#endif

namespace freestone {

inline constexpr bool kChecks = FREESTONE_CHECKS != 0;

// "freestone: SLAB-2 does not hold: CONDITION", then SIGABRT. The platform room defines it.
[[noreturn]] void fail_check(const char* label, const char* condition);

}  // namespace freestone

#define FREESTONE_CHECK(label, condition)                                               \
  do {                                                                                  \
    if constexpr (::freestone::kChecks) {                                               \
      if (FREESTONE_UNLIKELY(!(condition))) ::freestone::fail_check(label, #condition); \
    }                                                                                   \
  } while (false)
