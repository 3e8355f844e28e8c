// Room 20, abi: libc's functions that fill a buffer of the caller, in the hardened shared library. A buffer that begins
// in a heap block must end in it, by the number of bytes that the caller allows, whatever arrives. libc's own functions
// then do the work: each call ends with a jump to it, so a thread may be cancelled there. The static forms lack this
// file: only a program's loader finds a second function of a name. FREESTONE_CHECK_LIBC=OFF leaves it out.
//
// glibc's __fgets_chk fills no more than the room that the compiler knows, and stays as it is.

#include <dlfcn.h>
#include <sys/types.h>

#include <cstring>

#include "base/compiler.h"
#include "hardened/memory.h"

using namespace freestone;
using namespace freestone::hardened;

// The result, the name, how much it may write to `to`, the arguments, the parameters.
#if defined(__GLIBC__)
#define FILLS_BY_GLIBC(X) X(ssize_t, pread64, bytes, (file, to, bytes, at), (int file, void* to, usize bytes, off_t at))
#else
#define FILLS_BY_GLIBC(X)  // musl: a macro of its header
#endif
#define FILLS(X)                                                                                                     \
  X(ssize_t, read, bytes, (file, to, bytes), (int file, void* to, usize bytes))                                      \
  X(ssize_t, pread, bytes, (file, to, bytes, at), (int file, void* to, usize bytes, off_t at))                       \
  FILLS_BY_GLIBC(X)                                                                                                  \
  X(ssize_t, recv, received(bytes, flags), (file, to, bytes, flags), (int file, void* to, usize bytes, int flags))   \
  X(ssize_t, recvfrom, received(bytes, flags), (file, to, bytes, flags, sender, sender_bytes),                       \
    (int file, void* to, usize bytes, int flags, void* sender, unsigned* sender_bytes))                              \
  X(usize, fread, bytes* count, (to, bytes, count, file), (void* to, usize bytes, usize count, void* file))          \
  X(usize, fread_unlocked, bytes* count, (to, bytes, count, file), (void* to, usize bytes, usize count, void* file)) \
  X(char*, fgets, not_negative(bytes), (to, bytes, file), (char* to, int bytes, void* file))                         \
  X(char*, fgets_unlocked, not_negative(bytes), (to, bytes, file), (char* to, int bytes, void* file))                \
  X(char*, getcwd, bytes, (to, bytes), (char* to, usize bytes))                                                      \
  X(ssize_t, readlink, bytes, (path, to, bytes), (const char* path, char* to, usize bytes))                          \
  X(wchar_t*, wmemset, count * sizeof(wchar_t), (to, value, count), (wchar_t * to, wchar_t value, usize count))

namespace {

struct Place {
#define PLACE(result, name, ...) name,
  enum : usize { FILLS(PLACE) count };
};
static_assert(Place::count <= sizeof sealed_page.code.fill / sizeof sealed_page.code.fill[0]);

__attribute__((constructor(101))) void find_libc() {
#define FIND(result, name, ...) sealed_page.code.fill[Place::name] = dlsym(RTLD_NEXT, #name);
  FILLS(FIND)
}

// A constructor finds it; before that each call does.
template <typename Function>
FREESTONE_INLINE Function* of_libc(usize place, const char* name) {
  const void* known = sealed_page.code.fill[place];
  if (FREESTONE_UNLIKELY(known == nullptr)) known = dlsym(RTLD_NEXT, name);
  return reinterpret_cast<Function*>(const_cast<void*>(known));
}

__attribute__((noinline)) void expect_writable(const void* to, usize bytes) {
  if (FREESTONE_UNLIKELY(!is_plain_access(to, bytes) && !is_in_last_run(to, bytes, true)))
    check_access(to, bytes, true);
}

// With MSG_TRUNC a stream's bytes are dropped, whatever the buffer.
usize received(usize bytes, int flags) {
  constexpr int kTruncates = 0x20;
  return (flags & kTruncates) != 0 ? 0 : bytes;
}
usize not_negative(int bytes) { return bytes > 0 ? static_cast<usize>(bytes) : 0; }

}  // namespace

extern "C" {

#define DEFINE(result, name, most, arguments, parameters)            \
  FREESTONE_EXPORT result name parameters {                          \
    expect_writable(to, most);                                       \
    return of_libc<result parameters>(Place::name, #name) arguments; \
  }
FILLS(DEFINE)

// The compiler calls these where it knows the room at the destination.
#define WITH_ROOM(result, name, asked, arguments, ...)  \
  FREESTONE_EXPORT result __##name##_chk(__VA_ARGS__) { \
    expect_room(asked, room);                           \
    return name arguments;                              \
  }
WITH_ROOM(ssize_t, read, bytes, (file, to, bytes), int file, void* to, usize bytes, usize room)
WITH_ROOM(ssize_t, pread, bytes, (file, to, bytes, at), int file, void* to, usize bytes, off_t at, usize room)
WITH_ROOM(ssize_t, recv, bytes, (file, to, bytes, flags), int file, void* to, usize bytes, usize room, int flags)
WITH_ROOM(ssize_t, recvfrom, bytes, (file, to, bytes, flags, sender, sender_bytes), int file, void* to, usize bytes,
          usize room, int flags, void* sender, unsigned* sender_bytes)
WITH_ROOM(usize, fread, bytes* count, (to, bytes, count, file), void* to, usize room, usize bytes, usize count,
          void* file)
WITH_ROOM(usize, fread_unlocked, bytes* count, (to, bytes, count, file), void* to, usize room, usize bytes, usize count,
          void* file)
WITH_ROOM(char*, getcwd, bytes, (to, bytes), char* to, usize bytes, usize room)
WITH_ROOM(ssize_t, readlink, bytes, (path, to, bytes), const char* path, char* to, usize bytes, usize room)
WITH_ROOM(wchar_t*, wmemset, count, (to, value, count), wchar_t* to, wchar_t value, usize count, usize room)
#if defined(__GLIBC__)
WITH_ROOM(ssize_t, pread64, bytes, (file, to, bytes, at), int file, void* to, usize bytes, off_t at, usize room)
#endif

// These call the library's own, which check.
FREESTONE_EXPORT void bcopy(const void* from, void* to, usize bytes) { memmove(to, from, bytes); }
FREESTONE_EXPORT void bzero(void* to, usize bytes) { memset(to, 0, bytes); }
FREESTONE_EXPORT void explicit_bzero(void* to, usize bytes) { memset(to, 0, bytes); }
WITH_ROOM(void, explicit_bzero, bytes, (to, bytes), void* to, usize bytes, usize room)
FREESTONE_EXPORT wchar_t* wmemcpy(wchar_t* to, const wchar_t* from, usize count) {
  return static_cast<wchar_t*>(memcpy(to, from, count * sizeof *to));
}
WITH_ROOM(wchar_t*, wmemcpy, count, (to, from, count), wchar_t* to, const wchar_t* from, usize count, usize room)
FREESTONE_EXPORT wchar_t* wmemmove(wchar_t* to, const wchar_t* from, usize count) {
  return static_cast<wchar_t*>(memmove(to, from, count * sizeof *to));
}
WITH_ROOM(wchar_t*, wmemmove, count, (to, from, count), wchar_t* to, const wchar_t* from, usize count, usize room)
FREESTONE_EXPORT void* memccpy(void* to, const void* from, int last, usize bytes) {
  const void* const end = memchr(from, last, bytes);
  if (end == nullptr) return memcpy(to, from, bytes), nullptr;
  return mempcpy(to, from, static_cast<usize>(static_cast<const char*>(end) - static_cast<const char*>(from)) + 1);
}

}  // extern "C"
