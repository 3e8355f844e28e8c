// The kernel does not take back what is locked, and a sandbox may let it take nothing. All other free memory goes back
// as ever, and a process in which nothing can go does not keep asking. torture/ tries locked pages of 64 KiB, too.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "fault/syscalls/supervisor.h"
#include "support/blocks.h"
#include "support/child.h"
#include "support/process_memory.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr int kMayNotLock = 77;

void expect_done(const ChildEnd& end, const std::string& where) {
  if (end.exited_with(kMayNotLock)) GTEST_SKIP() << "the kernel locks no memory for this process";
  EXPECT_TRUE(end.exited_with(0)) << where << ": " << end.describe();
}

using Control = int (*)(const char*, void*, size_t*, void*, size_t);
Control control() { return reinterpret_cast<Control>(dlsym(RTLD_DEFAULT, "mallctl")); }

// What nobody needs goes within milliseconds, not seconds.
void decay_soon() {
  ssize_t milliseconds = 100;
  if (control() != nullptr) control()("arenas.dirty_decay_ms", nullptr, nullptr, &milliseconds, sizeof milliseconds);
}

void grow_and_shrink(size_t size, size_t bytes = 64 * kMiB) {
  Blocks blocks(bytes / size);
  blocks.add(size, bytes / size);
  blocks.shrink_to(0);
}

char* page_of(char* address) { return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(address) & ~(kPage - 1)); }

// Waits until no more than that is resident, while the program takes and frees a little, for twenty seconds at most.
bool shrinks_to(size_t most) {
  for (int waits = 0; waits < 400; ++waits) {
    for (size_t i = 0; i < 100; ++i) {
      api().free(api().malloc(100 + i * 37 % 5000));
      api().free(api().malloc(200'000 + i * 3000));
    }
    if (resident_bytes() <= most) return true;
    usleep(50'000);
  }
  dprintf(STDERR_FILENO, "%zu KiB stay, allowed are %zu\n", resident_bytes() / kKiB, most / kKiB);
  return false;
}

// Blocks of this size, of which some have a locked page when they are freed.
bool lock_and_free_pages(size_t size, size_t locked, std::vector<char*>& pages) {
  const size_t count = std::max<size_t>(8 * kMiB / size, 8);
  Blocks blocks(count);
  blocks.add(size, count);
  for (size_t k = 0; k < locked; ++k) {
    pages.push_back(page_of(blocks[(k + 1) * count / (locked + 1)]));
    if (mlock(pages.back(), kPage) != 0) return false;
  }
  blocks.shrink_to(0);
  return true;
}

class LockedPage : public testing::TestWithParam<size_t> {};

int lock_and_free(size_t size, size_t locked, bool unlock) {
  constexpr size_t kLeft = 24 * kMiB;
  decay_soon();
  const size_t before = resident_bytes();
  std::vector<char*> pages;
  if (!lock_and_free_pages(size, locked, pages)) return kMayNotLock;
  for (int round = 0; round < 2; ++round) {
    grow_and_shrink(size);
    grow_and_shrink(200'000);
    if (!shrinks_to(before + kLeft)) return 1;
  }
  if (unlock)
    for (char* page : pages) munlock(page, kPage);
  grow_and_shrink(size);
  api().malloc_trim(0);
  if (resident_bytes() > before + kLeft / 2) {
    dprintf(STDERR_FILENO, "%zu KiB stay when trimmed\n", (resident_bytes() - before) / kKiB);
    return 2;
  }
  return 0;
}

TEST_P(LockedPage, KeepsNoMoreThanItself) {
  for (const size_t locked : {size_t{1}, size_t{7}}) {
    const ChildEnd end = run_in_child([&] { return lock_and_free(GetParam(), locked, locked != 1); });
    expect_done(end, std::to_string(locked) + " pages");
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LockedPage, testing::Values(100, 9000, 40'000, 200'000, 3 * kMiB),
                         testing::PrintToStringParamName());

// Locked pages among free units that went back and, in the hardened build, fault since.
TEST(LockedPages, BesideGuardsKeepNothingElse) {
  const ChildEnd end = run_in_child([] {
    Random random(1);
    for (int round = 0; round < 20; ++round) {
      const size_t before = resident_bytes();
      Blocks blocks(1000);
      blocks.add_bytes(32 * kMiB, [&] { return 33'000 + random.below(250'000); });
      for (size_t k = 0; k < blocks.count(); ++k)
        if (random.below(4) == 0 && mlock(page_of(blocks[k] + random.below(33'000)), kPage) != 0) return kMayNotLock;
      blocks.shuffle(0, random);
      for (const size_t parts : {3, 2, 1, 0}) {
        blocks.shrink_to(blocks.count() * parts / 4);
        api().malloc_trim(0);
      }
      if (resident_bytes() > before + 4 * kMiB) return 1;
      munlockall();
    }
    return 0;
  });
  expect_done(end, "trimmed");
}

class Refused : public SupervisedTest {};

// The kernel stops at a locked page in the midst of making a guard. What it began is undone, even if it refuses that.
TEST_F(Refused, GuardsLeaveNothingThatFaults) {
  constexpr uint64_t kGuardRemove = 103;
  for (const int error : {EPERM, ENOMEM}) {
    const auto plan = [error](const SystemCall& call) { return call.arguments[2] == kGuardRemove ? error : 0; };
    for (const size_t size : {100, 9000, 40'000}) {
      const SupervisedEnd end = run_supervised({SYS_madvise}, plan, [size] {
        std::vector<char*> pages;
        if (!lock_and_free_pages(size, 7, pages)) return kMayNotLock;
        grow_and_shrink(size);
        grow_and_shrink(200'000);
        return 0;
      });
      expect_done(end.child, std::to_string(error) + ", blocks of " + std::to_string(size));
    }
  }
}

// A block of its own mapping that can neither be unmapped nor emptied stays, and is charged for.
TEST_F(Refused, UnmapLeavesTheAccountRight) {
  using Validate = int (*)(const char**);
  const auto validate = reinterpret_cast<Validate>(dlsym(RTLD_DEFAULT, "freestone_validate"));
  if (validate == nullptr) GTEST_SKIP() << "a promise of libfreestone";
  const SupervisedEnd end = run_supervised(
      {SYS_madvise, SYS_munmap}, [](const SystemCall&) { return EPERM; },
      [=] {
        for (int round = 0; round < 3; ++round) api().free(api().malloc(40 * kMiB));
        const char* damage = "nothing";
        const int found = validate(&damage);
        dprintf(STDERR_FILENO, "%s\n", damage);
        return found;
      });
  EXPECT_GE(end.injected, 3U);
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
}

// What was locked goes once it is unlocked, with time and at once when the program asks.
TEST(Unlocked, MemoryGoesBack) {
  for (const bool trims : {false, true}) {
    const ChildEnd end = run_in_child([trims] {
      decay_soon();
      const size_t before = resident_bytes();
      Blocks blocks(400);
      blocks.add(200'000, 400);
      for (size_t k = 0; k < blocks.count(); ++k)
        if (mlock(blocks[k], 200'000) != 0) return kMayNotLock;
      blocks.shrink_to(0);
      api().malloc_trim(0);
      if (resident_bytes() < before + 64 * kMiB) return 3;
      munlockall();
      if (!trims) return shrinks_to(before + 32 * kMiB) ? 0 : 5;
      api().malloc_trim(0);
      return resident_bytes() <= before + 16 * kMiB ? 0 : 4;
    });
    expect_done(end, trims ? "trimmed" : "with time");
  }
}

double seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// mlockall, or a sandbox: the kernel is asked a thousand times in a row, then left alone for a second.
TEST_F(Refused, PurgeIsNotAskedForOverAndOver) {
  if (!subject().is_freestone || subject().is_hardened) GTEST_SKIP() << "a promise of libfreestone, the fast build";
  for (const int error : {EINVAL, EPERM, ENOMEM}) {
    const double start = seconds();
    const auto plan = [error](const SystemCall& call) { return call.arguments[2] == MADV_DONTNEED ? error : 0; };
    const SupervisedEnd end = run_supervised({SYS_madvise}, plan, [] {
      for (int round = 0; round < 20; ++round)
        for (const size_t size : {1000, 50'000, 200'000, 5'000'000}) grow_and_shrink(size, 20 * kMiB);
    });
    EXPECT_TRUE(end.child.exited_with(0)) << error << ": " << end.child.describe();
    const double bound = 1100 * (seconds() - start + 2);
    EXPECT_LE(end.injected, bound);
    std::printf("%u calls refused, by error %d\n", end.injected, error);
  }
}

// What the statistics say went back did. The hardened build cleared it, so it does not fault when it is taken again.
TEST(LockedMemory, IsNotCountedAsGone) {
  if (!subject().is_freestone || control() == nullptr) GTEST_SKIP() << "a promise of libfreestone";
  const ChildEnd end = run_in_child([] {
    Blocks blocks(400);
    blocks.add(200'000, 400);
    const size_t locked = resident_bytes();
    if (mlockall(MCL_CURRENT) != 0) return kMayNotLock;
    blocks.shrink_to(0);
    api().malloc_trim(0);
    uint64_t epoch = 1;
    size_t dirty = 0;
    size_t page = 0;
    size_t length = sizeof dirty;
    control()("epoch", nullptr, nullptr, &epoch, sizeof epoch);
    if (control()("stats.arenas.0.pdirty", &dirty, &length, nullptr, 0) != 0) return 2;
    if (control()("arenas.page", &page, &length, nullptr, 0) != 0) return 3;
    dprintf(STDERR_FILENO, "%zu KiB dirty, %zu KiB resident\n", dirty * page / kKiB, resident_bytes() / kKiB);
    return resident_bytes() >= locked / 2 && dirty * page < 64 * kMiB ? 1 : 0;
  });
  expect_done(end, "mlockall");
}

}  // namespace
}  // namespace freestone_test
