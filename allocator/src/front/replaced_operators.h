// Room 9, front: which operators new and delete the program replaced, and to which malloc ours lead.
//
// A program may replace any form of new and delete. The other forms must call the one that the C++ standard names:
// sized delete calls plain delete, new[] calls new. While nothing is replaced, our forms need no call.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

namespace std {
enum class align_val_t : size_t;
struct nothrow_t;
}  // namespace std

namespace freestone {

struct Operators {
  // Those that other forms call.
  void* (*create)(usize);
  void* (*create_array)(usize);
  void* (*create_aligned)(usize, std::align_val_t);
  void* (*create_aligned_array)(usize, std::align_val_t);
  void (*destroy)(void*) noexcept;
  void (*destroy_array)(void*) noexcept;
  void (*destroy_aligned)(void*, std::align_val_t) noexcept;
  void (*destroy_aligned_array)(void*, std::align_val_t) noexcept;
  // The other forms.
  void* (*create_nothrow)(usize, const std::nothrow_t&) noexcept;
  void* (*create_array_nothrow)(usize, const std::nothrow_t&) noexcept;
  void* (*create_aligned_nothrow)(usize, std::align_val_t, const std::nothrow_t&) noexcept;
  void* (*create_aligned_array_nothrow)(usize, std::align_val_t, const std::nothrow_t&) noexcept;
  void (*destroy_sized)(void*, usize) noexcept;
  void (*destroy_array_sized)(void*, usize) noexcept;
  void (*destroy_nothrow)(void*, const std::nothrow_t&) noexcept;
  void (*destroy_array_nothrow)(void*, const std::nothrow_t&) noexcept;
  void (*destroy_sized_aligned)(void*, usize, std::align_val_t) noexcept;
  void (*destroy_array_sized_aligned)(void*, usize, std::align_val_t) noexcept;
  void (*destroy_aligned_nothrow)(void*, std::align_val_t, const std::nothrow_t&) noexcept;
  void (*destroy_aligned_array_nothrow)(void*, std::align_val_t, const std::nothrow_t&) noexcept;
};

// As the program's modules find them. ld.so fills the table in before any code of ours runs.
extern FREESTONE_HIDDEN const Operators operators_in_use;

// Whether the program replaced some and left some to us. If all are another's, the library was loaded late: it is asked
// for its own operators by dlsym alone. Never, where ours have no part in the build.
bool operators_are_replaced();

// What libstdc++'s operators call. A library ahead of this one may define these, such as heaptrack's; or a tool that is
// loaded later puts its own functions into these words, as memray does. Ours then lead there, so that both see them.
struct MallocCalls {
  void* (*allocate)(usize);
  void* (*allocate_aligned)(usize alignment, usize bytes);
  void (*release)(void*);
};
extern FREESTONE_HIDDEN const MallocCalls malloc_in_use;

// Whether our operators lead there. Never, where they have no part in the build or, as above, are all another's. The
// aligned ones lead there only if aligned_alloc is another's, too: else free might not know the block.
// Whether they once did: a block of malloc may then come back through a sized delete, after the tool has left.
extern FREESTONE_HIDDEN Atomic<u8> operators_passed_on;
// What they ask malloc for, at an alignment of 1 or more.
constexpr usize bytes_passed_on(usize bytes, usize alignment) { return round_up(max_of<usize>(bytes, 1), alignment); }
bool another_malloc_serves(bool aligned);
#if FREESTONE_PREFIXED
inline bool malloc_is_anothers() { return false; }
#else
extern "C" FREESTONE_HIDDEN void* freestone_own_malloc(usize);  // abi/malloc.cc
// The address of the program's own entry for malloc, if that leads to ours. Debian's python3 has one.
extern FREESTONE_HIDDEN Atomic<usize> entry_to_own;
FREESTONE_INLINE bool malloc_is_anothers() {
  const auto* in_use = &malloc_in_use;
  auto* own = freestone_own_malloc;
  asm("" : "+r"(in_use), "+r"(own));  // a compiler may take two names for two functions, and a constant for constant
  return in_use->allocate != own && reinterpret_cast<usize>(in_use->allocate) != entry_to_own.load_relaxed();
}
#endif
inline bool operators_pass_on(bool aligned) {
  return FREESTONE_UNLIKELY(malloc_is_anothers()) && another_malloc_serves(aligned);
}

}  // namespace freestone
