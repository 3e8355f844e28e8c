// Room 1, base: the checks of src/base/check.h, always on. What they load is the newest value and no step of an
// execution; one that does not hold ends the execution as wrong.
#pragma once

#include "base/compiler.h"
#include "explore/explorer.h"

namespace freestone {
inline constexpr bool kChecks = true;
[[noreturn]] void fail_check(const char* label, const char* condition);
}  // namespace freestone

#define FREESTONE_CHECK(label, condition)                                           \
  do {                                                                              \
    if (const explore::Look look; !(condition)) explore::broken(label, #condition); \
  } while (false)
