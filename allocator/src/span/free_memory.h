// Room 6, span: in the hardened build free memory is zero (HARD-2), so a write to it is seen when it is next looked at.
//
// A look at a page without memory is a fault, but brings no memory: the kernel shows its page of zeros. Nobody asks the
// kernel which pages there are: filters of system calls end a program for that question.
#pragma once

#include <cstring>

#include "base/bits.h"
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

// The same for a free run that only the caller can reach. A fresh one was looked at when it was taken.
inline void expect_run_clear(void* run, usize bytes) {
  if (!kMitigations.zero_on_free || record_of(unit_of(run)).run_state == RunState::fresh) return;
  expect_clear(run, bytes);
}

// The same for free units that nobody can take meanwhile. Guards hold nothing.
void expect_units_clear(UnitIndex first, usize units);

}  // namespace freestone
