// Random operations against a reference model. FREESTONE_TEST_SEED repeats a run, FREESTONE_TEST_OPS=10 is the long
// mode.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "model/block.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

// The laws by which request sizes are drawn.
struct Law {
  const char* name;
  size_t (*draw)(Random&);
  size_t live_blocks;  // per thread, at most
  size_t kilo_ops;     // of one ordinary run, in thousands
  friend std::ostream& operator<<(std::ostream& out, const Law& law) { return out << law.name; }
};

size_t draw_small(Random& random) { return random.below(257); }
size_t draw_geometric(Random& random) { return static_cast<size_t>(-std::log(1.0 - random.unit()) * 120.0); }
size_t draw_log_uniform(Random& random) { return random.log_uniform(1, 512 * 1024); }

// Around every border that an allocator may have: powers of two and their eighths, pages, units, each a byte less and
// more.
size_t draw_edges(Random& random) {
  const size_t power = size_t{16} << random.below(17);
  return power + power / 8 * random.below(8) + random.below(3) - 1;
}

// What language runtimes do: nearly everything under 600 bytes, some buffers, a few tables that grow large.
size_t draw_program(Random& random) {
  const uint64_t dice = random.below(1000);
  if (dice < 930) return 16 + random.below(73) * 8;
  if (dice < 990) return random.log_uniform(600, 16384);
  if (dice < 999) return random.log_uniform(16384, 300000);
  return random.log_uniform(300000, 3000000);
}

// Large blocks: spans, the run cache, mappings of their own.
size_t draw_large(Random& random) {
  return random.below(400) == 0 ? random.log_uniform(32u << 20, 48u << 20) : random.log_uniform(32 * 1024, 4 << 20);
}

constexpr Law kLaws[] = {
    {"small", draw_small, 20000, 20000},          {"geometric", draw_geometric, 5000, 17000},
    {"log_uniform", draw_log_uniform, 400, 1000}, {"edges", draw_edges, 300, 300},
    {"program", draw_program, 8000, 12000},       {"large", draw_large, 24, 40},
};

// Where threads leave blocks for each other, so that blocks are freed and grown by threads that did not allocate them.
class Exchange {
 public:
  // Puts `block` (or nothing: start == nullptr) into a random slot and takes out what was there.
  Block swap(Random& random, const Block& block) {
    Slot& slot = slots_[random.below(std::size(slots_))];
    while (slot.busy.test_and_set(std::memory_order_acquire)) {
    }
    const Block found = std::exchange(slot.block, block);
    slot.busy.clear(std::memory_order_release);
    return found;
  }

 private:
  struct alignas(64) Slot {
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    Block block;
  };
  Slot slots_[64];
};

unsigned char* bytes(void* block) { return static_cast<unsigned char*>(block); }

// One thread of the model: plays random operations on a table of blocks and checks every promise of the interface as it
// goes.
class Player {
 public:
  // `exact` keeps an interval map of all live blocks and looks for overlaps at every allocation (single-threaded runs
  // only).
  Player(const Law& law, uint64_t seed, uint64_t id_base, Exchange* exchange, bool exact)
      : law_(law), random_(seed), next_id_(id_base), exchange_(exchange), exact_(exact), table_(law.live_blocks) {}

  // Returns false at the first broken promise; failure() then says which.
  bool play(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) {
      if (!step()) return false;
      // Now and then the program idles (everything goes) or trims.
      if (operations_ % 1000003 == 0) {
        if (!check_disjoint() || !finish()) return false;
        if (api().malloc_trim != nullptr) api().malloc_trim(0);
      }
    }
    return true;
  }

  // Checks and frees everything that is left.
  bool finish() {
    for (Block& block : table_)
      if (block.start != nullptr && !release(block)) return false;
    return true;
  }

  const std::string& failure() const { return failure_; }
  uint64_t operations() const { return operations_; }

 private:
  bool fail(const char* promise, const Block& block) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "%s: block %p, size %zu, requested %zu, alignment %zu, origin %d, law %s, operation %llu", promise,
                  static_cast<void*>(block.start), block.size, block.requested, block.alignment,
                  static_cast<int>(block.origin), law_.name, static_cast<unsigned long long>(operations_));
    failure_ = text;
    return false;
  }

  void note(const Block& block) {
    if (exact_)
      intervals_[reinterpret_cast<uintptr_t>(block.start)] =
          reinterpret_cast<uintptr_t>(block.start) + std::max<size_t>(block.size, 1);
  }

  void forget(const Block& block) {
    if (exact_) intervals_.erase(reinterpret_cast<uintptr_t>(block.start));
  }

  // Takes a fresh block into the model: everything that must hold at birth.
  bool admit(Block& block, size_t alignment, bool zeroed) {
    block.alignment = alignment;
    if (block.start == nullptr) return fail("an allocation returned null", block);
    const auto address = reinterpret_cast<uintptr_t>(block.start);
    if (address % std::max<size_t>(alignment, block.requested >= 16 ? 16 : 8) != 0) return fail("misaligned", block);
    const size_t usable = api().malloc_usable_size(block.start);
    if (usable < block.requested) return fail("usable size below the request", block);
    if (zeroed && !all_zero(block.start, block.requested)) return fail("calloc gave a block that is not zero", block);
    // One block in eight is used to its usable size: that memory is the caller's as well.
    block.size = random_.below(8) == 0 ? usable : block.requested;
    block.id = next_id_++;
    if (exact_) {
      const auto above = intervals_.lower_bound(address);
      if (above != intervals_.end() && above->first < address + std::max<size_t>(usable, 1))
        return fail("overlaps the block above", block);
      if (above != intervals_.begin() && std::prev(above)->second > address)
        return fail("overlaps the block below", block);
    }
    note(block);
    fill(block);
    return true;
  }

  bool allocate_into(Block& slot) {
    Block block;
    block.requested = law_.draw(random_);
    bool zeroed = false;
    const size_t alignment = make(block, zeroed);
    if (!admit(block, alignment, zeroed)) return false;
    slot = block;
    return true;
  }

  // By one of all calls that make a block. Answers the alignment that the call promises.
  size_t make(Block& block, bool& zeroed) {
    const size_t size = block.requested;
    const uint64_t dice = random_.below(100);
    if (dice < 45) {
      block.start = bytes(api().malloc(size));
    } else if (dice < 60) {
      const size_t count = 1 + random_.below(7);
      block.requested = (size + count - 1) / count * count;
      block.start = bytes(api().calloc(count, block.requested / count));
      zeroed = true;
    } else if (dice < 64) {
      block.start = bytes(api().realloc(nullptr, size));
    } else if (dice < 66 && api().reallocarray != nullptr) {
      block.start = bytes(api().reallocarray(nullptr, size, 1));
    } else if (dice < 80 && subject().serves_operators) {
      const bool array = random_.below(2) == 0;
      block.origin = array ? Origin::kNewArray : Origin::kNew;
      block.start = bytes(array ? ::operator new[](size, std::nothrow) : ::operator new(size));
    } else {
      return make_aligned(block);
    }
    return 1;
  }

  size_t make_aligned(Block& block) {
    const size_t size = block.requested;
    // Alignments up to 4 KiB; one block in sixteen up to 1 MiB.
    const size_t alignment = size_t{8} << random_.below(random_.below(16) == 0 ? 18 : 10);
    const uint64_t dice = random_.below(6);
    block.origin = Origin::kMemalign;
    if (dice == 0) {
      block.origin = Origin::kAlignedAlloc;
      block.start = bytes(api().aligned_alloc(alignment, size));
    } else if (dice == 1 && subject().serves_operators) {
      block.origin = Origin::kNewAligned;
      block.start = bytes(::operator new(size, std::align_val_t{alignment}));
    } else if (dice == 2 && api().valloc != nullptr && random_.below(4) == 0) {
      const bool whole_pages = api().pvalloc != nullptr && random_.below(2) == 0;
      block.start = bytes(whole_pages ? api().pvalloc(size) : api().valloc(size));
      return 4096;
    } else if (dice < 3) {
      block.start = bytes(api().memalign(alignment, size));
    } else {
      void* start = nullptr;
      if (api().posix_memalign(&start, alignment, size) == 0) block.start = bytes(start);
    }
    return alignment;
  }

  bool resize(Block& block) {
    if (block.origin >= Origin::kNew) return release(block);
    // Mostly small steps, as a growing buffer makes them; else any size of the law. Never 0, which may free.
    const size_t size = std::max<size_t>(
        1, random_.below(3) == 0 ? law_.draw(random_)
                                 : block.requested + random_.below(block.requested + 32) - block.requested / 4);
    Block grown;
    grown.requested = size;
    const Block old = block;
    forget(old);
    grown.start =
        bytes(api().reallocarray != nullptr && random_.below(4) == 0 ? api().reallocarray(block.start, size, 1)
                                                                     : api().realloc(block.start, size));
    block = Block{};
    if (grown.start == nullptr) return fail("realloc returned null", old);
    Block content = old;
    content.start = grown.start;
    if (!intact(content, std::min(old.size, size))) return fail("realloc lost content", content);
    if (!admit(grown, 1, false)) return false;
    block = grown;
    return true;
  }

  bool release(Block& block) {
    if (!intact(block, block.size)) return fail("content changed while the block was live", block);
    forget(block);
    const size_t size = block.requested;
    errno = 1234;
    switch (block.origin) {
      case Origin::kMalloc:
        if (api().free_sized != nullptr && random_.below(4) == 0)
          api().free_sized(block.start, size);
        else if (api().cfree != nullptr && random_.below(16) == 0)
          api().cfree(block.start);
        else
          api().free(block.start);
        break;
      case Origin::kAlignedAlloc:
        if (api().free_aligned_sized != nullptr && random_.below(2) == 0)
          api().free_aligned_sized(block.start, block.alignment, size);
        else
          api().free(block.start);
        break;
      case Origin::kMemalign: api().free(block.start); break;
      case Origin::kNew:
        random_.below(2) == 0 ? ::operator delete(block.start) : ::operator delete(block.start, size);
        break;
      case Origin::kNewArray:
        random_.below(2) == 0 ? ::operator delete[](block.start) : ::operator delete[](block.start, size);
        break;
      case Origin::kNewAligned:
        random_.below(2) == 0 ? ::operator delete(block.start, std::align_val_t{block.alignment})
                              : ::operator delete(block.start, size, std::align_val_t{block.alignment});
        break;
    }
    if (errno != 1234) return fail("a free changed errno", block);
    block = Block{};
    return true;
  }

  bool exchange_with_others(Block& block) {
    if (block.start != nullptr && !intact(block, block.size))
      return fail("content changed while the block was live", block);
    block = exchange_->swap(random_, block);
    if (block.start != nullptr && !intact(block, block.size))
      return fail("content changed on the way from another thread", block);
    return true;
  }

  // No two live blocks of this thread share a byte.
  bool check_disjoint() {
    std::vector<const Block*> live;
    for (const Block& block : table_)
      if (block.start != nullptr) live.push_back(&block);
    std::sort(live.begin(), live.end(), [](const Block* a, const Block* b) { return a->start < b->start; });
    for (size_t i = 1; i < live.size(); ++i)
      if (live[i - 1]->start + std::max<size_t>(live[i - 1]->size, 1) > live[i]->start)
        return fail("two live blocks overlap", *live[i]);
    return true;
  }

  bool step() {
    ++operations_;
    Block& block = table_[random_.below(table_.size())];
    if (exchange_ != nullptr && random_.below(16) == 0) return exchange_with_others(block);
    if (block.start == nullptr) return allocate_into(block);
    const uint64_t dice = random_.below(100);
    if (dice < 18) return resize(block);
    if (dice < 21) return intact(block, block.size) || fail("content changed while the block was live", block);
    return release(block);
  }

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

class Model : public testing::TestWithParam<Law> {};

std::string law_name(const testing::TestParamInfo<Law>& info) { return info.param.name; }

// Operations of a law in all: about 107 million over the suite, both libraries together.
uint64_t run_length(const Law& law) { return scaled(law.kilo_ops * 1000); }

TEST_P(Model, KeepsEveryPromiseInOneThread) {
  const Law& law = GetParam();
  Player player(law, test_seed(law.name), 0, nullptr, false);
  EXPECT_TRUE(player.play(run_length(law) / 2) && player.finish()) << player.failure();
  RecordProperty("operations", std::to_string(player.operations()));
}

TEST_P(Model, NeverGivesOverlappingBlocks) {
  const Law& law = GetParam();
  Player player(law, test_seed(law.name), 0, nullptr, true);
  EXPECT_TRUE(player.play(run_length(law) / 16) && player.finish()) << player.failure();
}

TEST_P(Model, KeepsEveryPromiseWhenThreadsExchangeBlocks) {
  const Law& law = GetParam();
  constexpr int kThreads = 4;
  const uint64_t seed = test_seed(law.name);
  auto exchange = std::make_unique<Exchange>();
  std::vector<std::unique_ptr<Player>> players;
  for (uint64_t i = 0; i < kThreads; ++i)
    players.push_back(std::make_unique<Player>(law, seed + i, i << 48, exchange.get(), false));
  std::vector<char> kept(kThreads, 0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { kept[i] = players[i]->play(run_length(law) / 2 / kThreads); });
  for (std::thread& thread : threads) thread.join();
  // What the threads left behind is freed by this one.
  for (size_t i = 0; i < kThreads; ++i) EXPECT_TRUE(kept[i] && players[i]->finish()) << players[i]->failure();
}

INSTANTIATE_TEST_SUITE_P(Laws, Model, testing::ValuesIn(kLaws), law_name);

}  // namespace
}  // namespace freestone_test
