// Room 9, front: which operators new and delete the program brought itself.
//
// A program may replace any form of new and delete. The forms that it leaves alone must call the one that the C++
// standard names: sized delete calls plain delete, new[] calls new. While nothing is replaced, our forms need no call.
#pragma once

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

}  // namespace freestone
