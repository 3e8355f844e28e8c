// Room 6, span: in the hardened build free memory is zero (HARD-2), so a write to it is seen when it is next looked at.
#pragma once

#include <cstring>

#include "base/chunks.h"
#include "platform/message.h"
#include "policy/policy.h"
#include "region/region.h"

namespace freestone {

// Ends the program when memory that must be zero is not. With on_error:report it clears the memory instead.
inline void expect_clear(void* memory, usize bytes) {
  if constexpr (!kMitigations.zero_on_free) return;
  if (FREESTONE_LIKELY(is_clear(static_cast<const char*>(memory), bytes))) return;
  misuse("write after free", memory,
         {.block_bytes = bytes, .wrong_byte = first_not_zero(static_cast<const char*>(memory), bytes)});
  std::memset(memory, 0, bytes);
}

// The same for free units that nobody can take meanwhile. Guards hold nothing.
void expect_units_clear(UnitIndex first, usize units);

}  // namespace freestone
