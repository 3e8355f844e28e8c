// Room 20, abi: the names that compilers call in place of malloc and operator new.
//
//   hot and cold    operator new with a hint of how often the memory will be used (LLVM, by a profile of the heap)
//   size-returning  operator new that says how much of the block may be used (P0901)
//   tokens          each of these, and malloc's family, with a number for the type (clang -fsanitize=alloc-token)
//
// Hints and numbers are ignored. Every call goes to the plain form as the program's modules find it: replaced operators
// stay replaced, and any free or delete takes the block.

#include <cstdlib>
#include <new>

#include "base/compiler.h"
#include "front/replaced_operators.h"
#include "policy/policy.h"

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

// A function of ours under a name of the compilers', and one with a token behind its parameters.
#define NAMED(name, id, result, parameters, call) \
  EXPORT result id parameters __asm__(name);      \
  result id parameters { return call; }
#define UNPACK(...) __VA_ARGS__
#define TOKEN(name, id, result, parameters, call) \
  NAMED("__alloc_token_" name, token_##id, result, (UNPACK parameters, usize), call)
#define BOTH(name, id, result, parameters, call) \
  NAMED(name, id, result, parameters, call)      \
  TOKEN(name, id, result, parameters, call)

TOKEN("malloc", malloc, void*, (usize bytes), malloc(bytes))
TOKEN("calloc", calloc, void*, (usize count, usize bytes), calloc(count, bytes))
TOKEN("realloc", realloc, void*, (void* block, usize bytes), realloc(block, bytes))
TOKEN("reallocarray", reallocarray, void*, (void* block, usize count, usize bytes), reallocarray(block, count, bytes))
TOKEN("aligned_alloc", aligned_alloc, void*, (usize alignment, usize bytes), aligned_alloc(alignment, bytes))
TOKEN("memalign", memalign, void*, (usize alignment, usize bytes), memalign(alignment, bytes))
TOKEN("posix_memalign", posix_memalign, int, (void** block, usize alignment, usize bytes),
      posix_memalign(block, alignment, bytes))
TOKEN("valloc", valloc, void*, (usize bytes), valloc(bytes))
TOKEN("pvalloc", pvalloc, void*, (usize bytes), pvalloc(bytes))

#define NOTHROW const std::nothrow_t& nothrow
#define ALIGNED usize bytes, std::align_val_t alignment

TOKEN("_Znwm", new, void*, (usize bytes), operator new(bytes))
TOKEN("_Znam", new_array, void*, (usize bytes), operator new[](bytes))
TOKEN("_ZnwmRKSt9nothrow_t", new_nothrow, void*, (usize bytes, NOTHROW), operator new(bytes, nothrow))
TOKEN("_ZnamRKSt9nothrow_t", new_array_nothrow, void*, (usize bytes, NOTHROW), operator new[](bytes, nothrow))
TOKEN("_ZnwmSt11align_val_t", new_aligned, void*, (ALIGNED), operator new(bytes, alignment))
TOKEN("_ZnamSt11align_val_t", new_array_aligned, void*, (ALIGNED), operator new[](bytes, alignment))
TOKEN("_ZnwmSt11align_val_tRKSt9nothrow_t", new_aligned_nothrow, void*, (ALIGNED, NOTHROW),
      operator new(bytes, alignment, nothrow))
TOKEN("_ZnamSt11align_val_tRKSt9nothrow_t", new_array_aligned_nothrow, void*, (ALIGNED, NOTHROW),
      operator new[](bytes, alignment, nothrow))

BOTH("_Znwm12__hot_cold_t", hinted, void*, (usize bytes, __hot_cold_t), operator new(bytes))
BOTH("_Znam12__hot_cold_t", hinted_array, void*, (usize bytes, __hot_cold_t), operator new[](bytes))
BOTH("_ZnwmRKSt9nothrow_t12__hot_cold_t", hinted_nothrow, void*, (usize bytes, NOTHROW, __hot_cold_t),
     operator new(bytes, nothrow))
BOTH("_ZnamRKSt9nothrow_t12__hot_cold_t", hinted_array_nothrow, void*, (usize bytes, NOTHROW, __hot_cold_t),
     operator new[](bytes, nothrow))
BOTH("_ZnwmSt11align_val_t12__hot_cold_t", hinted_aligned, void*, (ALIGNED, __hot_cold_t),
     operator new(bytes, alignment))
BOTH("_ZnamSt11align_val_t12__hot_cold_t", hinted_array_aligned, void*, (ALIGNED, __hot_cold_t),
     operator new[](bytes, alignment))
BOTH("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", hinted_aligned_nothrow, void*,
     (ALIGNED, NOTHROW, __hot_cold_t), operator new(bytes, alignment, nothrow))
BOTH("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", hinted_array_aligned_nothrow, void*,
     (ALIGNED, NOTHROW, __hot_cold_t), operator new[](bytes, alignment, nothrow))

// What of a block of so many bytes the program may use. The hardened build checks what was asked for. By the exported
// name, which tools take over.
static __sized_ptr_t sized(void* block, usize bytes) {
  const bool ours = !freestone::kChecksEveryCall && !freestone::operators_are_replaced() &&
                    !freestone::operators_pass_on(false);
  return {block, ours ? malloc_usable_size(block) : bytes};
}

BOTH("__size_returning_new", sized_new, __sized_ptr_t, (usize bytes), sized(operator new(bytes), bytes))
BOTH("__size_returning_new_aligned", sized_new_aligned, __sized_ptr_t, (ALIGNED),
     sized(operator new(bytes, alignment), bytes))
BOTH("__size_returning_new_hot_cold", sized_hinted, __sized_ptr_t, (usize bytes, __hot_cold_t),
     sized(operator new(bytes), bytes))
BOTH("__size_returning_new_aligned_hot_cold", sized_hinted_aligned, __sized_ptr_t, (ALIGNED, __hot_cold_t),
     sized(operator new(bytes, alignment), bytes))

#endif
