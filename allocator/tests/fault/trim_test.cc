// What malloc_trim of the hardened build checks: a part of a large heap, so its time does not grow with the heap, and
// with each call the next part, so nothing stays unseen.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
struct Heap {
  size_t block_bytes, bytes;
};
constexpr Heap kHeaps[] = {{56, 64 * kMiB}, {4088, 64 * kMiB}, {40000, 512 * kMiB}};  // the last: no slab blocks
constexpr int kTrims = 20;

class Trim : public HardenedTest {};

// In a heap of live blocks one is overflowed: the lowest, the middle or the highest (`place` 0 to 2).
bool is_seen(const Heap& heap, size_t place, int trims) {
  const ChildEnd end = run_in_child([&] {
    std::vector<char*> blocks(heap.bytes / heap.block_bytes);
    for (char*& block : blocks) block = static_cast<char*>(api().malloc(heap.block_bytes));
    std::sort(blocks.begin(), blocks.end());
    static_cast<volatile char*>(blocks[place * (blocks.size() - 1) / 2])[heap.block_bytes] = 0x55;
    for (int i = 0; i < trims; ++i) api().malloc_trim(0);
    return 0;
  });
  EXPECT_TRUE(end.signal == SIGABRT || end.exited_with(0)) << end.describe();
  return end.signal == SIGABRT;
}

TEST_F(Trim, ChecksALargeHeapInParts) {
  for (const Heap& heap : kHeaps) {
    int seen_at_once = 0;
    for (const size_t place : {0, 1, 2}) {
      if (is_seen(heap, place, 1)) ++seen_at_once;
      EXPECT_TRUE(is_seen(heap, place, kTrims)) << "blocks of " << heap.block_bytes << " bytes, place " << place;
    }
    EXPECT_LE(seen_at_once, 1) << "blocks of " << heap.block_bytes << " bytes: one call checked all";
  }
}

}  // namespace
}  // namespace freestone_test
