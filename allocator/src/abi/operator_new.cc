// Room 19, abi: C++ operator new and delete, without linking a C++ runtime.
//
// The new-handler and the exception belong to the program's runtime. We reach them through weak references: a C++
// program has them, and a C program never gets here.

#include <cstddef>

#include "base/compiler.h"
#include "front/entry.h"
#include "platform/message.h"

// Catching in the nothrow forms needs the runtime's personality routine and handlers; a program without C++ has none.
asm(".weak __gxx_personality_v0");
asm(".weak __cxa_begin_catch");
asm(".weak __cxa_end_catch");
asm(".weak _Unwind_Resume");
asm(".weak _ZSt9terminatev");  // std::terminate; clang's

namespace std {
using new_handler = void (*)();
new_handler get_new_handler() noexcept __attribute__((weak));
void __throw_bad_alloc() __attribute__((weak, noreturn));  // spelt as in libstdc++: clang wants all declarations alike
struct nothrow_t;
enum class align_val_t : size_t;
}  // namespace std

using namespace freestone;

namespace {

[[noreturn]] void throw_bad_alloc() {
  if (&std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  (Message() << "out of memory in operator new, and the program has no C++ runtime to throw std::bad_alloc").write();
  abort_now();
}

void* allocate_for_new(usize bytes, usize alignment, Origin origin) {
  return alignment <= kGranule ? serve_malloc(bytes, origin) : serve_aligned(bytes, alignment, origin);
}

// Calls the new-handler until there is memory. Null when there is no handler.
FREESTONE_SLOW void* retry_with_handler(usize bytes, usize alignment, Origin origin) {
  while (true) {
    const std::new_handler handler = &std::get_new_handler != nullptr ? std::get_new_handler() : nullptr;
    if (handler == nullptr) return nullptr;
    handler();
    if (void* block = allocate_for_new(bytes, alignment, origin); block != nullptr) return block;
  }
}

FREESTONE_SLOW void* new_slow(usize bytes, usize alignment, Origin origin) {
  if (void* block = retry_with_handler(bytes, alignment, origin); block != nullptr) return block;
  throw_bad_alloc();
}

// If the handler throws, the result is null.
FREESTONE_SLOW void* new_nothrow_slow(usize bytes, usize alignment, Origin origin) {
  try {
    return retry_with_handler(bytes, alignment, origin);
  } catch (...) {
    return nullptr;
  }
}

// Tail-called by the fast path, which has looked into the thread cache already.
FREESTONE_SLOW void* new_miss(usize bytes) {
  void* block = allocate_slow(bytes);
  return FREESTONE_LIKELY(block != nullptr) ? block : new_slow(bytes, 1, Origin::new_object);
}

FREESTONE_SLOW void* new_miss_nothrow(usize bytes) {
  void* block = allocate_slow(bytes);
  return FREESTONE_LIKELY(block != nullptr) ? block : new_nothrow_slow(bytes, 1, Origin::new_object);
}

FREESTONE_INLINE void* new_block(usize bytes, Origin origin) {
  if constexpr (kMitigations.any()) {
    void* block = serve_malloc(bytes, origin);
    return FREESTONE_LIKELY(block != nullptr) ? block : new_slow(bytes, 1, origin);
  } else {
    return allocate<new_miss>(bytes);
  }
}

FREESTONE_INLINE void* new_block_nothrow(usize bytes, Origin origin) {
  if constexpr (kMitigations.any()) {
    void* block = serve_malloc(bytes, origin);
    return FREESTONE_LIKELY(block != nullptr) ? block : new_nothrow_slow(bytes, 1, origin);
  } else {
    return allocate<new_miss_nothrow>(bytes);
  }
}

FREESTONE_SLOW void* new_aligned_miss(usize bytes, usize alignment) {
  void* block = allocate_aligned_slow(bytes, alignment);
  return FREESTONE_LIKELY(block != nullptr) ? block : new_slow(bytes, alignment, Origin::new_object);
}

FREESTONE_SLOW void* new_aligned_miss_nothrow(usize bytes, usize alignment) {
  void* block = allocate_aligned_slow(bytes, alignment);
  return FREESTONE_LIKELY(block != nullptr) ? block : new_nothrow_slow(bytes, alignment, Origin::new_object);
}

FREESTONE_INLINE void* new_aligned(usize bytes, std::align_val_t alignment, Origin origin) {
  if constexpr (kMitigations.any()) {
    void* block = allocate_for_new(bytes, static_cast<usize>(alignment), origin);
    return block != nullptr ? block : new_slow(bytes, static_cast<usize>(alignment), origin);
  } else {
    return allocate_aligned<new_aligned_miss>(bytes, static_cast<usize>(alignment));
  }
}

FREESTONE_INLINE void* new_aligned_nothrow(usize bytes, std::align_val_t alignment, Origin origin) {
  if constexpr (kMitigations.any()) {
    void* block = allocate_for_new(bytes, static_cast<usize>(alignment), origin);
    return block != nullptr ? block : new_nothrow_slow(bytes, static_cast<usize>(alignment), origin);
  } else {
    return allocate_aligned<new_aligned_miss_nothrow>(bytes, static_cast<usize>(alignment));
  }
}

constexpr Origin kObject = Origin::new_object;
constexpr Origin kArray = Origin::new_array;
constexpr Origin aligned(Origin family, std::align_val_t alignment) {
  return with_alignment(family, static_cast<usize>(alignment));
}

}  // namespace

#define EXPORT FREESTONE_EXPORT FREESTONE_HOT

EXPORT void* operator new(std::size_t bytes) { return new_block(bytes, kObject); }
EXPORT void* operator new[](std::size_t bytes) { return new_block(bytes, kArray); }
EXPORT void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return new_block_nothrow(bytes, kObject);
}
EXPORT void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return new_block_nothrow(bytes, kArray);
}
EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return new_aligned(bytes, alignment, kObject);
}
EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return new_aligned(bytes, alignment, kArray);
}
EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return new_aligned_nothrow(bytes, alignment, kObject);
}
EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return new_aligned_nothrow(bytes, alignment, kArray);
}

EXPORT void operator delete(void* block) noexcept { serve_free(block, kObject); }
EXPORT void operator delete[](void* block) noexcept { serve_free(block, kArray); }
EXPORT void operator delete(void* block, const std::nothrow_t&) noexcept { serve_free(block, kObject); }
EXPORT void operator delete[](void* block, const std::nothrow_t&) noexcept { serve_free(block, kArray); }
EXPORT void operator delete(void* block, std::size_t bytes) noexcept { serve_free(block, kObject, bytes); }
EXPORT void operator delete[](void* block, std::size_t bytes) noexcept { serve_free(block, kArray, bytes); }
EXPORT void operator delete(void* block, std::align_val_t alignment) noexcept {
  serve_free(block, aligned(kObject, alignment));
}
EXPORT void operator delete[](void* block, std::align_val_t alignment) noexcept {
  serve_free(block, aligned(kArray, alignment));
}
EXPORT void operator delete(void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  serve_free(block, aligned(kObject, alignment));
}
EXPORT void operator delete[](void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  serve_free(block, aligned(kArray, alignment));
}
EXPORT void operator delete(void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  serve_free(block, aligned(kObject, alignment), bytes);
}
EXPORT void operator delete[](void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  serve_free(block, aligned(kArray, alignment), bytes);
}
