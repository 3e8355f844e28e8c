// Room 20, abi: the names that compilers call in place of malloc and operator new.
//
//   hot and cold    operator new with a hint of how often the memory will be used (LLVM, by a profile of the heap)
//   size-returning  operator new that says how much of the block may be used (P0901)
//   tokens          each of these, and malloc's family, with a number for the type (clang -fsanitize=alloc-token)
//
// Hints are ignored. In a build with two partitions (policy.h), numbers of types that hold pointers lead to the second
// one. All other calls go to the plain form as the program's modules find it: replaced operators stay replaced. Any
// free or delete takes the block.

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/compiler.h"
#include "front/replaced_operators.h"
#include "hardened/checked.h"

#if !FREESTONE_PREFIXED

using freestone::usize;

// The compilers' names for the hint and for the pair that comes back.
enum class __hot_cold_t : unsigned char;
struct __sized_ptr_t {
  void* p;
  usize n;
};

extern "C" {
void* memalign(usize alignment, usize bytes);
void* valloc(usize bytes);
void* pvalloc(usize bytes);
void* reallocarray(void* block, usize count, usize bytes);
usize malloc_usable_size(void* block);
}

#define EXPORT extern "C" FREESTONE_EXPORT FREESTONE_SLOW

namespace {

// Whether the type holds pointers: by default clang gives these the upper half of all numbers, with
// -falloc-token-max=2 the number 1.
bool holds_pointers(usize token) { return token == 1 || token >> 63 != 0; }

// A block of the second partition if it is the one for this type, otherwise what `plain` allocates.
template <typename Plain>
FREESTONE_INLINE void* parted(usize token, usize bytes, usize alignment, freestone::Origin origin, Plain plain) {
  if (freestone::kPartitions > 1 && holds_pointers(token) && !freestone::malloc_is_anothers() &&
      (origin == freestone::Origin::c_call || !freestone::operators_are_replaced())) {
    void* const block = freestone::hardened::allocate_in_partition(bytes, alignment, origin);
    if (block != nullptr) return block;
  }
  return plain();
}
// 0, which the plain form must judge, if the product is too large.
usize product(usize count, usize bytes) {
  usize all = 0;
  return __builtin_mul_overflow(count, bytes, &all) ? 0 : all;
}

}  // namespace

// A function of ours under a name of the compilers', and one with a token behind its parameters.
#define DEFINED(name, id, result, parameters, ...) \
  EXPORT result id parameters __asm__(name);       \
  result id parameters { __VA_ARGS__; }
#define UNPACK(...) __VA_ARGS__
#define TOKEN(name, id, result, parameters, call) \
  DEFINED("__alloc_token_" name, token_##id, result, (UNPACK parameters, [[maybe_unused]] usize token), return call)
#define BOTH(name, id, result, parameters, call)                                                 \
  DEFINED(name, id, result, parameters, [[maybe_unused]] constexpr usize token = 0; return call) \
  TOKEN(name, id, result, parameters, call)
#define PARTED(bytes, alignment, origin, call) \
  parted(token, bytes, alignment, freestone::Origin::origin, [&]() -> void* { return call; })
#define MALLOC(bytes, alignment, call) PARTED(bytes, alignment, c_call, call)
#define NEW(alignment, call) PARTED(bytes, static_cast<usize>(alignment), new_object, call)
#define NEW_ARRAY(alignment, call) PARTED(bytes, static_cast<usize>(alignment), new_array, call)

TOKEN("malloc", malloc, void*, (usize bytes), MALLOC(bytes, 1, malloc(bytes)))
TOKEN("realloc", realloc, void*, (void* block, usize bytes),
      block == nullptr ? MALLOC(bytes, 1, malloc(bytes)) : realloc(block, bytes))
TOKEN("reallocarray", reallocarray, void*, (void* block, usize count, usize bytes),
      block == nullptr ? MALLOC(product(count, bytes), 1, reallocarray(block, count, bytes))
                       : reallocarray(block, count, bytes))
TOKEN("aligned_alloc", aligned_alloc, void*, (usize alignment, usize bytes),
      MALLOC(bytes, alignment, aligned_alloc(alignment, bytes)))
TOKEN("memalign", memalign, void*, (usize alignment, usize bytes), MALLOC(bytes, alignment, memalign(alignment, bytes)))
TOKEN("valloc", valloc, void*, (usize bytes), valloc(bytes))
TOKEN("pvalloc", pvalloc, void*, (usize bytes), pvalloc(bytes))

EXPORT void* token_calloc(usize count, usize bytes, usize token) __asm__("__alloc_token_calloc");
void* token_calloc(usize count, usize bytes, usize token) {
  void* const block = MALLOC(product(count, bytes), 1, nullptr);
  return block != nullptr ? std::memset(block, 0, count * bytes) : calloc(count, bytes);
}
EXPORT int token_posix_memalign(void**, usize, usize, usize) __asm__("__alloc_token_posix_memalign");
int token_posix_memalign(void** result, usize alignment, usize bytes, usize token) {
  void* const block = alignment % sizeof(void*) == 0 ? MALLOC(bytes, alignment, nullptr) : nullptr;
  if (block == nullptr) return posix_memalign(result, alignment, bytes);
  *result = block;
  return 0;
}

#define NOTHROW const std::nothrow_t& nothrow
#define ALIGNED usize bytes, std::align_val_t alignment

TOKEN("_Znwm", new, void*, (usize bytes), NEW(1, operator new(bytes)))
TOKEN("_Znam", new_array, void*, (usize bytes), NEW_ARRAY(1, operator new[](bytes)))
TOKEN("_ZnwmRKSt9nothrow_t", new_nothrow, void*, (usize bytes, NOTHROW), NEW(1, operator new(bytes, nothrow)))
TOKEN("_ZnamRKSt9nothrow_t", new_array_nothrow, void*, (usize bytes, NOTHROW),
      NEW_ARRAY(1, operator new[](bytes, nothrow)))
TOKEN("_ZnwmSt11align_val_t", new_aligned, void*, (ALIGNED), NEW(alignment, operator new(bytes, alignment)))
TOKEN("_ZnamSt11align_val_t", new_array_aligned, void*, (ALIGNED),
      NEW_ARRAY(alignment, operator new[](bytes, alignment)))
TOKEN("_ZnwmSt11align_val_tRKSt9nothrow_t", new_aligned_nothrow, void*, (ALIGNED, NOTHROW),
      NEW(alignment, operator new(bytes, alignment, nothrow)))
TOKEN("_ZnamSt11align_val_tRKSt9nothrow_t", new_array_aligned_nothrow, void*, (ALIGNED, NOTHROW),
      NEW_ARRAY(alignment, operator new[](bytes, alignment, nothrow)))

BOTH("_Znwm12__hot_cold_t", hinted, void*, (usize bytes, __hot_cold_t), NEW(1, operator new(bytes)))
BOTH("_Znam12__hot_cold_t", hinted_array, void*, (usize bytes, __hot_cold_t), NEW_ARRAY(1, operator new[](bytes)))
BOTH("_ZnwmRKSt9nothrow_t12__hot_cold_t", hinted_nothrow, void*, (usize bytes, NOTHROW, __hot_cold_t),
     NEW(1, operator new(bytes, nothrow)))
BOTH("_ZnamRKSt9nothrow_t12__hot_cold_t", hinted_array_nothrow, void*, (usize bytes, NOTHROW, __hot_cold_t),
     NEW_ARRAY(1, operator new[](bytes, nothrow)))
BOTH("_ZnwmSt11align_val_t12__hot_cold_t", hinted_aligned, void*, (ALIGNED, __hot_cold_t),
     NEW(alignment, operator new(bytes, alignment)))
BOTH("_ZnamSt11align_val_t12__hot_cold_t", hinted_array_aligned, void*, (ALIGNED, __hot_cold_t),
     NEW_ARRAY(alignment, operator new[](bytes, alignment)))
BOTH("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", hinted_aligned_nothrow, void*,
     (ALIGNED, NOTHROW, __hot_cold_t), NEW(alignment, operator new(bytes, alignment, nothrow)))
BOTH("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", hinted_array_aligned_nothrow, void*,
     (ALIGNED, NOTHROW, __hot_cold_t), NEW_ARRAY(alignment, operator new[](bytes, alignment, nothrow)))

// What of a block of so many bytes the program may use. The hardened build checks what was asked for. By the exported
// name, which tools take over.
static __sized_ptr_t sized(void* block, usize bytes) {
  const bool ours =
      !freestone::kChecksEveryCall && !freestone::operators_are_replaced() && !freestone::operators_pass_on(false);
  return {block, ours ? malloc_usable_size(block) : bytes};
}

BOTH("__size_returning_new", sized_new, __sized_ptr_t, (usize bytes), sized(NEW(1, operator new(bytes)), bytes))
BOTH("__size_returning_new_aligned", sized_new_aligned, __sized_ptr_t, (ALIGNED),
     sized(NEW(alignment, operator new(bytes, alignment)), bytes))
BOTH("__size_returning_new_hot_cold", sized_hinted, __sized_ptr_t, (usize bytes, __hot_cold_t),
     sized(NEW(1, operator new(bytes)), bytes))
BOTH("__size_returning_new_aligned_hot_cold", sized_hinted_aligned, __sized_ptr_t, (ALIGNED, __hot_cold_t),
     sized(NEW(alignment, operator new(bytes, alignment)), bytes))

#endif
