// Unusual moments: exit, signals, vfork, small stacks, contexts.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <thread>

#include "support/child.h"
#include "support/exercise.h"

extern char** environ;
extern "C" int early_threads_that_ended();

namespace freestone_test {
namespace {

TEST(Exit, HandlersMayAllocateWhileThreadsStillRun) {
  for (uint64_t i = 0; i < scaled(20); ++i) {
    const ChildEnd end = run_in_child([] {
      for (uint64_t seed = 0; seed < 4; ++seed)
        std::thread([seed] {
          for (;;) Exerciser(seed).run(100);
        }).detach();
      for (int j = 0; j < 30; ++j) std::atexit([] { _exit(21 + exercise(9, 200)); });
      std::exit(0);
      return 1;
    });
    ASSERT_TRUE(end.exited_with(21)) << end.describe();
  }
}

std::atomic<uint64_t> signals{0};
std::atomic<bool> in_heap{false};

// A handler that interrupts a program outside of the allocator may allocate.
void allocating_handler(int) {
  signals.fetch_add(1);
  if (in_heap.load()) return;
  for (size_t i = 0; i < 8; ++i) api().free(api().malloc(16 + i * 100));
}

TEST(Signal, HandlerMayAllocateWhileItsThreadIsOutsideTheAllocator) {
  struct sigaction action {};
  action.sa_handler = allocating_handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval often{{0, 300}, {0, 300}};
  setitimer(ITIMER_REAL, &often, nullptr);
  // The handler asks in_heap, so the signal strikes allocator calls as well, where the handler only returns.
  // A timer may be as coarse as the kernel's tick.
  for (uint64_t i = 0; i < scaled(1500) || signals.load() <= 20; ++i) {
    in_heap = true;
    const Exercise result = Exerciser(i).run(20);
    in_heap = false;
    ASSERT_TRUE(result.sound()) << result.broken;
    for (std::atomic<int> spin{0}; spin < 1000; ++spin) {
    }
  }
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  signal(SIGALRM, SIG_DFL);
}

// Allocating inside a handler that struck the allocator is undefined; what may not happen is damage to a heap whose
// handler does not.
TEST(Signal, LongJumpOutOfAHandlerOutsideTheAllocatorLeavesASoundHeap) {
  static sigjmp_buf back;
  struct sigaction action {};
  action.sa_handler = [](int) { siglongjmp(back, 1); };
  sigaction(SIGUSR1, &action, nullptr);
  for (std::atomic<int> i{0}; i < 200; ++i) {
    void* volatile block = api().malloc(100);
    if (sigsetjmp(back, 1) == 0) raise(SIGUSR1);
    api().free(block);
  }
  EXPECT_EQ(exercise(1, 300), 0);
  signal(SIGUSR1, SIG_DFL);
}

TEST(Spawn, ByVforkAndPosixSpawnWorksWhileThreadsAllocate) {
  const Background busy(1, [](size_t) { Exerciser(2).run(50); });
  for (int i = 0; i < 60; ++i) {
    pid_t child = -1;
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    if (i % 2 == 0) {
      ASSERT_EQ(posix_spawnp(&child, "true", nullptr, nullptr, arguments, environ), 0);
    } else {
      child = vfork();
      if (child == 0) {
        execvp("true", arguments);
        _exit(127);
      }
    }
    ASSERT_EQ(wait_for(child), 0);
  }
}

TEST(Stack, SmallestThreadStackSuffices) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  const size_t smallest = static_cast<size_t>(sysconf(_SC_THREAD_STACK_MIN)) + 8192;
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, (smallest + 4095) / 4096 * 4096), 0);
  for (int i = 0; i < 50; ++i) {
    pthread_t thread;
    const auto body = [](void*) -> void* {
      for (size_t size = 1; size < (size_t{8} << 20); size = size * 3 + 1) {
        void* block = api().malloc(size);
        block = api().realloc(block, size * 2);
        api().free(block);
      }
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &attributes, body, nullptr), 0);
    pthread_join(thread, nullptr);
  }
  pthread_attr_destroy(&attributes);
}

// Blocks that ended threads cached would count as cached, or be missing.
TEST(ThreadEnd, BeforeTheAllocatorsConstructorLeavesNothingBehind) {
  ASSERT_GT(early_threads_that_ended(), 100);
  if (api().mallinfo2 == nullptr) GTEST_SKIP() << "no statistics to look at";
  const struct mallinfo2 info = api().mallinfo2();
  // What the thread that runs the tests may hold itself; the ended ones would hold 32 MiB.
  EXPECT_LT(info.fsmblks, size_t{8} << 20) << "bytes in the caches of threads";
}

ucontext_t main_context;
ucontext_t fiber_context;

void fiber_body() {
  for (;;) {
    void* block = api().malloc(777);
    swapcontext(&fiber_context, &main_context);
    api().free(block);
  }
}

TEST(Fibers, ThatMoveBetweenThreadsMayAllocate) {
  static char stack[65536];
  getcontext(&fiber_context);
  fiber_context.uc_stack.ss_sp = stack;
  fiber_context.uc_stack.ss_size = sizeof stack;
  fiber_context.uc_link = nullptr;
  makecontext(&fiber_context, fiber_body, 0);
  for (int i = 0; i < 200; ++i) {
    std::thread carrier([] { swapcontext(&main_context, &fiber_context); });
    carrier.join();
  }
}

}  // namespace
}  // namespace freestone_test
