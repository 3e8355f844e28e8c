// Room 20, abi: registration of fork handlers with musl; see atfork.cc. Only in the shared library.

#include <dlfcn.h>

#include <cerrno>

#include "base/compiler.h"
#include "front/fork.h"

extern "C" FREESTONE_EXPORT int pthread_atfork(void (*before)(), void (*in_parent)(), void (*in_child)()) {
  using Register = int (*)(void (*)(), void (*)(), void (*)());
  const auto next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "pthread_atfork"));
  if (next == nullptr) return ENOMEM;
  freestone::watch_forks();
  return next(before, in_parent, in_child);
}
