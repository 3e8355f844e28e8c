// Room 9: a window that is full. What is free in the heap serves whoever fits there, large blocks get mappings, the
// rest null; and its last unit is as good as any other.
#include <sys/mman.h>

#include <cerrno>

#include "config/options.h"
#include "front/reclaim.h"
#include "region/region.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "unit/support.h"

namespace freestone {
namespace {

// The frontier goes no further than so many bytes from where it is.
void end_window_after(usize bytes) {
  LockGuard guard(growth_lock);
  const auto end = region.frontier.load_relaxed() + static_cast<UnitIndex>(bytes_to_units(bytes));
  region.window_end = min_of(region.window_end, end);
}

// Blocks that know each other, outside the heap.
class Chain {
 public:
  bool take(usize bytes) {
    void* const block = allocate(bytes);
    if (block == nullptr) return false;
    std::memcpy(block, &last_, sizeof last_);
    last_ = block;
    ++count_;
    return true;
  }
  // Frees all but every `every`-th.
  void free_most(usize every) {
    void* kept = nullptr;
    usize number = 0;
    for (void* block = last_; block != nullptr;) {
      void* next;
      std::memcpy(&next, block, sizeof next);
      if (every != 0 && ++number % every == 0) {
        std::memcpy(block, &kept, sizeof kept);
        kept = block;
      } else {
        deallocate(block);
        --count_;
      }
      block = next;
    }
    last_ = kept;
  }
  void* last() const { return last_; }
  usize count() const { return count_; }

 private:
  void* last_ = nullptr;
  usize count_ = 0;
};

constexpr usize kSizes[] = {16, 100, 1000, 3000, 8000, 20'000, 32 * kKiB, 40'000, 100'000, 128 * kKiB};

// Every size up to the classes' end until null, at a full window; then from what another size gave back.
TEST(front_window, WhatOneSizeGaveBackServesAnyOther) {
  for (const usize first : kSizes) {
    EXPECT_EQ(fork_and([first] {
                end_window_after(24 * kMiB);
                Chain all;
                while (all.take(first)) {
                }
                if (errno != ENOMEM || units_to_bytes(committed_units()) < 20 * kMiB) return 1;
                Chain rest;  // what no slab or run of this size could use
                while (rest.take(16)) {
                }
                all.free_most(0);
                for (const usize size : kSizes) {
                  Chain other;
                  while (other.count() * size < 4 * kMiB && other.take(size)) {
                  }
                  if (other.count() * size < 4 * kMiB) return 2;
                  other.free_most(0);
                }
                return slabs_are_valid() && spans_are_valid() ? 0 : 3;
              }),
              0)
        << "blocks of " << first;
  }
}

// Holes that no slab of the size fits in.
TEST(front_window, HolesServeBlocksWhoseSlabsDoNotFit) {
  for (const usize size : {16'000, 20'000, 32'000}) {
    EXPECT_EQ(fork_and([size] {
                end_window_after(24 * kMiB);
                Chain runs;
                while (runs.take(100'000)) {
                }
                Chain rest;
                while (rest.take(16)) {
                }
                runs.free_most(2);
                Chain blocks;
                while (blocks.count() < 100 && blocks.take(size)) {
                }
                return blocks.count() == 100 ? 0 : 1;
              }),
              0)
        << "blocks of " << size;
  }
}

TEST(front_window, LargeBlocksGetMappingsAndLeaveRoomForSmallOnes) {
  EXPECT_EQ(fork_and([] {
              end_window_after(256 * kMiB);
              Chain large;
              const usize mapped = mapping_counts().blocks;
              for (const usize size : {2 * kMiB, 31 * kMiB, 5 * kMiB}) {
                for (int k = 0; k < 200; ++k)
                  if (!large.take(size)) return 1;
              }
              if (mapping_counts().blocks == mapped) return 2;
              Chain small;
              for (usize bytes = 0; bytes < 12 * kMiB; bytes += 1000)
                if (!small.take(1000)) return 3;
              large.free_most(0);
              small.free_most(0);
              return mapping_counts().blocks == mapped && slabs_are_valid() && spans_are_valid() ? 0 : 4;
            }),
            0);
}

// The heap goes around mappings that others have in its window, so it reaches the end soon.
TEST(front_window, ItsLastUnitServesAndGoesBack) {
  if (region.reserved) GTEST_SKIP() << "the window is reserved as a whole";
  EXPECT_EQ(fork_and([] {
              constexpr UnitIndex kNear = kGroupUnits * 8;
              const auto room = [] {
                LockGuard guard(growth_lock);
                return region.window_end - region.frontier.load_relaxed();
              };
              Chain blocks;
              while (room() > kNear) {
                // The next try after a piece that is taken lies twice as far away.
                UnitIndex far = kGroupUnits;
                while (far * 2 + kNear <= room()) far *= 2;
                void* const from = unit_address(region.frontier.load_relaxed());
                void* const got = mmap(from, units_to_bytes(far), PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
                if (got != from) return 1;
                const UnitIndex before = region.frontier.load_relaxed();
                while (region.frontier.load_relaxed() == before)
                  if (!blocks.take(100'000)) return 2;
              }
              while (blocks.take(100'000)) {
              }
              const UnitIndex last = region.window_end - 1;
              if (region.frontier.load_relaxed() != region.window_end) return 3;
              options.dirty_bytes = kGiB;  // free memory of two ages lies there when it goes
              options.dirty_decay_ms = 3600000;
              blocks.free_most(2);
              purge_spans(units_to_bytes(span_counts().dirty_units / 2), WentBack::shortage);
              blocks.free_most(0);
              trim(0);
              while (blocks.take(16 * kKiB)) {
              }
              if (tag_of(last) == kTagNone) return 4;
              blocks.free_most(0);
              trim(0);
              return blocks.take(100'000) && blocks.take(10 * kMiB) ? 0 : 5;
            }),
            0);
}

}  // namespace
}  // namespace freestone
