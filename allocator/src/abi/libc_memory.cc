// Room 20, abi: libc's functions that move and set memory, in the hardened library. An access that begins in a heap
// block must end in it; libc's own functions do the work, before the constructors plain loops. FREESTONE_CHECK_LIBC=OFF
// leaves all names of this file out of the library.
//
// The library's own calls have other names (base/plain_memory.h). The copies of realloc and the clearing of calloc are
// defined below.

#include <dlfcn.h>

#include "base/compiler.h"
#include "hardened/memory.h"

using freestone::sealed_page;
using freestone::usize;
using freestone::hardened::check_access;
using freestone::hardened::expect_room;
using freestone::hardened::is_in_last_run;
using freestone::hardened::is_plain_access;

extern "C" usize strlen(const char* text);
extern "C" usize strnlen(const char* text, usize bytes_max);

namespace {

using Copy = void* (*)(void*, const void*, usize);
using Set = void* (*)(void*, int, usize);

// Null before the constructors: zero without any relocation.
template <typename Function>
FREESTONE_INLINE Function of_libc(const void* address) {
  return reinterpret_cast<Function>(const_cast<void*>(address));
}

void* copy_plainly(void* to, const void* from, usize bytes) {
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(out), "+S"(in), "+c"(bytes) : : "memory");
#else
  for (; bytes > 0; --bytes) {
    *out++ = *in++;
    asm volatile("" : "+r"(out));
  }
#endif
  return to;
}
void* move_plainly(void* to, const void* from, usize bytes) {
  if (freestone::address_of(to) - freestone::address_of(from) >= bytes) return copy_plainly(to, from, bytes);
  auto* out = static_cast<char*>(to);
  const auto* in = static_cast<const char*>(from);
  for (; bytes > 0; --bytes) {
    out[bytes - 1] = in[bytes - 1];
    asm volatile("" : "+r"(out));
  }
  return to;
}
void* set_plainly(void* to, int value, usize bytes) {
  auto* out = static_cast<char*>(to);
#if defined(__x86_64__)
  asm volatile("rep stosb" : "+D"(out), "+c"(bytes) : "a"(value) : "memory");
#else
  for (; bytes > 0; --bytes) {
    *out++ = static_cast<char>(value);
    asm volatile("" : "+r"(out));
  }
#endif
  return to;
}

FREESTONE_INLINE void* copy(void* to, const void* from, usize bytes) {
  const auto function = of_libc<Copy>(sealed_page.code.copy);
  return FREESTONE_LIKELY(function != nullptr) ? function(to, from, bytes) : copy_plainly(to, from, bytes);
}
FREESTONE_INLINE void* move(void* to, const void* from, usize bytes) {
  const auto function = of_libc<Copy>(sealed_page.code.move);
  return FREESTONE_LIKELY(function != nullptr) ? function(to, from, bytes) : move_plainly(to, from, bytes);
}
FREESTONE_INLINE void* set(void* to, int value, usize bytes) {
  const auto function = of_libc<Set>(sealed_page.code.set);
  return FREESTONE_LIKELY(function != nullptr) ? function(to, value, bytes) : set_plainly(to, value, bytes);
}

FREESTONE_INLINE bool is_simple_access(const void* from, usize bytes, bool writes) {
  return is_plain_access(from, bytes) || is_in_last_run(from, bytes, writes);
}
FREESTONE_INLINE void check(const void* from, usize bytes, bool writes) {
  if (FREESTONE_UNLIKELY(!is_simple_access(from, bytes, writes))) check_access(from, bytes, writes);
}
// Each form ends in a tail call of the next, so that only the last needs to save registers: most accesses are plain,
// and most others are in the run of the last one.
using Work = void* (*)(void*, const void*, usize);
template <Work work>
__attribute__((noinline)) void* with_care(void* to, const void* from, usize bytes) {
  check(to, bytes, true);
  check(from, bytes, false);
  return work(to, from, bytes);
}
// `to` is right.
template <Work work>
__attribute__((noinline)) void* from_run(void* to, const void* from, usize bytes) {
  return is_in_last_run(from, bytes, false) ? work(to, from, bytes) : with_care<work>(to, from, bytes);
}
template <Work work>
__attribute__((noinline)) void* to_run(void* to, const void* from, usize bytes) {
  if (FREESTONE_UNLIKELY(!is_in_last_run(to, bytes, true))) return with_care<work>(to, from, bytes);
  return FREESTONE_LIKELY(is_plain_access(from, bytes)) ? work(to, from, bytes) : from_run<work>(to, from, bytes);
}
template <Work work>
FREESTONE_INLINE void* checked(void* to, const void* from, usize bytes) {
  if (FREESTONE_UNLIKELY(!is_plain_access(to, bytes))) return to_run<work>(to, from, bytes);
  if (FREESTONE_UNLIKELY(!is_plain_access(from, bytes))) return from_run<work>(to, from, bytes);
  return work(to, from, bytes);
}
__attribute__((noinline)) void* set_with_care(void* to, int value, usize bytes) {
  check_access(to, bytes, true);
  return set(to, value, bytes);
}
__attribute__((noinline)) void* set_in_run(void* to, int value, usize bytes) {
  return is_in_last_run(to, bytes, true) ? set(to, value, bytes) : set_with_care(to, value, bytes);
}
FREESTONE_INLINE void* checked_set(void* to, int value, usize bytes) {
  return FREESTONE_LIKELY(is_plain_access(to, bytes)) ? set(to, value, bytes) : set_in_run(to, value, bytes);
}
// The length of a string. In the heap its end must lie in its block, or be the zero right behind the bytes asked for.
FREESTONE_INLINE usize length_of(const char* text) {
  const usize length = strlen(text);
  check(text, length + 1, false);
  return length;
}
FREESTONE_INLINE usize length_of(const char* text, usize bytes_max) {
  const usize length = strnlen(text, bytes_max);
  check(text, freestone::min_of(length + 1, bytes_max), false);
  return length;
}

FREESTONE_INLINE char* copy_string(char* to, const char* from, usize room) {
  const usize bytes = length_of(from) + 1;
  expect_room(bytes, room);
  check(to, bytes, true);
  copy(to, from, bytes);
  return to + bytes - 1;
}
FREESTONE_INLINE char* copy_string_padded(char* to, const char* from, usize bytes, usize room) {
  expect_room(bytes, room);
  const usize length = length_of(from, bytes);
  check(to, bytes, true);
  copy(to, from, length);
  set(to + length, 0, bytes - length);
  return to + length;
}
FREESTONE_INLINE void append_string(char* to, const char* from, usize length, usize room) {
  const usize before = strlen(to);
  expect_room(before + length + 1, room);
  check(to, before + length + 1, true);
  copy(to + before, from, length);
  to[before + length] = '\0';
}

constexpr usize kNoRoomKnown = ~usize{0};

__attribute__((constructor(101))) void find_libc() {
  sealed_page.code.copy = dlsym(RTLD_NEXT, "memcpy");
  sealed_page.code.move = dlsym(RTLD_NEXT, "memmove");
  sealed_page.code.set = dlsym(RTLD_NEXT, "memset");
}

}  // namespace

extern "C" {

FREESTONE_HIDDEN void* freestone_libc_memcpy(void* to, const void* from, usize bytes) { return copy(to, from, bytes); }
FREESTONE_HIDDEN void* freestone_libc_memmove(void* to, const void* from, usize bytes) { return move(to, from, bytes); }
FREESTONE_HIDDEN void* freestone_libc_memset(void* to, int value, usize bytes) { return set(to, value, bytes); }

// A function of libc under both its names: the compiler calls the second where it knows the room at the destination.
#define UNPACK(...) __VA_ARGS__
#define WITH_ROOM(result, name, parameters, ...) \
  FREESTONE_EXPORT result name parameters {      \
    constexpr usize room = kNoRoomKnown;         \
    __VA_ARGS__                                  \
  }                                              \
  FREESTONE_EXPORT result __##name##_chk(UNPACK parameters, const usize room) { __VA_ARGS__ }

WITH_ROOM(void*, memcpy, (void* to, const void* from, usize bytes), {
  expect_room(bytes, room);
  return checked<copy>(to, from, bytes);
})
WITH_ROOM(void*, memmove, (void* to, const void* from, usize bytes), {
  expect_room(bytes, room);
  return checked<move>(to, from, bytes);
})
WITH_ROOM(void*, mempcpy, (void* to, const void* from, usize bytes), {
  expect_room(bytes, room);
  return static_cast<char*>(checked<copy>(to, from, bytes)) + bytes;
})
WITH_ROOM(void*, memset, (void* to, int value, usize bytes), {
  expect_room(bytes, room);
  return checked_set(to, value, bytes);
})
WITH_ROOM(char*, strcpy, (char* to, const char* from), {
  copy_string(to, from, room);
  return to;
})
WITH_ROOM(char*, stpcpy, (char* to, const char* from), { return copy_string(to, from, room); })
WITH_ROOM(char*, strncpy, (char* to, const char* from, usize bytes), {
  copy_string_padded(to, from, bytes, room);
  return to;
})
WITH_ROOM(char*, stpncpy, (char* to, const char* from, usize bytes),
          { return copy_string_padded(to, from, bytes, room); })
WITH_ROOM(char*, strcat, (char* to, const char* from), {
  append_string(to, from, length_of(from), room);
  return to;
})
WITH_ROOM(char*, strncat, (char* to, const char* from, usize bytes_max), {
  append_string(to, from, length_of(from, bytes_max), room);
  return to;
})

}  // extern "C"
