// Room 20, abi: the C library's allocation functions. Names and rules of errno, no logic.

#include <cerrno>
#include <cstddef>

#include "abi/entry.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "front/large.h"
#include "platform/os.h"

using namespace freestone;

namespace {

FREESTONE_SLOW void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

// The C library's rules for calls that the hit paths turn away.

__attribute__((noinline)) void* realloc_slow(void* block, usize bytes) {
  if (block == nullptr) return serve_malloc(bytes);
  if (bytes != 0) return keeps_units(block, bytes) ? block : serve_realloc(block, bytes);
  serve_free(block);  // as in glibc: frees the block and returns no new one
  return nullptr;
}

__attribute__((noinline)) int posix_memalign_slow(void** result, usize alignment, usize bytes) {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int saved = errno;
  void* block = serve_aligned(bytes, alignment);
  if (block == nullptr) return ENOMEM;  // as in glibc, errno says so too
  errno = saved;
  *result = block;
  return 0;
}

__attribute__((noinline)) void* aligned_alloc_slow(usize bytes, usize alignment) {
  if (!is_power_of_two(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return serve_aligned(bytes, alignment);
}

// As in glibc: an alignment that is not a power of two is raised to the next one.
__attribute__((noinline)) void* memalign_slow(usize bytes, usize alignment) {
  if (alignment > (~usize{0} >> 1) + 1) {
    errno = EINVAL;
    return nullptr;
  }
  usize power = kGranule;
  while (power < alignment) power <<= 1;
  return serve_aligned(bytes, power);
}

}  // namespace

extern "C" {

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, malloc(size_t bytes)) { return serve_malloc(bytes); }
FREESTONE_EXPORT FREESTONE_HOT ABI(void, free(void* block)) { serve_free(block); }

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, calloc(size_t count, size_t each)) {
  usize bytes;
  if (FREESTONE_UNLIKELY(__builtin_mul_overflow(count, each, &bytes))) return out_of_memory();
  return serve_calloc(bytes);
}

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, realloc(void* block, size_t bytes)) {
  return FREESTONE_LIKELY(keeps_place(block, bytes)) ? block : realloc_slow(block, bytes);
}

FREESTONE_EXPORT FREESTONE_HOT ABI(int, posix_memalign(void** result, size_t alignment, size_t bytes)) {
  const usize below = (alignment - 1) | (sizeof(void*) - 1);
  const auto slow = [=] { return posix_memalign_slow(result, alignment, bytes); };
  if (kChecksEveryCall || FREESTONE_UNLIKELY((alignment & below) != 0)) return slow();
  return pop_aligned(
      bytes, below,
      [=](void* block) {
        *result = block;
        return 0;
      },
      slow);
}

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, aligned_alloc(size_t alignment, size_t bytes)) {
  if (kChecksEveryCall || FREESTONE_UNLIKELY((alignment & (alignment - 1)) != 0))
    return aligned_alloc_slow(bytes, alignment);
  return allocate_aligned<aligned_alloc_slow>(bytes, alignment);
}

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, memalign(size_t alignment, size_t bytes)) {
  if (kChecksEveryCall || FREESTONE_UNLIKELY((alignment & (alignment - 1)) != 0))
    return memalign_slow(bytes, alignment);
  return allocate_aligned<memalign_slow>(bytes, alignment);
}

FREESTONE_EXPORT ABI(void*, valloc(size_t bytes)) { return serve_aligned(bytes, os::page_bytes()); }

FREESTONE_EXPORT FREESTONE_HOT ABI(size_t, malloc_usable_size(void* block)) { return serve_usable_size(block); }
FREESTONE_EXPORT ABI(void, cfree(void* block)) { serve_free(block); }

}  // extern "C"

#if !FREESTONE_PREFIXED && defined(__GLIBC__)
// glibc's other names for the same functions. A program may pass the blocks of one to another.
ALSO_EXPORTED("__libc_malloc", "malloc");
ALSO_EXPORTED("__libc_free", "free");
ALSO_EXPORTED("__libc_calloc", "calloc");
ALSO_EXPORTED("__libc_realloc", "realloc");
ALSO_EXPORTED("__libc_memalign", "memalign");
ALSO_EXPORTED("__libc_valloc", "valloc");
#endif
#if !FREESTONE_PREFIXED
// What realloc_in_use.cc and replaced_operators.cc compare with the functions in use, and other calls lead to.
ALSO_HIDDEN("freestone_own_realloc", "realloc");
ALSO_HIDDEN("freestone_own_malloc", "malloc");
ALSO_HIDDEN("freestone_own_aligned_alloc", "aligned_alloc");
ALSO_HIDDEN("freestone_own_free", "free");
#endif
