// What the white-box tests share: a team of threads, and the checks of every room at rest.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "cache/arrays.h"
#include "front/heap.h"
#include "region/purge_budget.h"
#include "slab/slab.h"
#include "span/span_heap.h"
#include "support/child.h"
#include "support/random.h"

namespace freestone {

// The heap is there before the first test.
inline const bool is_started = (deallocate(allocate(1)), true);

using freestone_test::fork_and;
using freestone_test::Random;
using freestone_test::scaled;
using freestone_test::test_seed;

inline void run_threads(unsigned count, const std::function<void(unsigned)>& body) {
  std::vector<std::thread> team;
  for (unsigned t = 0; t < count; ++t) team.emplace_back(body, t);
  for (std::thread& thread : team) thread.join();
}

// Takes `bytes` in blocks and writes all of them.
inline std::vector<void*> taken_blocks(SlabUser& user, SizeClass c, usize bytes) {
  std::vector<void*> held(bytes / class_info(c).bytes);
  for (usize count = 0; count < held.size();)
    count += take_blocks(c, user, 1, static_cast<unsigned>(min_of<usize>(64, held.size() - count)), &held[count],
                         BlockPlace::slab);
  for (void* block : held) std::memset(block, 1, class_info(c).bytes);
  return held;
}

// Returns the blocks to their slabs, except one of each slab, or of 64: those are the result.
inline std::vector<void*> survivors_of(SlabUser& user, SizeClass c, std::vector<void*>& blocks) {
  std::vector<void*> survivors;
  for (usize k = 0; k < blocks.size(); ++k) {
    if (k % min_of(class_info(c).blocks, 64U) == 0) {
      survivors.push_back(blocks[k]);
    } else {
      return_blocks(c, user, &blocks[k], 1);
    }
  }
  return survivors;
}

// From here on giving memory back may cost what it may after a rest.
inline void rest() { purge_budget.pass(1000, 1, 1); }

// No other thread may run.
inline void expect_valid_heap() {
  EXPECT_TRUE(slabs_are_valid());
  EXPECT_TRUE(spans_are_valid());
  if (const Cache* cache = ensure_cache(); cache != nullptr) {
    EXPECT_TRUE(cache_is_valid(*cache));
  }
}

}  // namespace freestone
