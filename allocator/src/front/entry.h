// Room 9, front: what the exported functions call: the heap's own functions in the fast build, the checked ones in the hardened build.
#pragma once

#include "front/hardened_paths.h"

namespace freestone::entry {

template <void* (*Slow)(usize) = allocate_slow>
FREESTONE_INLINE void* allocate(usize bytes, Origin origin = Origin::c_call) {
  if constexpr (kMitigations.any()) {
    return hardened::allocate(bytes, origin);
  } else {
    return freestone::allocate<Slow>(bytes);
  }
}

FREESTONE_INLINE void deallocate(void* block, Origin origin = Origin::c_call, usize bytes = kUnknownBytes) {
  if constexpr (kMitigations.any()) {
    hardened::deallocate(block, bytes, origin);
  } else {
    freestone::deallocate(block);
  }
}

FREESTONE_INLINE void* allocate_zeroed(usize bytes) { return kMitigations.any() ? hardened::allocate_zeroed(bytes) : freestone::allocate_zeroed(bytes); }
inline void* allocate_aligned(usize bytes, usize alignment, Origin origin = Origin::c_call) {
  return kMitigations.any() ? hardened::allocate_aligned(bytes, alignment, origin) : freestone::allocate_aligned(bytes, alignment);
}
FREESTONE_INLINE bool keeps_place(const void* block, usize bytes) { return !kMitigations.any() && freestone::keeps_place(block, bytes); }
inline void* reallocate(void* block, usize bytes) { return kMitigations.any() ? hardened::reallocate(block, bytes) : freestone::reallocate(block, bytes); }
FREESTONE_INLINE usize usable_bytes(const void* block) { return kMitigations.any() ? hardened::usable_bytes(block) : freestone::usable_bytes(block); }

}  // namespace freestone::entry
