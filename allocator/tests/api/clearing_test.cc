// What the hardened build does to freed blocks above 256 bytes, and what the option hardening_rate bounds of it.
#include <fcntl.h>
#include <freestone/freestone.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "api/support.h"

namespace {

constexpr size_t kBytes = 2000;
constexpr size_t kClassRuns[] = {33 * 1024, 64 * 1024, 100 * 1024, 131064};  // cleared
constexpr size_t kLarge[] = {131065, 200 * 1024, 900 * 1024};                // sealed while the stock lasts

class Clearing : public testing::Test {
 protected:
  void SetUp() override {
    if (!freestone_test::is_hardened()) GTEST_SKIP() << "a mitigation";
  }
};

// Of 100 blocks, how many had lost the middle of their contents when they were freed. The pages stay readable: they are
// a slab's.
int cleared_of_100() {
  int cleared = 0;
  for (int i = 0; i < 100; ++i) {
    auto* block = static_cast<char*>(malloc(kBytes));
    memset(block, 'A', kBytes);
    free(block);
    cleared += static_cast<const volatile char*>(block)[kBytes / 2] == 0;
  }
  return cleared;
}

// Whether the kernel still has the first page of a block that was freed a moment ago.
bool is_resident_after_free(size_t bytes) {
  auto* block = static_cast<char*>(malloc(bytes));
  memset(block, 'A', bytes);
  free(block);
  unsigned char present = 0;
  return mincore(reinterpret_cast<void*>(reinterpret_cast<size_t>(block) & ~size_t{4095}), 4096, &present) == 0 &&
         (present & 1) != 0;
}

// On seals, of which one counts for half a MiB and more.
void spend_the_stock() {
  for (int i = 0; i < 2000; ++i) free(malloc(kLarge[1]));
}

TEST_F(Clearing, OfSlabBlocksIsCompleteWhateverTheRate) {
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0) << "a byte per millisecond: nothing is earned here";
  EXPECT_EQ(cleared_of_100(), 100);
  spend_the_stock();
  EXPECT_EQ(cleared_of_100(), 100);
}

TEST_F(Clearing, RunsUpTo128KiBStayReadableAndAreZero) {
  for (const size_t bytes : kClassRuns) {
    for (int use = 0; use < 12; ++use) {
      const size_t used = use % 2 == 0 ? bytes : 5000;
      auto* block = static_cast<char*>(malloc(bytes));
      memset(block, 'A', used);
      free(block);
      size_t left = 0;
      for (size_t i = 0; i < bytes; ++i) left += static_cast<const volatile char*>(block)[i] != 0;
      EXPECT_EQ(left, 0U) << bytes << " bytes, use " << use;
    }
  }
}

// Of a run that the program touches in part: the first frees give its memory back, later ones clear it.
TEST_F(Clearing, AWriteIntoAFreedRunIsSeenHoweverOftenItCame) {
  for (const size_t bytes : kClassRuns) {
    for (const int uses : {0, 1, 2, 3, 20, 40}) {
      for (const size_t offset : {size_t{0}, size_t{5000}, bytes - 1}) {
        const auto write_after_free = [&] {
          const auto come_and_go = [&] {
            auto* block = static_cast<volatile char*>(malloc(bytes));
            block[0] = 'A';
            free(const_cast<char*>(block));
            return block;
          };
          for (int use = 0; use < uses; ++use) come_and_go();
          come_and_go()[offset] = 'B';
          for (int use = 0; use < 300; ++use) come_and_go();
        };
        EXPECT_DEATH(write_after_free(), "write after free") << bytes << " bytes at " << offset << ", use " << uses;
      }
    }
  }
}

// calloc clears nothing that was cleared before, so it hides no such write.
TEST_F(Clearing, CallocSeesAWriteIntoAFreedRun) {
  for (const size_t bytes : kClassRuns) {
    const auto write_after_free = [&] {
      auto* block = static_cast<volatile char*>(malloc(bytes));
      block[0] = 'A';
      free(const_cast<char*>(block));
      block[5000] = 'B';
      for (int use = 0; use < 300; ++use) free(calloc(1, bytes));
    };
    EXPECT_DEATH(write_after_free(), "write after free") << bytes << " bytes";
  }
}

// Where the stock of seals is spent, such a run is kept, cleared, from the second of a length on. calloc finds it zero,
// and a write into it is seen.
TEST_F(Clearing, AWriteIntoAKeptLargeRunIsSeen) {
  constexpr size_t kKept = size_t{3} << 20;
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0);
  const auto come_and_go = [](size_t write_at) {
    spend_the_stock();
    for (int use = 0; use < 50; ++use) {  // a slow machine may give one back meanwhile
      auto* block = static_cast<volatile char*>(use % 2 == 0 ? malloc(kKept) : calloc(1, kKept));
      size_t left = 0;
      for (size_t i = 0; write_at == 0 && use % 2 != 0 && i < kKept; i += 512) left += block[i] != 0;
      if (left != 0) _exit(2);
      memset(const_cast<char*>(block), 'A', kKept);
      free(const_cast<char*>(block));
      if (write_at != 0) block[write_at] = 'B';
    }
    _exit(0);
  };
  EXPECT_EXIT(come_and_go(0), testing::ExitedWithCode(0), "");
  // One in eight is sealed all the same, and faults without a line.
  for (const size_t offset : {size_t{1}, kKept / 2, kKept - 1}) EXPECT_DEATH(come_and_go(offset), "") << offset;
}

TEST_F(Clearing, LargerRunsAreSealedWhileTheStockLastsAndThenCleared) {
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0);
  for (const size_t bytes : kLarge) {
    int open_at_first = 0, open = 0;
    std::thread([&] {  // with a stock of its own
      for (int i = 0; i < 20; ++i) open_at_first += is_resident_after_free(bytes);
      spend_the_stock();
      for (int i = 0; i < 200; ++i) open += is_resident_after_free(bytes);
    }).join();
    if (open_at_first == 20) GTEST_SKIP() << "this kernel has no guards";
    EXPECT_EQ(open_at_first, 0);
    EXPECT_EQ(open, 200);
  }
}

// The program touches such a run as a whole or in part, and takes it again or not.
TEST_F(Clearing, AWriteIntoALargerRunBeyondTheStockIsSeen) {
  for (const size_t bytes : kLarge) {
    for (const size_t touched : {size_t{1}, size_t{5000}, bytes}) {
      for (const size_t offset : {size_t{0}, size_t{5000}, bytes - 1}) {
        for (const bool again : {false, true}) {
          const auto write_after_free = [&] {
            freestone_option_set("hardening_rate", "1");
            spend_the_stock();
            const auto come_and_go = [&] {
              auto* block = static_cast<volatile char*>(malloc(bytes));
              memset(const_cast<char*>(block), 'A', touched);
              free(const_cast<char*>(block));
              return block;
            };
            volatile char* const block = come_and_go();
            for (size_t i = 0; i < bytes; i += 100) {
              if (block[i] != 0) _exit(2);
            }
            block[offset] = 'B';
            if (again) free(calloc(1, bytes));
            exit(0);
          };
          EXPECT_DEATH(write_after_free(), "write after free")
              << bytes << " bytes, " << touched << " touched, at " << offset << (again ? ", taken again" : "");
        }
      }
    }
  }
}

// Frees some runs, and others that push them out of the caches, to the free spans; writes into all of them, and takes
// them again. Exits with 0 unless a write is seen.
[[noreturn]] void write_among_free_spans() {
  constexpr size_t kFreed = 600 * 1024, kTaken = 500 * 1024;
  freestone_option_set("hardening_rate", "1");
  freestone_option_set("dirty_bytes", "64m");  // what goes back to the kernel faults
  freestone_option_set("dirty_decay_ms", "3600000");
  spend_the_stock();
  volatile char* blocks[4];
  for (volatile char*& block : blocks) {
    block = static_cast<volatile char*>(memset(malloc(kFreed), 'A', kFreed));
    static_cast<volatile char*>(malloc(kFreed))[0] = 'A';  // so that no longer run fits
  }
  for (volatile char* block : blocks) free(const_cast<char*>(block));
  for (size_t bytes = kFreed + 100 * 1024; bytes < 1000 * 1024; bytes += 20 * 1024)
    free(memset(malloc(bytes), 'A', bytes));
  for (volatile char* block : blocks) {
    for (size_t at = 0; at < kFreed; at += 4096) block[at] = 'B';
  }
  for (int i = 0; i < 400; ++i) static_cast<volatile char*>(malloc(kTaken))[0] = 'A';
  _exit(0);
}

// Seldom a page of one is a guard already, or lies in the random gaps between the runs that are taken: as the layout of
// the process has it, which all tries share.
TEST_F(Clearing, AWriteIntoALargerRunAmongTheFreeSpansIsMostlySeen) {
  constexpr int kTries = 20;
  int seen = 0;
  for (int i = 0; i < kTries; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
      write_among_free_spans();
    }
    int status = 0;
    waitpid(child, &status, 0);
    seen += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  }
  EXPECT_GT(seen, kTries / 2);
}

}  // namespace
