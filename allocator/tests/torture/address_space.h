// A kernel with other bounds than the real one has: larger pages, or a full table of mappings.
#pragma once

#include "base/units.h"

namespace freestone::os {

struct Arguments {
  usize at[6];
  usize& operator[](usize index) { return at[index]; }
};

// The system call itself.
long call_kernel(long number, const Arguments& arguments);

// Serves a memory call as a kernel does whose pages have `page` bytes: it refuses places that do not lie on a page's
// border, takes whole pages, and maps at their borders.
long call_with_pages(long number, Arguments arguments, usize page);

// Refuses what adds a mapping, as a kernel does whose table of mappings is full. An mremap to a fixed place unmaps
// that place first. False: the call adds none.
bool refuse_mapping(long number, const Arguments& arguments, long& result);

}  // namespace freestone::os
