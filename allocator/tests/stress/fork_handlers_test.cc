// Fork handlers of other libraries that use the heap, registered before the allocator's constructor ran (a linked
// library) and after it (the same library under another name, loaded late). No order of handlers, and nothing that a
// handler waits for, may end in a hang.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "stress/fork_handler_library.h"
#include "support/child.h"
#include "support/exercise.h"
#include "support/random.h"

namespace freestone_test {
namespace {

struct Library {
  decltype(&set_fork_handler) set;
  decltype(&work_beside_fork_handler) work_beside;
  decltype(&fork_handler_runs) runs;
};

Library linked() { return {set_fork_handler, work_beside_fork_handler, fork_handler_runs}; }

Library loaded_late() {
  void* library = dlopen(FREESTONE_LATE_HANDLERS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  return {reinterpret_cast<decltype(&set_fork_handler)>(dlsym(library, "set_fork_handler")),
          reinterpret_cast<decltype(&work_beside_fork_handler)>(dlsym(library, "work_beside_fork_handler")),
          reinterpret_cast<decltype(&fork_handler_runs)>(dlsym(library, "fork_handler_runs"))};
}

void try_every_action(const Library& library, uint64_t seed) {
  const Background beside(2, [&](size_t) { library.work_beside(); });
  const int before = library.runs();
  for (int moment = 0; moment < kForkHandlerMoments; ++moment)
    for (int action = 1; action <= static_cast<int>(ForkHandlerAction::wait_for_lock); ++action) {
      // A lock that another thread held at the fork is nobody's in the child: such a handler is wrong anywhere.
      if (moment == 2 && action == static_cast<int>(ForkHandlerAction::wait_for_lock)) continue;
      for (int i = 0; i < 3; ++i) {
        library.set(moment, static_cast<ForkHandlerAction>(action));
        const int status = fork_and([&] {
          const Exercise result = Exerciser(seed).run(30);
          return result.sound() && result.nulls == 0 ? 0 : 1;
        });
        ++seed;
        EXPECT_EQ(status, 0) << kForkHandlerActions[action] << ' ' << kForkHandlerMomentNames[moment];
      }
    }
  library.set(0, ForkHandlerAction::nothing);
  EXPECT_GT(library.runs(), before) << "no handler ran: the test would prove nothing";
}

TEST(ForkHandlers, OfALibraryInitialisedBeforeMayUseTheHeap) { try_every_action(linked(), test_seed("fork handlers")); }

TEST(ForkHandlers, OfALibraryLoadedLateMayUseTheHeap) {
  const Library library = loaded_late();
  ASSERT_NE(library.set, nullptr) << dlerror();
  try_every_action(library, test_seed("late fork handlers"));
}

}  // namespace
}  // namespace freestone_test
