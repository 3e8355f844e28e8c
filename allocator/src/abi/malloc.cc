// Room 11, abi: the C library's allocation functions. Names and rules of errno, no logic.

#include <cerrno>
#include <cstddef>

#include "abi/names.h"
#include "base/compiler.h"
#include "front/entry.h"
#include "platform/os.h"

using namespace freestone;

extern "C" {

FREESTONE_EXPORT FREESTONE_HOT void* ABI(malloc)(size_t bytes) { return entry::allocate(bytes); }
FREESTONE_EXPORT FREESTONE_HOT void ABI(free)(void* block) { entry::deallocate(block); }

FREESTONE_EXPORT FREESTONE_HOT void* ABI(calloc)(size_t count, size_t each) {
  usize bytes;
  if (FREESTONE_UNLIKELY(__builtin_mul_overflow(count, each, &bytes))) {
    errno = ENOMEM;
    return nullptr;
  }
  return entry::allocate_zeroed(bytes);
}

FREESTONE_EXPORT void* ABI(realloc)(void* block, size_t bytes) {
  if (block == nullptr) return entry::allocate(bytes);
  if (bytes == 0) {
    entry::deallocate(block);  // as glibc: the block is gone and there is no new one
    return nullptr;
  }
  return entry::reallocate(block, bytes);
}

FREESTONE_EXPORT void* ABI(reallocarray)(void* block, size_t count, size_t each) {
  usize bytes;
  if (__builtin_mul_overflow(count, each, &bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return ABI(realloc)(block, bytes);
}

FREESTONE_EXPORT int ABI(posix_memalign)(void** result, size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* block = entry::allocate_aligned(bytes, alignment);
  errno = saved;
  if (block == nullptr) return ENOMEM;
  *result = block;
  return 0;
}

FREESTONE_EXPORT void* ABI(aligned_alloc)(size_t alignment, size_t bytes) {
  if (!is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return entry::allocate_aligned(bytes, alignment);
}

// As glibc: an alignment that is no power of two is raised to the next one.
FREESTONE_EXPORT void* ABI(memalign)(size_t alignment, size_t bytes) {
  if (alignment > (~usize{0} >> 1) + 1) {
    errno = EINVAL;
    return nullptr;
  }
  usize power = kGranule;
  while (power < alignment) power <<= 1;
  return entry::allocate_aligned(bytes, power);
}

FREESTONE_EXPORT void* ABI(valloc)(size_t bytes) { return entry::allocate_aligned(bytes, os::page_bytes()); }

FREESTONE_EXPORT void* ABI(pvalloc)(size_t bytes) {
  const usize page = os::page_bytes();
  const usize rounded = round_up(bytes, page);
  if (rounded < bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  return entry::allocate_aligned(max_of(rounded, page), page);
}

FREESTONE_EXPORT size_t ABI(malloc_usable_size)(void* block) { return entry::usable_bytes(block); }
FREESTONE_EXPORT void ABI(cfree)(void* block) { entry::deallocate(block); }
FREESTONE_EXPORT FREESTONE_HOT void ABI(free_sized)(void* block, size_t bytes) { entry::deallocate(block, Origin::c_call, bytes); }
FREESTONE_EXPORT FREESTONE_HOT void ABI(free_aligned_sized)(void* block, size_t, size_t bytes) {
  entry::deallocate(block, Origin::c_call, bytes);
}

}  // extern "C"
