// One thread of the model: plays random operations on a table of blocks and checks every promise of the interface as it
// goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/laws.h"
#include "support/random.h"

namespace freestone_test {

// Where threads leave blocks for each other, so that blocks are freed and grown by threads that did not allocate them.
class Exchange {
 public:
  // Puts `block` (or nothing: start == nullptr) into a random slot and takes out what was there.
  Block swap(Random& random, const Block& block);

 private:
  struct alignas(64) Slot {
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    Block block;
  };
  Slot slots_[64];
};

class Player {
 public:
  // `exact` keeps an interval map of all live blocks and looks for overlaps at every allocation (single-threaded runs
  // only).
  Player(const Law& law, uint64_t seed, uint64_t id_base, Exchange* exchange, bool exact);

  // Returns false at the first broken promise; failure() then says which.
  bool play(uint64_t operations);
  // Checks and frees everything that is left.
  bool finish();

  const std::string& failure() const { return failure_; }
  uint64_t operations() const { return operations_; }

 private:
  bool step();
  bool allocate_into(Block& slot);
  bool resize(Block& block);
  bool release(Block& block);
  bool exchange_with_others(Block& block);
  bool admit(Block& block, size_t alignment, bool zeroed);
  bool check_disjoint();
  bool fail(const char* promise, const Block& block);
  void note(const Block& block);
  void forget(const Block& block);

  const Law& law_;
  Random random_;
  uint64_t next_id_;
  Exchange* exchange_;
  bool exact_;
  std::vector<Block> table_;
  std::map<uintptr_t, uintptr_t> intervals_;
  uint64_t operations_ = 0;
  std::string failure_;
};

}  // namespace freestone_test
