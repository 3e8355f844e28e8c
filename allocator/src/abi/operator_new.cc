// Room 20, abi: C++ operator new and delete, without linking a C++ runtime.
//
// The new-handler and the exception belong to the program's runtime, which weak references reach: a C++ program has
// them, and a C program never gets here.
//
// NEW-1  If the program replaced an operator, each form that it left alone calls the operator that the standard names.
// NEW-2  If another library's malloc and free come first, the operators call these, as libstdc++'s do.

#include <cstddef>
#include <type_traits>

#include "abi/entry.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "front/replaced_operators.h"
#include "platform/message.h"
#include "sampling/sampling.h"

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
}  // namespace std

// operator new at an alignment, even where the program has its own.
extern "C" FREESTONE_HIDDEN void* freestone_own_create_aligned(std::size_t, std::align_val_t);

using namespace freestone;

namespace {

[[noreturn]] void throw_bad_alloc() {
  if (&std::__throw_bad_alloc != nullptr) std::__throw_bad_alloc();
  (Message() << "out of memory in operator new, and the program has no C++ runtime to throw std::bad_alloc").write();
  abort_now();
}

constexpr usize kUnaligned = 0;  // no alignment was named

// NEW-2. In the fast build that is looked at on slow paths, which then serve each call.
FREESTONE_INLINE bool passes_on(bool aligned) {
  const bool passes = operators_pass_on(false);
  if constexpr (!kChecksEveryCall) take_slow_paths(passes);
  return passes && (!aligned || operators_pass_on(true));
}

// Of another's malloc, as libstdc++ asks for it.
FREESTONE_SLOW void* allocate_elsewhere(usize bytes) { return malloc_in_use.allocate(bytes_passed_on(bytes, 1)); }
FREESTONE_SLOW void* allocate_elsewhere_aligned(usize bytes, usize alignment) {
  alignment = max_of(alignment, sizeof(void*));
  const usize rounded = bytes_passed_on(bytes, alignment);
  return rounded >= bytes ? malloc_in_use.allocate_aligned(alignment, rounded) : nullptr;
}

FREESTONE_APART void* allocate_for_new(usize bytes, usize alignment, Origin origin) {
  const bool aligned = alignment != kUnaligned;
  if (FREESTONE_UNLIKELY(passes_on(aligned)))
    return aligned ? allocate_elsewhere_aligned(bytes, alignment) : allocate_elsewhere(bytes);
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

// Of each form of new: what it calls when there is no memory, new_slow or new_nothrow_slow.
using Retry = void*(usize bytes, usize alignment, Origin origin);

// Tail-called by the fast path, which has looked into the thread cache already.
template <Retry retry>
FREESTONE_SLOW void* new_miss(usize bytes) {
  void* block = passes_on(false) ? allocate_elsewhere(bytes) : allocate_slow(bytes);
  return FREESTONE_LIKELY(block != nullptr) ? block : retry(bytes, kUnaligned, Origin::new_object);
}

template <Retry retry = new_slow>
FREESTONE_INLINE void* new_block(usize bytes, Origin origin) {
  if constexpr (kChecksEveryCall) {
    const bool is_ours = FREESTONE_LIKELY(!malloc_is_anothers());
    void* block = is_ours ? serve_malloc(bytes, origin) : allocate_for_new(bytes, kUnaligned, origin);
    return FREESTONE_LIKELY(block != nullptr) ? block : retry(bytes, kUnaligned, origin);
  } else {
    return allocate<new_miss<retry>>(bytes);
  }
}

template <Retry retry>
FREESTONE_SLOW void* new_aligned_miss(usize bytes, usize alignment) {
  void* block =
      passes_on(true) ? allocate_elsewhere_aligned(bytes, alignment) : allocate_aligned_slow(bytes, alignment);
  return FREESTONE_LIKELY(block != nullptr) ? block : retry(bytes, alignment, Origin::new_object);
}

template <Retry retry = new_slow>
FREESTONE_INLINE void* new_aligned(usize bytes, std::align_val_t alignment, Origin origin) {
  if constexpr (kChecksEveryCall) {
    void* block = allocate_for_new(bytes, static_cast<usize>(alignment), origin);
    return block != nullptr ? block : retry(bytes, static_cast<usize>(alignment), origin);
  } else {
    return allocate_aligned<new_aligned_miss<retry>>(bytes, static_cast<usize>(alignment));
  }
}

constexpr Origin kObject = Origin::new_object;
constexpr Origin kArray = Origin::new_array;
constexpr Origin aligned(Origin family, std::align_val_t alignment) {
  return with_alignment(family, static_cast<usize>(alignment));
}

// The region's base, once it is known that no operator is replaced; until then, and if one is, kNowhere. Relaxed: a
// thread that holds a block has seen the base that is stored here.
Atomic<usize> forms_base{kNowhere};

FREESTONE_INLINE bool forms_are_undecided() { return (forms_base.load_operand() & kNowhere) != 0; }
FREESTONE_SLOW bool forms_are_replaced() {
  if (operators_are_replaced()) return true;
  forms_base.store_relaxed(region.base);
  return false;
}

// Each form passes `target`, the call that the standard names, and `serve`, what it does while nothing is replaced. Out
// of line: the first call, and every call in a program that replaced something.
template <typename Target, typename Serve>
FREESTONE_SLOW auto first_or_replaced(Target target, Serve serve) {
  return forms_are_replaced() ? target() : serve();
}
template <typename Target, typename Serve>
FREESTONE_INLINE void* new_array(Target target, Serve serve) {
  return FREESTONE_UNLIKELY(forms_are_undecided()) ? first_or_replaced(target, serve) : serve();
}

template <typename Target, typename Serve>
FREESTONE_SLOW void* first_or_replaced_nothrow(Target target, Serve serve) noexcept {
  if (!forms_are_replaced()) return serve();
  try {
    return target();
  } catch (...) {
    return nullptr;
  }
}
template <typename Target, typename Serve>
FREESTONE_INLINE void* new_nothrow(Target target, Serve serve) {
  return FREESTONE_UNLIKELY(forms_are_undecided()) ? first_or_replaced_nothrow(target, serve) : serve();
}

template <bool Aligned>
FREESTONE_SLOW void release_slow(void* block, usize tag) noexcept {
  return passes_on(Aligned) ? malloc_in_use.release(block) : deallocate_slow(block, tag);
}
template <bool Aligned>
FREESTONE_SLOW void release_outside(void* block) noexcept {
  return passes_on(Aligned) ? malloc_in_use.release(block) : deallocate_outside(block);
}
template <bool Aligned>
FREESTONE_SLOW void release_checked(void* block, Origin origin, usize bytes) noexcept {
  return passes_on(Aligned) ? malloc_in_use.release(block) : serve_free(block, origin, bytes);
}
// What every form of delete does while nothing is replaced.
template <bool Aligned>
FREESTONE_INLINE void release(void* block, Origin origin, usize bytes = kUnknownBytes) noexcept {
  if constexpr (!kChecksEveryCall)
    return deallocate<release_slow<Aligned>>(block, region.base, [=] { release_outside<Aligned>(block); });
  if (FREESTONE_UNLIKELY(malloc_is_anothers())) return release_checked<Aligned>(block, origin, bytes);
  serve_free(block, origin, bytes);
}

// A block at an alignment that no call named.
constexpr std::align_val_t kPlain{1};

// Each form of delete names the operator that it passes, `Target`.
template <auto Target>
constexpr bool kIsAligned = std::is_same_v<decltype(Target), decltype(&Operators::destroy_aligned)>;

template <auto Target>
FREESTONE_SLOW void delete_first_or_replaced(void* block, Origin family, std::align_val_t alignment,
                                             usize bytes) noexcept {
  if (!forms_are_replaced()) return release<kIsAligned<Target>>(block, aligned(family, alignment), bytes);
  if constexpr (kIsAligned<Target>) return (operators_in_use.*Target)(block, alignment);
  if constexpr (!kIsAligned<Target>) return (operators_in_use.*Target)(block);
}
template <auto Target>
FREESTONE_INLINE void delete_form(void* block, Origin family, std::align_val_t alignment, usize bytes = kUnknownBytes) {
  const auto outside = [=]() __attribute__((always_inline)) {
    delete_first_or_replaced<Target>(block, family, alignment, bytes);
  };
  if constexpr (!kChecksEveryCall)
    return deallocate<release_slow<kIsAligned<Target>>>(block, forms_base.load_relaxed(), outside);
  return FREESTONE_UNLIKELY(forms_are_undecided())
             ? outside()
             : release<kIsAligned<Target>>(block, aligned(family, alignment), bytes);
}

}  // namespace

#define EXPORT FREESTONE_EXPORT FREESTONE_HOT

EXPORT void* operator new(std::size_t bytes) { return new_block(bytes, kObject); }
EXPORT void* operator new[](std::size_t bytes) {
  return new_array([=] { return operators_in_use.create(bytes); }, [=] { return new_block(bytes, kArray); });
}
EXPORT void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return new_nothrow([=] { return operators_in_use.create(bytes); },
                     [=] { return new_block<new_nothrow_slow>(bytes, kObject); });
}
EXPORT void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return new_nothrow([=] { return operators_in_use.create_array(bytes); },
                     [=] { return new_block<new_nothrow_slow>(bytes, kArray); });
}
EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return new_aligned(bytes, alignment, kObject);
}
EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return new_array([=] { return operators_in_use.create_aligned(bytes, alignment); },
                   [=] {
                     if constexpr (kChecksEveryCall) return new_aligned(bytes, alignment, kArray);
                     return freestone_own_create_aligned(bytes, alignment);
                   });
}
EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return new_nothrow([=] { return operators_in_use.create_aligned(bytes, alignment); },
                     [=] { return new_aligned<new_nothrow_slow>(bytes, alignment, kObject); });
}
EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return new_nothrow([=] { return operators_in_use.create_aligned_array(bytes, alignment); },
                     [=] { return new_aligned<new_nothrow_slow>(bytes, alignment, kArray); });
}

EXPORT void operator delete(void* block) noexcept { release<false>(block, kObject); }
EXPORT void operator delete[](void* block) noexcept { delete_form<&Operators::destroy>(block, kArray, kPlain); }
EXPORT void operator delete(void* block, const std::nothrow_t&) noexcept {
  delete_form<&Operators::destroy>(block, kObject, kPlain);
}
EXPORT void operator delete[](void* block, const std::nothrow_t&) noexcept {
  delete_form<&Operators::destroy_array>(block, kArray, kPlain);
}
EXPORT void operator delete(void* block, std::size_t bytes) noexcept {
  delete_form<&Operators::destroy>(block, kObject, kPlain, bytes);
}
EXPORT void operator delete[](void* block, std::size_t bytes) noexcept {
  delete_form<&Operators::destroy_array>(block, kArray, kPlain, bytes);
}
EXPORT void operator delete(void* block, std::align_val_t alignment) noexcept {
  release<true>(block, aligned(kObject, alignment));
}
EXPORT void operator delete[](void* block, std::align_val_t alignment) noexcept {
  delete_form<&Operators::destroy_aligned>(block, kArray, alignment);
}
EXPORT void operator delete(void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  delete_form<&Operators::destroy_aligned>(block, kObject, alignment);
}
EXPORT void operator delete[](void* block, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  delete_form<&Operators::destroy_aligned_array>(block, kArray, alignment);
}
EXPORT void operator delete(void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  delete_form<&Operators::destroy_aligned>(block, kObject, alignment, bytes);
}
EXPORT void operator delete[](void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
  delete_form<&Operators::destroy_aligned_array>(block, kArray, alignment, bytes);
}

// What replaced_operators.cc compares with the operators in use.
ALSO_HIDDEN("freestone_own_create", "_Znwm");
ALSO_HIDDEN("freestone_own_create_array", "_Znam");
ALSO_HIDDEN("freestone_own_create_aligned", "_ZnwmSt11align_val_t");
ALSO_HIDDEN("freestone_own_create_aligned_array", "_ZnamSt11align_val_t");
ALSO_HIDDEN("freestone_own_destroy", "_ZdlPv");
ALSO_HIDDEN("freestone_own_destroy_array", "_ZdaPv");
ALSO_HIDDEN("freestone_own_destroy_aligned", "_ZdlPvSt11align_val_t");
ALSO_HIDDEN("freestone_own_destroy_aligned_array", "_ZdaPvSt11align_val_t");
ALSO_HIDDEN("freestone_own_create_nothrow", "_ZnwmRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_create_array_nothrow", "_ZnamRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_create_aligned_nothrow", "_ZnwmSt11align_val_tRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_create_aligned_array_nothrow", "_ZnamSt11align_val_tRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_destroy_sized", "_ZdlPvm");
ALSO_HIDDEN("freestone_own_destroy_array_sized", "_ZdaPvm");
ALSO_HIDDEN("freestone_own_destroy_nothrow", "_ZdlPvRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_destroy_array_nothrow", "_ZdaPvRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_destroy_sized_aligned", "_ZdlPvmSt11align_val_t");
ALSO_HIDDEN("freestone_own_destroy_array_sized_aligned", "_ZdaPvmSt11align_val_t");
ALSO_HIDDEN("freestone_own_destroy_aligned_nothrow", "_ZdlPvSt11align_val_tRKSt9nothrow_t");
ALSO_HIDDEN("freestone_own_destroy_aligned_array_nothrow", "_ZdaPvSt11align_val_tRKSt9nothrow_t");
