// exit at a bad moment: while other threads allocate, and in the handler of a signal that struck the allocator. What
// the library checks then must find no damage, and must end.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "support/child.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr int kLeft = 23;

// Blocks that lie across a border of pages, in slabs whose pages the threads touch for the first time during the exit.
TEST(Exit, WhileThreadsWriteToNewPagesFindsNoDamage) {
  constexpr unsigned kThreads = 16;
  for (unsigned i = 0; i < scaled(90); ++i) {
    const ChildEnd end = run_in_child([i] {
      static std::atomic<unsigned> blocks{0};
      for (unsigned t = 0; t < kThreads; ++t)
        std::thread([random = Random(i * kThreads + t)]() mutable {
          for (int k = 0; k < 400; ++k, ++blocks) std::memset(api().malloc(4500 + random.below(100)), 1, 4500);
          for (;;) pause();
        }).detach();
      while (blocks < 200) std::this_thread::yield();
      std::exit(kLeft);
      return 1;
    });
    ASSERT_TRUE(end.exited_with(kLeft)) << end.describe();
  }
}

#if defined(__x86_64__)

TEST(Exit, InASignalHandlerThatInterruptedTheAllocatorAtAnyInstructionWorks) {
  constexpr int kWorks = 9;
  constexpr int kOften = 2;  // the first ones are short, and hold locks most of the time
  Random random(test_seed("Exit"));
  for (int work = 0; work < kWorks; ++work) {
    const ChildEnd whole = run_program(FREESTONE_EXIT_PROBE, std::to_string(work));
    ASSERT_TRUE(whole.exited_with(kLeft)) << whole.describe();
    const auto steps = std::strtoul(whole.errors.c_str(), nullptr, 10);
    ASSERT_GT(steps, 50U);
    for (uint64_t i = 0; i < scaled(work < kOften ? 8 : 1); ++i) {
      const std::string point = std::to_string(work) + '.' + std::to_string(1 + random.below(steps));
      const ChildEnd end = run_program(FREESTONE_EXIT_PROBE, point);
      ASSERT_TRUE(end.exited_with(kLeft)) << point << ' ' << end.describe();
    }
  }
}

#endif

}  // namespace
}  // namespace freestone_test
