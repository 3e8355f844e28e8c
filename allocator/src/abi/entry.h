// Room 20, abi: what serves the exported functions: the heap itself in the fast build, the checks around it in the
// hardened build.
#pragma once

#include "hardened/checked.h"
#include "hardened/paths.h"

namespace freestone {

template <void* (*Slow)(usize) = allocate_slow>
FREESTONE_INLINE void* serve_malloc(usize bytes, Origin origin = Origin::c_call) {
  if constexpr (kChecksEveryCall) {
    return hardened::allocate_checked(bytes, origin);
  } else {
    return allocate<Slow>(bytes);
  }
}

FREESTONE_INLINE void serve_free(void* block, Origin origin = Origin::c_call, usize bytes = kUnknownBytes) {
  if constexpr (kChecksEveryCall) {
    hardened::deallocate_checked(block, bytes, origin);
  } else {
    deallocate(block);
  }
}

FREESTONE_INLINE void* serve_calloc(usize bytes) {
  return kChecksEveryCall ? hardened::allocate_zeroed_checked(bytes) : allocate_zeroed(bytes);
}
inline void* serve_aligned(usize bytes, usize alignment, Origin origin = Origin::c_call) {
  return kChecksEveryCall ? hardened::allocate_aligned_checked(bytes, alignment, origin)
                            : allocate_aligned(bytes, alignment);
}
inline void* serve_realloc(void* block, usize bytes) {
  return kChecksEveryCall ? hardened::reallocate_checked(block, bytes) : reallocate(block, bytes);
}
FREESTONE_INLINE usize serve_usable_size(const void* block) {
  return kChecksEveryCall ? hardened::usable_bytes_checked(block) : usable_bytes(block);
}

// The realloc that reallocarray leads to: ours, or the one of a program that has a malloc of its own but no
// reallocarray: glibc's reallocarray leads there, too.
void* realloc_in_use(void* block, usize bytes);

}  // namespace freestone
