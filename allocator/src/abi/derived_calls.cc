// Room 20, abi: the C library's allocation functions that a tool such as valgrind's memcheck does not know.
//
// Such a tool replaces malloc, free, realloc and others, and this heap then has no blocks. These functions handle
// blocks of this heap themselves and leave all other work to a call that the tool knows. The file stands apart, so no
// compiler inlines that call.

#include <cerrno>
#include <cstddef>

#include "abi/entry.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "platform/os.h"
#include "span/mapping.h"

using namespace freestone;

extern "C" {
ABI_OWN(void, free, (void* block));
ABI(void*, memalign(size_t alignment, size_t bytes));
}

namespace {

FREESTONE_SLOW void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

__attribute__((noinline)) void free_outside(void* block, Origin origin, usize bytes) {
  if (kChecksEveryCall && mapped_block_bytes(block) != 0) return serve_free(block, origin, bytes);
  ABI_CALL(free(block));
}

FREESTONE_INLINE void free_known(void* block, Origin origin, usize bytes) {
  const auto outside = [=] { free_outside(block, origin, bytes); };
  if constexpr (!kChecksEveryCall) return deallocate(block, region.base, outside);
  return FREESTONE_LIKELY(in_window(block)) ? serve_free(block, origin, bytes) : outside();
}

}  // namespace

extern "C" {

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, reallocarray(void* block, size_t count, size_t each)) {
  usize bytes;
  if (FREESTONE_UNLIKELY(__builtin_mul_overflow(count, each, &bytes))) return out_of_memory();
  return FREESTONE_LIKELY(keeps_place(block, bytes)) ? block : realloc_in_use(block, bytes);
}

FREESTONE_EXPORT ABI(void*, pvalloc(size_t bytes)) {
  const usize page = os::page_bytes();
  const usize rounded = round_up(bytes, page);
  if (rounded < bytes) return out_of_memory();
  return ABI_CALL(memalign(page, max_of(rounded, page)));
}

FREESTONE_EXPORT FREESTONE_HOT ABI(void, free_sized(void* block, size_t bytes)) {
  free_known(block, Origin::c_call, bytes);
}
FREESTONE_EXPORT FREESTONE_HOT ABI(void, free_aligned_sized(void* block, size_t alignment, size_t bytes)) {
  free_known(block, with_alignment(Origin::c_call, alignment), bytes);
}

}  // extern "C"

#if !FREESTONE_PREFIXED
#if defined(__GLIBC__)
ALSO_EXPORTED("__libc_pvalloc", "pvalloc");  // see malloc.cc
#endif
// What realloc_in_use.cc compares with the function in use.
ALSO_HIDDEN("freestone_own_reallocarray", "reallocarray");
#endif
