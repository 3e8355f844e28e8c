// Room 7: pages of classes that a program has left go back. In a process of its own, because pages stay for a while
// after swings such as those of other tests.
#include "config/options.h"
#include "region/traffic.h"
#include "span/purge.h"
#include "unit/support.h"

namespace freestone {
namespace {

// No time passes: other blocks move from class to class, into memory that is free.
TEST(slab_moves, ColdPagesGoAsBlocksMoveToOtherClasses) {
  ensure_started();
  SlabUser user;
  const auto decay_ms = options.dirty_decay_ms;
  const auto dirty_bytes = options.dirty_bytes;
  options.dirty_decay_ms = 1'000'000'000;
  options.dirty_bytes = 256 * kMiB;  // what is free stays, so that nothing grows
  const SizeClass cold = class_of(kKiB);
  const SizeClass sides[] = {class_of(2 * kKiB), class_of(4 * kKiB), class_of(5 * kKiB), class_of(6 * kKiB),
                             class_of(7 * kKiB)};
  const SizeClass other = class_of(3 * kKiB);
  std::vector<void*> stays = taken_blocks(user, other, 8 * kMiB);
  std::vector<void*> moves;
  for (unsigned k = 0; k < 24; ++k) {
    for (void* block : taken_blocks(user, sides[0], kMiB)) moves.push_back(block);
  }
  std::vector<void*> goes = taken_blocks(user, cold, 16 * kMiB);
  purge_cold_pages(user, true);
  std::vector<void*> survivors = survivors_of(user, cold, goes);
  purge_cold_pages(user, true);
  const auto& back = traffic.back_bytes[static_cast<unsigned>(WentBack::slabs)];
  const u64 before = back.load_relaxed();
  unsigned side = 0;
  for (; side + 1 < std::size(sides); ++side) {
    std::vector<void*> moved;
    const usize step = kMiB / class_info(sides[side]).bytes;
    for (usize at = 0; at < moves.size(); at += step) {
      return_blocks(sides[side], user, &moves[at], static_cast<unsigned>(min_of(step, moves.size() - at)));
      for (void* block : taken_blocks(user, sides[side + 1], kMiB)) moved.push_back(block);
      purge_cold_pages(user, true);
    }
    moves = moved;
  }
  EXPECT_GE(back.load_relaxed() - before, 8 * kMiB) << "pages that nobody uses stay";
  options.dirty_decay_ms = decay_ms;
  options.dirty_bytes = dirty_bytes;
  for (void* block : survivors) return_blocks(cold, user, &block, 1);
  for (void* block : moves) return_blocks(sides[side], user, &block, 1);
  for (void* block : stays) return_blocks(other, user, &block, 1);
  purge_spans(0, WentBack::trim);
  expect_valid_heap();
}

}  // namespace
}  // namespace freestone
