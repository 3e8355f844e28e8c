// Room 19, abi: who registers fork handlers.
//
// libc runs what is to happen before a fork in the reverse order of registration, and what is to happen after it in
// that order. Ours hold locks, so they shall be the last before and the first after: they are registered when the first
// library registers any, even if its constructors run before ours. pthread_atfork is a piece of each program and
// library that calls __register_atfork of libc; that is the name to take. In a wholly static program the definition of
// libc wins, as this one is weak, and our constructor registers.

#include <dlfcn.h>

#include <cerrno>

#include "abi/locks.h"
#include "base/compiler.h"
#include "front/fork.h"

namespace freestone {

constinit Mutex option_lock{LockName::option};
constinit Mutex snapshot_lock{LockName::snapshot};
constinit Mutex callbacks_lock{LockName::callbacks};

namespace {

void before_fork() {
  option_lock.hold_for_fork();
  snapshot_lock.hold_for_fork();
  callbacks_lock.hold_for_fork();
}
void after_fork_in_parent() {
  callbacks_lock.release_after_fork();
  snapshot_lock.release_after_fork();
  option_lock.release_after_fork();
}
void after_fork_in_child() {
  callbacks_lock.reset_in_child();
  snapshot_lock.reset_in_child();
  option_lock.reset_in_child();
}

}  // namespace

constinit const ForkHooks abi_fork_hooks = {before_fork, after_fork_in_parent, after_fork_in_child};

}  // namespace freestone

#if !FREESTONE_PREFIXED
using namespace freestone;

extern "C" FREESTONE_EXPORT __attribute__((weak)) int __register_atfork(void (*prepare)(), void (*parent)(),
                                                                        void (*child)(), void* library) {
  using Register = int (*)(void (*)(), void (*)(), void (*)(), void*);
  static Atomic<Register> of_libc;  // relaxed: every thread finds the same
  Register next = of_libc.load_relaxed();
  if (next == nullptr) {
    next = reinterpret_cast<Register>(dlsym(RTLD_NEXT, "__register_atfork"));
    if (next == nullptr) return ENOMEM;
    of_libc.store_relaxed(next);
  }
  watch_forks();
  return next(prepare, parent, child, library);
}
#endif
