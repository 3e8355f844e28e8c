// The operators of C++ for a program whose allocator brings none, by malloc and free as the C++ library has them. In a
// library of its own, behind the preloaded one: an allocator's operators go first. The C++ library itself takes longer
// to load than a case to run.
#include <stdlib.h>

#include <new>

#define EXPORT __attribute__((visibility("default")))

const std::nothrow_t std::nothrow{};

namespace {

void* aligned(std::size_t bytes, std::align_val_t alignment) {
  const std::size_t unit = static_cast<std::size_t>(alignment);
  return ::aligned_alloc(unit, (bytes + unit - 1) & ~(unit - 1));
}

}  // namespace

EXPORT void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return ::malloc(bytes != 0 ? bytes : 1);
}
EXPORT void* operator new[](std::size_t bytes, const std::nothrow_t& tag) noexcept {
  return ::operator new(bytes, tag);
}
EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return aligned(bytes != 0 ? bytes : 1, alignment);
}
EXPORT void operator delete(void* block) noexcept { ::free(block); }
EXPORT void operator delete[](void* block) noexcept { ::operator delete(block); }
EXPORT void operator delete(void* block, std::size_t) noexcept { ::operator delete(block); }
EXPORT void operator delete[](void* block, std::size_t) noexcept { ::operator delete[](block); }
EXPORT void operator delete(void* block, std::align_val_t) noexcept { ::free(block); }
EXPORT void operator delete(void* block, std::size_t, std::align_val_t alignment) noexcept {
  ::operator delete(block, alignment);
}
