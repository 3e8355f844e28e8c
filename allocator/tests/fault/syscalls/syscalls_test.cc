// Memory calls that fail: the program gets null and ENOMEM or does not notice, never a crash, a hang or damage, and
// when the kernel has memory again, so has the program.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>

#include "fault/syscalls/churn.h"
#include "fault/syscalls/supervisor.h"
#include "support/exercise.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr int kNullsSeen = 3;
constexpr int kBroken = 4;
constexpr int kNotRecovered = 5;
constexpr int kLoaderGaveUp = 127;
constexpr unsigned kMostPoints = 80;

struct FaultyCall {
  const char* name;
  int number;
  int error;
  bool may_fail_allocations;  // else the allocator must do without it
  friend std::ostream& operator<<(std::ostream& out, const FaultyCall& call) { return out << call.name; }
};

const FaultyCall kCalls[] = {
    {"mmap", SYS_mmap, ENOMEM, true},        {"mprotect", SYS_mprotect, ENOMEM, true},
    {"munmap", SYS_munmap, ENOMEM, false},   {"mremap", SYS_mremap, ENOMEM, false},
    {"madvise", SYS_madvise, EINVAL, false}, {"madvise_eagain", SYS_madvise, EAGAIN, false},
};

// The child asks for its parent's id when the trouble is to end.
constexpr int kMarker = SYS_getppid;

int exercise_and_recover(uint64_t seed) {
  Exerciser troubled(seed);
  const Exercise during = troubled.run(250);
  if (!during.sound()) {
    dprintf(STDERR_FILENO, "%s\n", during.broken);
    return kBroken;
  }
  getppid();
  Exerciser calm(seed + 1);
  const Exercise after = calm.run(120);
  if (!after.sound() || after.nulls != 0) {
    dprintf(STDERR_FILENO, "after the trouble: %s, %u nulls\n", after.broken != nullptr ? after.broken : "sound",
            after.nulls);
    return kNotRecovered;
  }
  return during.nulls == 0 ? 0 : kNullsSeen;
}

class FailingCall : public SupervisedTest, public testing::WithParamInterface<FaultyCall> {
 protected:
  // Runs one point: the call fails where `fails(n)` says so for the n-th one.
  void run_point(uint64_t seed, const std::function<bool(unsigned)>& fails, const std::string& where) {
    const FaultyCall& call = GetParam();
    bool over = false;
    unsigned seen = 0;
    const auto plan = [&](const SystemCall& now) {
      if (now.number == kMarker) over = true;
      if (over || now.number != call.number) return 0;
      return fails(++seen) ? call.error : 0;
    };
    const SupervisedEnd end =
        run_supervised({call.number, kMarker}, plan, [seed] { return exercise_and_recover(seed); });
    ++points_;
    injected_ += end.injected;
    last_calls_ = seen;
    all_calls_ += seen;
    EXPECT_TRUE(end.child.exited_with(0) || (call.may_fail_allocations && end.child.exited_with(kNullsSeen)))
        << call.name << ", " << where << ", seed " << seed << ": " << end.child.describe();
  }

  // Runs the points at which there is a call, up to the 80th: all of them, or in a short run every so many, others with
  // another seed.
  void run_points(uint64_t seed, const std::function<bool(unsigned n, unsigned k)>& fails, const char* where) {
    run_point(seed, [](unsigned) { return false; }, "no failure");
    const unsigned calls = std::min(last_calls_, kMostPoints);
    const auto step = static_cast<unsigned>(std::max<uint64_t>(1, kMostPoints / scaled(kMostPoints)));
    for (unsigned k = 1 + static_cast<unsigned>(seed % step); k <= calls && !HasFailure(); k += step)
      run_point(seed, [&fails, k](unsigned n) { return fails(n, k); }, where + std::to_string(k));
  }

  void TearDown() override { std::printf("%u points, %u calls failed\n", points_, injected_); }

  unsigned points_ = 0;
  unsigned injected_ = 0;
  unsigned last_calls_ = 0;
  unsigned all_calls_ = 0;
};

TEST_P(FailingCall, OnceAtAnyPointIsSurvived) {
  run_points(test_seed(GetParam().name), [](unsigned n, unsigned k) { return n == k; }, "call ");
}

TEST_P(FailingCall, FromAnyPointOnIsSurvived) {
  run_points(test_seed(GetParam().name), [](unsigned n, unsigned k) { return n >= k; }, "all calls from number ");
}

TEST_P(FailingCall, AtRandomIsSurvived) {
  constexpr uint64_t kFirst = 20;
  const uint64_t seed = test_seed(GetParam().name);
  for (uint64_t i = 0; i < scaled(170) && !HasFailure(); ++i) {
    if (i == kFirst && all_calls_ == 0) break;  // a library that does not make the call
    Random random(seed + i);
    const uint64_t per_mille = 50 + random.below(950);
    run_point(
        seed + i, [&](unsigned) { return random.below(1000) < per_mille; },
        "at random, " + std::to_string(per_mille) + " of 1000");
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingCall, testing::ValuesIn(kCalls),
                         [](const auto& info) { return std::string(info.param.name); });

// Large blocks that do not fit into each other's places, by each error that the kernel may give, always and every
// second time.
TEST_F(SupervisedTest, LargeBlocksLoseNothingWhereTheKernelRefuses) {
  for (const int number : {SYS_mremap, SYS_madvise})
    for (const int error : {EINVAL, ENOMEM, EFAULT, EAGAIN})
      for (const unsigned every : {1U, 2U}) {
        unsigned seen = 0;
        const auto plan = [&](const SystemCall&) { return ++seen % every == 0 ? error : 0; };
        const SupervisedEnd end = run_supervised({number}, plan, [] {
          Churn churn(11, 4 * kMiB, 12 * kMiB, 64 * kMiB, kPage);
          return !churn.run(200) || !churn.free_all() ? kBroken : churn.take_nulls() == 0 ? 0 : kNullsSeen;
        });
        EXPECT_TRUE(end.child.exited_with(0)) << number << " with " << error << ": " << end.child.describe();
      }
}

// A fresh process that meets the plan from its first instruction on.
SupervisedEnd start_under(const std::vector<int>& numbers, const Plan& plan) {
  return run_supervised(numbers, plan, [] {
    execl(FREESTONE_PROBE_DIR "/fault_probe", "fault_probe", "start", static_cast<char*>(nullptr));
    return 126;
  });
}

class StartUp : public SupervisedTest {};

TEST_F(StartUp, SurvivesAnyFailingMapping) {
  // Of the mappings that the loader does not make for itself: it does not survive those.
  unsigned made = 1;
  for (unsigned k = 1; k <= std::min(made, 60u); ++k) {
    for (const bool lasting : {false, true}) {
      unsigned seen = 0;
      const auto plan = [&](const SystemCall& call) {
        if ((call.arguments[3] & MAP_ANONYMOUS) == 0 || call.caller().find("/ld-linux") != std::string::npos) return 0;
        ++seen;
        return seen == k || (lasting && seen > k) ? ENOMEM : 0;
      };
      const SupervisedEnd end = start_under({SYS_mmap}, plan);
      ASSERT_TRUE(end.child.exited_with(0) || end.child.exited_with(3))
          << "mapping " << k << (lasting ? " and later: " : ": ") << end.child.describe();
      made = std::max(made, seen);
    }
  }
  std::printf("%u mappings, each failed once and from there on\n", made);
}

TEST_F(StartUp, WorksWhenLargeReservationsAreRefused) {
  for (const size_t largest : {size_t{1} << 40, size_t{1} << 36, size_t{1} << 32, size_t{1} << 30, size_t{512} << 20,
                               size_t{256} << 20, size_t{64} << 20}) {
    const auto plan = [largest](const SystemCall& call) { return call.arguments[1] >= largest ? ENOMEM : 0; };
    const SupervisedEnd end = start_under({SYS_mmap}, plan);
    EXPECT_TRUE(end.child.exited_with(0)) << "mappings of " << largest << " bytes refused: " << end.child.describe();
  }
}

TEST_F(StartUp, WorksWhereFixedPlacesAreRefused) {
  // Some sandboxes and emulators: the heap then lies in one smaller reservation, in as much as can be had.
  for (const int error : {EEXIST, EINVAL, ENOMEM, EOPNOTSUPP}) {
    for (const size_t largest : {SIZE_MAX, size_t{1} << 35, size_t{200} << 20}) {
      const auto plan = [&](const SystemCall& call) {
        if ((call.arguments[3] & MAP_FIXED_NOREPLACE) != 0) return error;
        return call.arguments[1] >= largest ? ENOMEM : 0;
      };
      const SupervisedEnd end = start_under({SYS_mmap}, plan);
      EXPECT_TRUE(end.child.exited_with(0))
          << "error " << error << ", mappings of " << largest << " bytes refused: " << end.child.describe();
    }
  }
}

TEST_F(StartUp, SurvivesAGuardThatNothingRemoves) {
  // That of the trial at start; its place is given up for another one.
  constexpr uint64_t kGuardRemove = 103;
  unsigned refused = 0;
  bool started = false;  // before that the calls are those of this program's child
  const auto plan = [&](const SystemCall& call) {
    started = started || call.number == SYS_execve;
    if (!started) return 0;
    if (call.number == SYS_madvise) return call.arguments[2] == kGuardRemove ? ++refused, EPERM : 0;
    return refused == 1 && (call.arguments[3] & MAP_FIXED) != 0 ? ENOMEM : 0;
  };
  const SupervisedEnd end = start_under({SYS_execve, SYS_madvise, SYS_mmap}, plan);
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
  EXPECT_TRUE(started && (refused > 0 || !subject().is_hardened)) << refused;
}

TEST_F(StartUp, WorksUnderStrictCommitAccounting) {
  // What vm.overcommit_memory=2 does to a process: only so many bytes may be mapped writable, reserved ranges do not
  // count.
  size_t writable = 0;
  const auto plan = [&](const SystemCall& call) {
    if ((call.arguments[2] & PROT_WRITE) == 0) return 0;
    if (call.number == SYS_mmap && (call.arguments[3] & (MAP_SHARED | MAP_PRIVATE)) == MAP_SHARED) return 0;
    if (call.arguments[1] > (size_t{256} << 20)) return ENOMEM;
    writable += call.arguments[1];
    return 0;
  };
  const SupervisedEnd end = start_under({SYS_mmap, SYS_mprotect}, plan);
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
}

TEST_F(StartUp, WorksWhereNewerSystemCallsDoNotExist) {
  const std::vector<int> optional = {
      SYS_rseq, SYS_membarrier, SYS_getrandom, SYS_process_madvise, SYS_sched_getaffinity, SYS_getcpu, SYS_prctl};
  const SupervisedEnd end = start_under(optional, [](const SystemCall&) { return ENOSYS; });
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
}

size_t mappings_of(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

TEST_F(StartUp, SurvivesAFullTableOfMappings) {
  // vm.max_map_count, emulated: with so many mappings, every call that could add one fails.
  for (const size_t limit : {size_t{40}, size_t{60}, size_t{90}}) {
    const auto plan = [limit](const SystemCall& call) { return mappings_of(call.process) >= limit ? ENOMEM : 0; };
    const SupervisedEnd end = start_under({SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap}, plan);
    EXPECT_EQ(end.child.signal, 0) << limit << " mappings: " << end.child.describe();
    EXPECT_TRUE(end.child.exit_status == 0 || end.child.exit_status == 3 || end.child.exit_status == kLoaderGaveUp)
        << limit << " mappings: " << end.child.describe();
  }
}

}  // namespace
}  // namespace freestone_test
