// Room 9, front: see passthrough.h. Only dlsym leads to the malloc behind ours: glibc's other names for it, such as
// __libc_malloc, are ours too (abi/malloc.cc).

#include "front/passthrough.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>

namespace freestone {

namespace {

// Written before the mode that lets anybody read it is published.
struct NextMalloc {
  void* (*malloc)(usize);
  void* (*calloc)(usize, usize);
  void* (*realloc)(void*, usize);
  void* (*memalign)(usize, usize);
  void (*free)(void*);
  usize (*usable_size)(const void*);
} next;

template <typename Function>
bool find(Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  return function != nullptr;
}

// The main program has no name, and the kernel's object no path.
int is_library(struct dl_phdr_info* object, std::size_t, void*) {
  return std::strchr(object->dlpi_name, '/') != nullptr ? 1 : 0;
}

// musl's memalign calls aligned_alloc by its name, which is ours.
#if defined(__GLIBC__)
constexpr const char* kAligned = "memalign";
#else
constexpr const char* kAligned = "aligned_alloc";
#endif

}  // namespace

// A static program's dlsym calls malloc, so it is not asked.
bool find_next_malloc() {
  return dl_iterate_phdr(is_library, nullptr) != 0 && find(next.malloc, "malloc") &&
         find(next.calloc, "calloc") && find(next.realloc, "realloc") && find(next.memalign, kAligned) &&
         find(next.free, "free") && find(next.usable_size, "malloc_usable_size");
}

void* passthrough_malloc(usize bytes) { return next.malloc(bytes); }
void* passthrough_calloc(usize bytes) { return next.calloc(1, bytes); }
void* passthrough_realloc(void* block, usize bytes) { return next.realloc(block, bytes); }
void* passthrough_aligned(usize bytes, usize alignment) { return next.memalign(alignment, bytes); }
void passthrough_free(void* block) { next.free(block); }
usize passthrough_usable_size(const void* block) { return next.usable_size(block); }

}  // namespace freestone
