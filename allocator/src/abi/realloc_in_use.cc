// Room 20, abi: the realloc that reallocarray leads to. A separate file, because a compiler that sees our definitions
// may call them.

#include "abi/entry.h"
#include "abi/names.h"
#include "base/compiler.h"

using freestone::usize;

extern "C" {
ABI(void*, realloc(void* block, usize bytes));
#if !FREESTONE_PREFIXED
void* reallocarray(void* block, usize count, usize each);
// Our definitions, by names that nobody can replace (malloc.cc, derived_calls.cc).
FREESTONE_HIDDEN void* freestone_own_realloc(void* block, usize bytes);
FREESTONE_HIDDEN void* freestone_own_reallocarray(void* block, usize count, usize each);
#endif
}

namespace freestone {

#if FREESTONE_PREFIXED
void* realloc_in_use(void* block, usize bytes) { return freestone_realloc(block, bytes); }
#else
// By interposed.list, the linker leaves both open for the program's definitions.
void* realloc_in_use(void* block, usize bytes) {
  auto* in_use = reallocarray;
  auto* own = freestone_own_reallocarray;
  asm("" : "+r"(in_use), "+r"(own));  // a compiler may take two names for two functions
  // Another's reallocarray: the library was loaded late, and asked for its own by dlsym.
  return FREESTONE_LIKELY(in_use == own) ? realloc(block, bytes) : freestone_own_realloc(block, bytes);
}
#endif

}  // namespace freestone
