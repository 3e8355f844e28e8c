// Room 9, front: finds the operators new and delete that the program replaced. A separate file, because a compiler that
// sees our definitions may call them.
#include "front/replaced_operators.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "platform/os.h"

#if FREESTONE_PREFIXED
namespace freestone {
bool operators_are_replaced() { return false; }
bool another_malloc_serves(bool) { return false; }
constinit Atomic<u8> operators_passed_on;
}  // namespace freestone
#else
// Our definitions, by names that nobody can replace (abi/operator_new.cc, abi/malloc.cc).
extern "C" {
FREESTONE_HIDDEN void* freestone_own_aligned_alloc(freestone::usize, freestone::usize);
FREESTONE_HIDDEN void freestone_own_free(void*);
FREESTONE_HIDDEN void* freestone_own_create(freestone::usize);
FREESTONE_HIDDEN void* freestone_own_create_array(freestone::usize);
FREESTONE_HIDDEN void* freestone_own_create_aligned(freestone::usize, std::align_val_t);
FREESTONE_HIDDEN void* freestone_own_create_aligned_array(freestone::usize, std::align_val_t);
FREESTONE_HIDDEN void freestone_own_destroy(void*) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_array(void*) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned(void*, std::align_val_t) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned_array(void*, std::align_val_t) noexcept;
FREESTONE_HIDDEN void* freestone_own_create_nothrow(freestone::usize, const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void* freestone_own_create_array_nothrow(freestone::usize, const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void* freestone_own_create_aligned_nothrow(freestone::usize, std::align_val_t,
                                                            const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void* freestone_own_create_aligned_array_nothrow(freestone::usize, std::align_val_t,
                                                                  const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_sized(void*, freestone::usize) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_array_sized(void*, freestone::usize) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_nothrow(void*, const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_array_nothrow(void*, const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_sized_aligned(void*, freestone::usize, std::align_val_t) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_array_sized_aligned(void*, freestone::usize, std::align_val_t) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned_nothrow(void*, std::align_val_t, const std::nothrow_t&) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned_array_nothrow(void*, std::align_val_t,
                                                                  const std::nothrow_t&) noexcept;
}

namespace freestone {
namespace {

constexpr Operators kOwnOperators = {
    .create = freestone_own_create,
    .create_array = freestone_own_create_array,
    .create_aligned = freestone_own_create_aligned,
    .create_aligned_array = freestone_own_create_aligned_array,
    .destroy = freestone_own_destroy,
    .destroy_array = freestone_own_destroy_array,
    .destroy_aligned = freestone_own_destroy_aligned,
    .destroy_aligned_array = freestone_own_destroy_aligned_array,
    .create_nothrow = freestone_own_create_nothrow,
    .create_array_nothrow = freestone_own_create_array_nothrow,
    .create_aligned_nothrow = freestone_own_create_aligned_nothrow,
    .create_aligned_array_nothrow = freestone_own_create_aligned_array_nothrow,
    .destroy_sized = freestone_own_destroy_sized,
    .destroy_array_sized = freestone_own_destroy_array_sized,
    .destroy_nothrow = freestone_own_destroy_nothrow,
    .destroy_array_nothrow = freestone_own_destroy_array_nothrow,
    .destroy_sized_aligned = freestone_own_destroy_sized_aligned,
    .destroy_array_sized_aligned = freestone_own_destroy_array_sized_aligned,
    .destroy_aligned_nothrow = freestone_own_destroy_aligned_nothrow,
    .destroy_aligned_array_nothrow = freestone_own_destroy_aligned_array_nothrow,
};

}  // namespace

// By interposed.list, the linker leaves these open for the program's definitions.
constexpr Operators operators_in_use = {
    .create = ::operator new,
    .create_array = ::operator new[],
    .create_aligned = ::operator new,
    .create_aligned_array = ::operator new[],
    .destroy = ::operator delete,
    .destroy_array = ::operator delete[],
    .destroy_aligned = ::operator delete,
    .destroy_aligned_array = ::operator delete[],
    .create_nothrow = ::operator new,
    .create_array_nothrow = ::operator new[],
    .create_aligned_nothrow = ::operator new,
    .create_aligned_array_nothrow = ::operator new[],
    .destroy_sized = ::operator delete,
    .destroy_array_sized = ::operator delete[],
    .destroy_nothrow = ::operator delete,
    .destroy_array_nothrow = ::operator delete[],
    .destroy_sized_aligned = ::operator delete,
    .destroy_array_sized_aligned = ::operator delete[],
    .destroy_aligned_nothrow = ::operator delete,
    .destroy_aligned_array_nothrow = ::operator delete[],
};

constinit Atomic<u8> operators_passed_on;
constexpr MallocCalls malloc_in_use = {std::malloc, std::aligned_alloc, std::free};
constinit Atomic<usize> entry_to_own;

namespace {

constexpr usize kCount = sizeof(Operators) / sizeof(void*);

usize count_own_operators() {
  const auto* in_use = reinterpret_cast<const char*>(&operators_in_use);
  const auto* own = reinterpret_cast<const char*>(&kOwnOperators);
  asm("" : "+r"(in_use), "+r"(own));  // a compiler may take two names for two functions
  usize ours = 0;
  for (usize at = 0; at < sizeof(Operators); at += sizeof(void*))
    ours += std::memcmp(in_use + at, own + at, sizeof(void*)) == 0;
  return ours;
}

}  // namespace

bool operators_are_replaced() {
  const usize ours = count_own_operators();
  return ours != 0 && ours != kCount;
}

// Null before the loader has filled the words in.
FREESTONE_SLOW bool another_malloc_serves(bool aligned) {
  const auto* in_use = &malloc_in_use;
  auto* own_aligned = freestone_own_aligned_alloc;
  auto* own_release = freestone_own_free;
  asm("" : "+r"(in_use), "+r"(own_aligned), "+r"(own_release));
  if (in_use->allocate == nullptr || in_use->release == own_release) return false;
  if ((aligned && in_use->allocate_aligned == own_aligned) || count_own_operators() == 0) return false;
  if (os::is_entry_of_program != nullptr && os::object_ahead("malloc") == nullptr &&
      os::is_entry_of_program("malloc", reinterpret_cast<const void*>(in_use->allocate))) {
    entry_to_own.store_relaxed(reinterpret_cast<usize>(in_use->allocate));
    return false;
  }
  operators_passed_on.store_relaxed(1);
  return true;
}

}  // namespace freestone
#endif
