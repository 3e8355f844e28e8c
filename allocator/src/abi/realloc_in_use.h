// Room 20, abi: the realloc that reallocarray leads to.
#pragma once

#include "base/units.h"

namespace freestone {

// Ours, or the one of a program that has a malloc of its own but no reallocarray: glibc's reallocarray leads there,
// too.
void* realloc_in_use(void* block, usize bytes);

}  // namespace freestone
