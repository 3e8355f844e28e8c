// Room 20, abi: registration of fork handlers.
//
// libc runs the handlers before a fork in reverse order of registration, and those after it in order. Ours hold locks,
// so they must run last before the fork and first after it. This file registers them when the first library registers a
// handler, even if that library's constructor runs before ours. With glibc each program and library has a copy of
// pthread_atfork, which calls __register_atfork: this file defines that name, weakly. In a fully static program libc's
// own definition wins, and our constructor registers the handlers. With musl see abi/pthread_atfork.cc.

#include <dlfcn.h>
#include <features.h>

#include <cerrno>

#include "abi/locks.h"
#include "base/compiler.h"
#include "front/fork.h"

namespace freestone {

constinit Mutex option_lock{LockName::option};
constinit Mutex snapshot_lock{LockName::snapshot};
constinit Mutex callbacks_lock{LockName::callbacks};

namespace {

Mutex* const locks[] = {&option_lock, &snapshot_lock, &callbacks_lock};  // as they rank

FREESTONE_NO_ANALYSIS void before_fork() {
  for (Mutex* lock : locks) lock->hold_for_fork();
}
void after_fork_in_parent() {
  for (Mutex* lock : locks) lock->release_after_fork();
}
FREESTONE_NO_ANALYSIS void after_fork_in_child() {
  for (Mutex* lock : locks) lock->reset_in_child();
}

}  // namespace

constinit const ForkHooks abi_fork_hooks = {before_fork, after_fork_in_parent, after_fork_in_child};

}  // namespace freestone

#if !FREESTONE_PREFIXED && defined(__GLIBC__)
using namespace freestone;

extern "C" FREESTONE_EXPORT FREESTONE_AT_START __attribute__((weak)) int __register_atfork(
    void (*prepare)(), void (*parent)(), void (*child)(), void* library) {
  using Register = int (*)(void (*)(), void (*)(), void (*)(), void*);
  // Not kept: what nobody keeps nobody can change, and handlers are registered seldom.
  const auto next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "__register_atfork"));
  if (next == nullptr) return ENOMEM;
  watch_forks();
  return next(prepare, parent, child, library);
}
#endif
