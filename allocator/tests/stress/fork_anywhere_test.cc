// fork where it is least expected: while libc's own locks are held around allocations, in the midst of malloc itself,
// and by calls that run no handlers.
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/exercise.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

void churn(size_t = 0) {
  void* blocks[64];
  for (size_t i = 0; i < 64; ++i) blocks[i] = api().malloc(1 + i * i * 37 % 70000);
  for (void* block : blocks) api().free(block);
  api().free(api().malloc(300000));
  api().free(api().malloc(40 << 20));
}

#if defined(__x86_64__)

// These come first: behind other tests a new thread steps through the quarantines of their threads, too.
//
// Single steps: after each instruction the kernel sends SIGTRAP, whose handler forks. The child goes on from there.
constexpr long kTrapFlag = 0x100;
volatile long steps = 0;
volatile long forks = 0;
volatile long failed_forks = 0;
volatile long stride = 1;
volatile long most_forks = 0;
volatile bool is_child = false;

void on_step(int, siginfo_t*, void* context) {
  if (++steps % stride != 0) return;
  if (++forks >= most_forks) static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  const pid_t child = fork();
  if (child == 0) {
    alarm(kHangSeconds);
    is_child = true;
    static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
    return;
  }
  if (wait_for(child) != 0) ++failed_forks;
}

template <typename Work>
void run_in_steps(Work work) {
  struct sigaction action = {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  asm volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  work();
  asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
  if (is_child) _exit(exercise(static_cast<uint64_t>(steps), 12));
}

void work_in_steps() {
  static void* blocks[200];
  run_in_steps([] {
    void* first = api().malloc(100);  // no cache yet in a new thread
    for (size_t i = 0; i < 40; ++i) blocks[i] = api().malloc(700);
    for (size_t i = 0; i < 40; ++i) api().free(blocks[i]);
    void* run = api().malloc(200000);
    void* mapping = api().malloc(40 << 20);
    mapping = api().realloc(mapping, 50 << 20);
    api().free(run);
    api().free(mapping);
    api().free(api().realloc(first, 5000));
  });
}

long steps_alone() {
  steps = 0;
  stride = most_forks = 1 << 30;
  std::thread(work_in_steps).join();
  EXPECT_GT(steps, 1000);
  return steps;
}

// What others do decides how many instructions it is each time: passes are added, or the last one stops early.
void fork_at_every_instruction(long instructions) {
  const auto wanted = static_cast<long>(scaled(1500));
  most_forks = wanted;
  steps = forks = failed_forks = 0;
  for (stride = instructions / wanted * 2 + 1; forks <= wanted / 4; stride += 2) std::thread(work_in_steps).join();
  EXPECT_EQ(failed_forks, 0) << "of " << forks << " forks, one every " << stride << " instructions of " << instructions;
}

TEST(ForkAnywhere, InASignalHandlerThatInterruptedTheAllocatorAtAnyInstructionWorks) {
  fork_at_every_instruction(steps_alone());
}

TEST(ForkAnywhere, InASignalHandlerWhileOthersAllocateWorks) {
  const long alone = steps_alone();
  const Background others(2, churn);
  fork_at_every_instruction(alone);
}

#endif

// getline allocates with its stream locked; fork takes the lock of all streams; a flush of all streams takes the one,
// then the other.
TEST(ForkAnywhere, WhileStreamsAreReadWorks) {
  char path[] = "/tmp/freestone-fork-XXXXXX";
  const int file = mkstemp(path);
  ASSERT_GE(file, 0);
  const std::string line(20000, 'a');
  for (int i = 0; i < 60; ++i) dprintf(file, "%.*s\n", i * 331 % 20000, line.c_str());
  close(file);
  {
    const Background readers(8, [&path](size_t) {
      FILE* stream = fopen(path, "r");
      char* text = nullptr;
      size_t room = 0;
      while (getline(&text, &room, stream) > 0) {
        if (room < 9000) continue;
        free(text);
        text = nullptr;
        room = 0;
      }
      free(text);
      fclose(stream);
    });
    const Background flusher(1, [](size_t) { fflush(nullptr); });
    std::atomic<int> failures{0};
    std::vector<std::thread> forkers;
    for (int t = 0; t < 4; ++t)
      forkers.emplace_back([&failures] {
        for (uint64_t i = 0; i < scaled(40); ++i)
          failures += fork_and([] {
            FILE* stream = fopen("/dev/null", "w");
            fprintf(stream, "%d", 1);
            fclose(stream);
            churn();
            return 0;
          }) != 0;
      });
    for (std::thread& forker : forkers) forker.join();
    EXPECT_EQ(failures, 0);
  }
  unlink(path);
}

// The first look-up of a name allocates under a lock that fork takes too; it happens once in a process.
TEST(ForkAnywhere, WhileNamesAreLookedUpForTheFirstTimeWorks) {
  for (uint64_t i = 0; i < scaled(30); ++i) {
    const int status = fork_and([] {
      int failures = 0;
      std::thread looks_up([] {
        passwd entry;
        passwd* found;
        char text[4096];
        getpwuid_r(0, &entry, text, sizeof text, &found);
      });
      std::thread forks([&failures] {
        for (uint64_t k = 0; k < 10; ++k) failures += fork_and([k] { return exercise(k, 5); }) != 0;
      });
      looks_up.join();
      forks.join();
      return failures;
    });
    ASSERT_EQ(status, 0);
  }
}

// Children that libc does not know of: no handler runs in them.
TEST(ForkAnywhere, WithoutHandlersWorks) {
  const Background others(3, churn);
  for (uint64_t i = 0; i < scaled(100); ++i) {
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
      alarm(kHangSeconds);
      _exit(exercise(i, 40));
    }
    ASSERT_EQ(wait_for(child), 0) << i;
  }
}

// The child of vfork works on the parent's memory: it is no copy that may be repaired.
TEST(ForkAnywhere, AVforkedChildThatAllocatesLeavesTheParentsHeapWhole) {
  const Background others(3, churn);
  for (uint64_t i = 0; i < scaled(100); ++i) {
    const pid_t child = vfork();
    if (child == 0) {
      churn();
      _exit(0);
    }
    ASSERT_EQ(wait_for(child), 0) << i;
    ASSERT_EQ(exercise(i, 20), 0);
  }
}

}  // namespace
}  // namespace freestone_test
