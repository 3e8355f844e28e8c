// Room 6: large blocks whose memory the kernel moves keep their contents, whoever else is at work on the heap.
#include "span/frames.h"

#include <sys/mman.h>

#include <atomic>
#include <utility>

#include "config/options.h"
#include "platform/os.h"
#include "span/purge.h"
#include "unit/support.h"

namespace freestone {
namespace {

u64 calls_of_mremap() { return os::calls(os::CallKind::remap); }

// Blocks of 4 to 12 MiB that replace each other at random: their holes do not fit each other. Each page holds a number
// of its own.
class LargeBlocks {
 public:
  explicit LargeBlocks(u64 seed) : random_(seed) {}
  // False: a block had other contents than were written.
  bool replace() {
    Block& block = blocks_[random_.below(kBlocks)];
    if (!is_whole(block)) return false;
    deallocate(block.start);
    block = {nullptr, random_.between(4 * kMiB, 12 * kMiB), random_.below(1 << 30)};
    block.start = static_cast<char*>(allocate(block.bytes));
    if (block.start == nullptr) return false;
    for (usize at = 0; at < block.bytes; at += kStep) *number_at(block, at) = block.number + at;
    return true;
  }
  bool are_whole() const {
    for (const Block& block : blocks_) {
      if (!is_whole(block)) return false;
    }
    return true;
  }
  void free_all() {
    for (Block& block : blocks_) deallocate(std::exchange(block, {}).start);
  }

 private:
  static constexpr unsigned kBlocks = 6;
  static constexpr usize kStep = 4 * kKiB;
  struct Block {
    char* start = nullptr;
    usize bytes = 0;
    u64 number = 0;
  };
  static u64* number_at(const Block& block, usize at) { return reinterpret_cast<u64*>(block.start + at); }
  static bool is_whole(const Block& block) {
    for (usize at = 0; at < (block.start != nullptr ? block.bytes : 0); at += kStep) {
      if (*number_at(block, at) != block.number + at) return false;
    }
    return true;
  }
  Block blocks_[kBlocks];
  Random random_;
};

// Free memory stays, so there is some to move.
class FreeMemoryStays {
 public:
  FreeMemoryStays()
      : dirty_bytes_(std::exchange(options.dirty_bytes, 256 * kMiB)),
        decay_ms_(std::exchange(options.dirty_decay_ms, 3600000u)) {}
  ~FreeMemoryStays() {
    options.dirty_bytes = dirty_bytes_;
    options.dirty_decay_ms = decay_ms_;
    purge_spans(0, WentBack::trim);
  }
  FreeMemoryStays(const FreeMemoryStays&) = delete;
  FreeMemoryStays& operator=(const FreeMemoryStays&) = delete;

 private:
  decltype(options.dirty_bytes) dirty_bytes_;
  decltype(options.dirty_decay_ms) decay_ms_;
};

TEST(span_frames, MovedMemoryIsWholeInTheChildOfAForkAndBesideThreadsThatPurge) {
  if (!may_move_frames(4 * kFrameUnits)) GTEST_SKIP() << "not in this build, or not at this place";
  FreeMemoryStays stays;
  purge_spans(0, WentBack::trim);
  LargeBlocks blocks(test_seed("moved frames"));
  const u64 before = calls_of_mremap();
  for (int k = 0; k < 1000 && calls_of_mremap() == before; ++k) ASSERT_TRUE(blocks.replace());
  if (may_move_frames(4 * kFrameUnits)) {
    EXPECT_GT(calls_of_mremap(), before) << "no frame was moved";
  }
  std::atomic<bool> done{false};
  std::thread purging([&] {
    while (!done.load()) {
      void* held[64];
      for (void*& block : held) block = std::memset(allocate(40 * kKiB), 1, 40 * kKiB);
      for (void* block : held) deallocate(block);
      purge_spans(24 * kMiB, WentBack::trim);
    }
  });
  bool whole = true;
  for (int round = 0; round < 2 && whole; ++round) {
    for (int k = 0; k < 12 && whole; ++k) whole = blocks.replace();
    EXPECT_EQ(in_child([&] {
                for (int k = 0; k < 12; ++k) {
                  if (!blocks.replace()) return 1;
                }
                return blocks.are_whole() ? 0 : 2;
              }),
              0);
    whole = whole && blocks.are_whole();
  }
  EXPECT_TRUE(whole);
  done.store(true);
  purging.join();
  blocks.free_all();
  expect_valid_heap();
}

usize locked_bytes() {
  unsigned long kib = 0;
  char line[256];
  FILE* const file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  while (std::fgets(line, sizeof line, file) != nullptr) std::sscanf(line, "VmLck: %lu kB", &kib);
  std::fclose(file);
  return usize{kib} * kKiB;
}

TEST(span_frames, LargeBlocksOfAProgramThatLocksItsMemoryAreWholeAndLocked) {
  constexpr int kNotLocked = 77;
  const int status = in_child([] {
    LargeBlocks blocks(test_seed("locked blocks"));
    for (int k = 0; k < 8; ++k) {
      if (!blocks.replace()) return 1;
    }
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0 || locked_bytes() == 0) return kNotLocked;
    options.dirty_bytes = 256 * kMiB;  // free memory stays, so there would be some to move
    for (int k = 0; k < 24; ++k) {
      if (!blocks.replace()) return 2;
    }
    if (!blocks.are_whole()) return 3;
    return locked_bytes() >= 6 * 4 * kMiB ? 0 : 4;
  });
  if (status == kNotLocked) GTEST_SKIP() << "the kernel locks no memory for this process";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace freestone
