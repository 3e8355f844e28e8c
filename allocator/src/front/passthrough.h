// Room 9, front: the malloc behind this one, for FREESTONE_DISABLE=1.
#pragma once

#include "base/units.h"

namespace freestone {

// Finds it: libc's, or that of a library preloaded after this one. False where there is none, as in a static program.
// Called once, before the mode is published.
bool find_next_malloc();

void* passthrough_malloc(usize bytes);
void* passthrough_calloc(usize bytes);
void* passthrough_realloc(void* block, usize bytes);
void* passthrough_aligned(usize bytes, usize alignment);
void passthrough_free(void* block);
usize passthrough_usable_size(const void* block);

}  // namespace freestone
