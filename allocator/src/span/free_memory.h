// Room 6, span: in the hardened build free memory is zero (HARD-2), so a write to it is seen when it is next looked at.
#pragma once

#include <cstring>

#include "base/bits.h"
#include "base/chunks.h"
#include "platform/message.h"
#include "platform/os.h"
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

// Which pages the kernel had of up to 8 MiB. One that it did not have is zero or swapped out, and a look at it would be
// a page fault. If others may use the memory meanwhile, the answer is out of date.
class ResidentPages {
 public:
  ResidentPages() : memory_(nullptr), bytes_(0), is_known_(false) {}
  ResidentPages(char* memory, usize bytes)
      : memory_(memory),
        bytes_(bytes),
        is_known_(bytes <= kPagesMax * page_ && !os::resident_pages(memory, bytes, present_)) {}
  bool has(const char* from, usize bytes) const {
    if (!is_known_) return true;
    const auto at = static_cast<usize>(from - memory_);
    for (usize page = at >> shift_; page <= (at + bytes - 1) >> shift_; ++page) {
      if ((present_[page] & 1) != 0) return true;
    }
    return false;
  }
  // How many of them.
  usize count() const {
    usize pages = 0;
    for (usize page = 0; page * page_ < bytes_; ++page) pages += is_known_ ? present_[page] & 1U : 1;
    return pages;
  }
  // is_clear, of those pages that the kernel has.
  bool are_clear(const char* from, usize bytes) const {
    for (const char* const end = from + bytes; from < end;) {
      const usize piece = min_of(left_of_page(from), static_cast<usize>(end - from));
      if (has(from, piece) && !is_clear(from, piece)) return false;
      from += piece;
    }
    return true;
  }
  // Whether it covers a range.
  bool knows(const char* from, usize bytes) const {
    return is_known_ && address_of(from) >= address_of(memory_) &&
           address_of(from) + bytes <= address_of(memory_) + bytes_;
  }
  usize page_bytes() const { return page_; }
  usize left_of_page(const char* from) const { return page_ - (address_of(from) & (page_ - 1)); }

 private:
  static constexpr usize kPagesMax = kKeptRunBytesMax / (4 * kKiB);
  const char* memory_;
  usize bytes_;
  usize page_ = os::page_bytes();
  unsigned shift_ = lowest_bit(page_);
  u8 present_[kPagesMax];
  bool is_known_;
};

// expect_clear, of those pages that the kernel has.
inline void expect_clear(void* memory, usize bytes, const ResidentPages& pages) {
  if (FREESTONE_UNLIKELY(!pages.are_clear(static_cast<const char*>(memory), bytes))) expect_clear(memory, bytes);
}
inline void expect_resident_clear(char* memory, usize bytes) {
  expect_clear(memory, bytes, ResidentPages(memory, bytes));
}

// The same for a free class run that only the caller can reach, as far as the kernel has memory for it. A fresh one was
// looked at when it was taken.
inline void expect_run_clear(void* run, usize bytes) {
  const u8 is_fresh = record_of(unit_of(run)).is_fresh;
  if (!kMitigations.zero_on_free || is_fresh == kFreshRun) return;
  is_fresh == kEmptiedRun ? expect_resident_clear(static_cast<char*>(run), bytes) : expect_clear(run, bytes);
}

// The same for free units that nobody can take meanwhile. Guards hold nothing.
void expect_units_clear(UnitIndex first, usize units, const ResidentPages& pages);
inline void expect_units_clear(UnitIndex first, usize units) {
  if constexpr (!kMitigations.zero_on_free) return;
  expect_units_clear(first, units, ResidentPages(unit_address(first), units_to_bytes(units)));
}

}  // namespace freestone
