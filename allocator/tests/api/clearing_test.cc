// What the hardened build does to freed blocks above 256 bytes, and what the option hardening_rate bounds of it.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include "api/support.h"
#include "support/hardened_test.h"

namespace freestone_test {
namespace {

constexpr size_t kBytes = 2000;
constexpr size_t kClassRuns[] = {33 * 1024, 64 * 1024, 100 * 1024, 131064};  // cleared
constexpr size_t kLarge[] = {131065, 200 * 1024, 900 * 1024};                // sealed while the stock lasts

using Clearing = HardenedTest;

// A byte per millisecond: nothing is earned in a test. Nor does free memory go back.
void earn_nothing() {
  ASSERT_EQ(freestone_option_set("hardening_rate", "1"), 0);
  ASSERT_EQ(freestone_option_set("give_back_percent", "0"), 0);
}

// A block that was freed after so many of its bytes were written.
volatile char* come_and_go(size_t bytes, size_t written = 1) {
  auto* block = static_cast<char*>(malloc(bytes));
  memset(block, 'A', written);
  free(block);
  return block;
}

// Of 100 blocks, how many had lost the middle of their contents when they were freed. The pages stay readable: they are
// a slab's.
int cleared_of_100() {
  int cleared = 0;
  for (int i = 0; i < 100; ++i) cleared += come_and_go(kBytes, kBytes)[kBytes / 2] == 0;
  return cleared;
}

// Whether the kernel still has the first page of a block that was freed a moment ago.
bool is_resident_after_free(size_t bytes) {
  const auto block = reinterpret_cast<size_t>(come_and_go(bytes, bytes));
  unsigned char present = 0;
  return mincore(reinterpret_cast<void*>(block & ~size_t{4095}), 4096, &present) == 0 && (present & 1) != 0;
}

// On seals of what was used, of which one counts for half a MiB and four times its block.
void spend_the_stock() {
  for (int i = 0; i < 140; ++i) come_and_go(kLarge[2], kLarge[2]);
  for (int i = 0; i < 20; ++i) come_and_go(kLarge[0], kLarge[0]);
}

// By the seals that look at the clock: the first to begin, the second to earn.
void fill_the_stock() {
  ASSERT_EQ(freestone_option_set("hardening_rate", "1024g"), 0);
  for (int looks = 0; looks < 2; ++looks) {
    for (int i = 0; i < 16; ++i) come_and_go(kLarge[1], kLarge[1]);
    usleep(10'000);
  }
}

TEST_F(Clearing, OfSlabBlocksIsCompleteWhateverTheRate) {
  earn_nothing();
  EXPECT_EQ(cleared_of_100(), 100);
  spend_the_stock();
  EXPECT_EQ(cleared_of_100(), 100);
}

TEST_F(Clearing, RunsUpTo128KiBStayReadableAndAreZero) {
  for (const size_t bytes : kClassRuns) {
    for (int use = 0; use < 12; ++use) {
      const volatile char* block = come_and_go(bytes, use % 2 == 0 ? bytes : 5000);
      size_t left = 0;
      for (size_t i = 0; i < bytes; ++i) left += block[i] != 0;
      EXPECT_EQ(left, 0U) << bytes << " bytes, use " << use;
    }
  }
}

// Of a run that the program touches in part: the first frees give its memory back, later ones clear it. calloc clears
// nothing that was cleared before, so it hides no such write.
TEST_F(Clearing, AWriteIntoAFreedRunIsSeenHoweverOftenItCameAndByCallocToo) {
  for (const size_t bytes : kClassRuns) {
    const auto dies = [bytes](int uses, size_t offset, bool by_calloc) {
      return dies_by(SIGABRT, "write after free", [=] {
        for (int use = 0; use < uses; ++use) come_and_go(bytes);
        come_and_go(bytes)[offset] = 'B';
        for (int use = 0; use < 300; ++use) by_calloc ? free(calloc(1, bytes)) : static_cast<void>(come_and_go(bytes));
      });
    };
    for (const int uses : {0, 1, 2, 3, 20, 40}) {
      for (const size_t offset : {size_t{0}, size_t{5000}, bytes - 1})
        EXPECT_TRUE(dies(uses, offset, false)) << bytes << " bytes at " << offset << ", use " << uses;
    }
    EXPECT_TRUE(dies(0, 5000, true)) << bytes << " bytes";
  }
}

// Where the stock of seals is spent, such a run is kept, cleared, from the second of a length on. calloc finds it zero,
// and a write into it is seen.
TEST_F(Clearing, AWriteIntoAKeptLargeRunIsSeen) {
  constexpr size_t kKept = size_t{900} << 10;
  earn_nothing();
  const auto use = [](size_t write_at) {
    spend_the_stock();
    for (int turn = 0; turn < 50; ++turn) {  // a slow machine may give one back meanwhile
      auto* block = static_cast<volatile char*>(turn % 2 == 0 ? malloc(kKept) : calloc(1, kKept));
      size_t left = 0;
      for (size_t i = 0; write_at == 0 && turn % 2 != 0 && i < kKept; i += 512) left += block[i] != 0;
      if (left != 0) return 2;
      memset(const_cast<char*>(block), 'A', kKept);
      free(const_cast<char*>(block));
      if (write_at != 0) block[write_at] = 'B';
    }
    return 0;
  };
  EXPECT_TRUE(ends_well([&] { return use(0); }));
  for (const size_t offset : {size_t{1}, kKept / 2, kKept - 1})
    EXPECT_NE(run_in_child([&] { return use(offset); }).signal, 0) << offset;
}

TEST_F(Clearing, LargerRunsAreSealedWhileTheStockLastsAndThenCleared) {
  constexpr int kNoGuards = 77;
  for (const size_t bytes : kLarge) {
    const ChildEnd end = run_in_child([bytes] {
      fill_the_stock();
      earn_nothing();
      int open_at_first = 0, open = 0;
      for (int i = 0; i < 20; ++i) open_at_first += is_resident_after_free(bytes);
      spend_the_stock();
      for (int i = 0; i < 200; ++i) open += is_resident_after_free(bytes);
      return open_at_first == 20 ? kNoGuards : open_at_first == 0 && open == 200 ? 0 : 1;
    });
    if (end.exited_with(kNoGuards)) GTEST_SKIP() << "this kernel has no guards";
    EXPECT_TRUE(end.exited_with(0)) << bytes << " bytes: " << end.describe();
  }
}

// The program touches such a run as a whole, and takes it again or not. If it touched little, the run is sealed.
TEST_F(Clearing, AWriteIntoALargerRunBeyondTheStockIsSeen) {
  for (const size_t bytes : kLarge) {
    for (const size_t touched : {size_t{1}, bytes}) {
      for (const size_t offset : {size_t{0}, size_t{5000}, bytes - 1}) {
        for (const bool again : {false, true}) {
          const auto write_after_free = [&] {
            earn_nothing();
            spend_the_stock();
            volatile char* const block = come_and_go(bytes, touched);
            for (size_t i = 0; i < bytes; i += 100)
              if (block[i] != 0) _exit(2);
            block[offset] = 'B';
            if (again) free(calloc(1, bytes));
            exit(0);
          };
          EXPECT_TRUE(touched == 1 ? dies_by(SIGSEGV, write_after_free)
                                   : dies_by(SIGABRT, "write after free", write_after_free))
              << bytes << " bytes, " << touched << " touched, at " << offset << (again ? ", taken again" : "");
        }
      }
    }
  }
}

// Frees some runs, and others that push them out of the caches, to the free spans; writes into all of them, and takes
// them again.
void write_among_free_spans() {
  constexpr size_t kFreed = 600 * 1024, kTaken = 500 * 1024;
  earn_nothing();
  spend_the_stock();
  volatile char* blocks[4];
  for (volatile char*& block : blocks) {
    block = static_cast<volatile char*>(memset(malloc(kFreed), 'A', kFreed));
    static_cast<volatile char*>(malloc(kFreed))[0] = 'A';  // so that no longer run fits
  }
  for (volatile char* block : blocks) free(const_cast<char*>(block));
  for (size_t bytes = kFreed + 100 * 1024; bytes < 1000 * 1024; bytes += 20 * 1024) come_and_go(bytes, bytes);
  for (volatile char* block : blocks)
    for (size_t at = 0; at < kFreed; at += 4096) block[at] = 'B';
  for (int i = 0; i < 400; ++i) static_cast<volatile char*>(malloc(kTaken))[0] = 'A';
}

// Where a page of one is a guard already, the write faults. Seldom it lies in the random gaps between the runs that are
// taken: as the layout of the process has it, which all tries share.
TEST_F(Clearing, AWriteIntoALargerRunAmongTheFreeSpansIsMostlySeen) {
  constexpr int kTries = 20;
  int seen = 0, faulted = 0;
  for (int i = 0; i < kTries; ++i) {
    const int signal = run_in_child(write_among_free_spans).signal;
    seen += signal == SIGABRT;
    faulted += signal == SIGSEGV;
  }
  EXPECT_GT(seen, 0);
  EXPECT_GT(seen + faulted, kTries / 2);
}

}  // namespace
}  // namespace freestone_test
