// The allocator under test, seen through its exported names only.
//
// Every call goes through a pointer found by dlsym, so the compiler can neither remove an allocation nor assume what a
// name does, and a name that the subject lacks is a null pointer instead of a silent call into another allocator: a
// name counts as the subject's only when the object that defines it is the one that defines malloc.
#pragma once

#include <malloc.h>

#include <cstddef>
#include <cstdio>
#include <string>

struct mallinfo;  // other C libraries than glibc have neither
struct mallinfo2;

namespace freestone_test {

#ifdef FREESTONE_TEST_EMULATED
inline constexpr bool kEmulated = true;  // by qemu
#else
inline constexpr bool kEmulated = false;
#endif

struct Api {
  void* (*malloc)(size_t);
  void (*free)(void*);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*reallocarray)(void*, size_t, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void**, size_t, size_t);
  void* (*memalign)(size_t, size_t);
  void* (*valloc)(size_t);
  void* (*pvalloc)(size_t);
  size_t (*malloc_usable_size)(void*);
  void (*free_sized)(void*, size_t);
  void (*free_aligned_sized)(void*, size_t, size_t);
  void (*cfree)(void*);
  int (*malloc_trim)(size_t);
  int (*mallopt)(int, int);
  struct mallinfo (*mallinfo)();
  struct mallinfo2 (*mallinfo2)();
  int (*malloc_info)(int, FILE*);
  void (*malloc_stats)();
  int (*freestone_is_active)();
};

struct Subject {
  Api api;
  std::string owner;  // path of the object that defines malloc
  bool is_freestone;
  bool is_hardened;
  bool serves_operators;  // operator new and delete are the subject's; not so in sanitizer builds, whose names carry a
                          // prefix
};

// Looked up once; safe to call from several threads after main has called it.
const Subject& subject();

inline const Api& api() { return subject().api; }

// Ends the process with status 2 unless malloc belongs to the file named by FREESTONE_EXPECT_LIBRARY (when that is
// set): a test that ran on another allocator than the one it was given would pass for the wrong reason.
void require_expected_subject();

}  // namespace freestone_test
