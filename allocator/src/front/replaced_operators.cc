// Room 9, front: finds the operators new and delete that the program replaced. A file of its own: a compiler that sees
// our definitions may take them for the ones in use.
#include "front/replaced_operators.h"

#include <cstring>
#include <new>

#if FREESTONE_PREFIXED
namespace freestone {
bool operators_are_replaced() { return false; }
}  // namespace freestone
#else
// Our definitions, by names that nobody can replace (abi/operator_new.cc).
extern "C" {
FREESTONE_HIDDEN void* freestone_own_create(freestone::usize);
FREESTONE_HIDDEN void* freestone_own_create_array(freestone::usize);
FREESTONE_HIDDEN void* freestone_own_create_aligned(freestone::usize, std::align_val_t);
FREESTONE_HIDDEN void* freestone_own_create_aligned_array(freestone::usize, std::align_val_t);
FREESTONE_HIDDEN void freestone_own_destroy(void*) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_array(void*) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned(void*, std::align_val_t) noexcept;
FREESTONE_HIDDEN void freestone_own_destroy_aligned_array(void*, std::align_val_t) noexcept;
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
};

}  // namespace

// By operators.list, the linker leaves these open for the program's definitions.
constexpr Operators operators_in_use = {
    .create = ::operator new,
    .create_array = ::operator new[],
    .create_aligned = ::operator new,
    .create_aligned_array = ::operator new[],
    .destroy = ::operator delete,
    .destroy_array = ::operator delete[],
    .destroy_aligned = ::operator delete,
    .destroy_aligned_array = ::operator delete[],
};

bool operators_are_replaced() {
  const Operators* in_use = &operators_in_use;
  asm("" : "+r"(in_use));  // a compiler may take two names for two functions
  return std::memcmp(in_use, &kOwnOperators, sizeof kOwnOperators) != 0;
}

}  // namespace freestone
#endif
