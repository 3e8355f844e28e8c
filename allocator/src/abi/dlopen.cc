// Room 20, abi: dlopen without RTLD_DEEPBIND. Only in the shared library.
//
// A library loaded with that flag finds libc's free before the program's, and passes our blocks to it. Without the flag
// it finds ours. `drop_deepbind:false` keeps the flag.
//
// libc chooses the RUNPATH and the namespace by the return address of the call. So the functions that open a library
// end with a jump to libc's, which returns to the caller itself.

#include <dlfcn.h>

#include "base/compiler.h"
#include "config/options.h"
#include "front/heap.h"

#if defined(__clang__)
#define FREESTONE_JUMP [[clang::musttail]] return
#define FREESTONE_WITH_JUMPS
#else
#define FREESTONE_JUMP return
#define FREESTONE_WITH_JUMPS __attribute__((optimize("O2")))  // also in a debug build
#endif

using namespace freestone;

namespace {

using Open = void* (*)(const char*, int) noexcept;
using OpenIn = void* (*)(Lmid_t, const char*, int) noexcept;

void* fail_open(const char*, int) noexcept { return nullptr; }
void* fail_open_in(Lmid_t, const char*, int) noexcept { return nullptr; }

// libc's function of that name. A constructor finds it; before that each call does.
template <typename Function>
Function next_of(const char* name, const void* known, Function none) {
  if (known == nullptr) known = dlsym(RTLD_NEXT, name);
  return known != nullptr ? reinterpret_cast<Function>(const_cast<void*>(known)) : none;
}

__attribute__((constructor(101))) void find_libc() {
  sealed_page.code.dlopen = dlsym(RTLD_NEXT, "dlopen");
  sealed_page.code.dlmopen = dlsym(RTLD_NEXT, "dlmopen");
}

FREESTONE_SLOW int without_deepbind(int mode) {
  return ensure_started() == Mode::active && options.drop_deepbind ? mode & ~RTLD_DEEPBIND : mode;
}

}  // namespace

extern "C" {

FREESTONE_EXPORT FREESTONE_WITH_JUMPS void* dlopen(const char* file, int mode) noexcept {
  const Open next = next_of("dlopen", sealed_page.code.dlopen, fail_open);
  if ((mode & RTLD_DEEPBIND) != 0) mode = without_deepbind(mode);
  FREESTONE_JUMP next(file, mode);
}

// Another namespace has a malloc of its own.
FREESTONE_EXPORT FREESTONE_WITH_JUMPS void* dlmopen(Lmid_t space, const char* file, int mode) noexcept {
  const OpenIn next = next_of("dlmopen", sealed_page.code.dlmopen, fail_open_in);
  if (space == LM_ID_BASE && (mode & RTLD_DEEPBIND) != 0) mode = without_deepbind(mode);
  FREESTONE_JUMP next(space, file, mode);
}
}
