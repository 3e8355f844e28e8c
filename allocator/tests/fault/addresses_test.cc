// What an attacker can know of addresses in the hardened build: where the next block lies, in this process and in a
// sibling, and when the address of a freed block comes back: late, and never inside a block of another size class.
// HARDENING.md says how often a guess is right at most.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/process_memory.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

// A block that is touched in this many places.
char* take(size_t bytes, size_t places = 1) {
  auto* const block = static_cast<char*>(api().malloc(bytes));
  for (size_t at = 0; block != nullptr && at < bytes; at += bytes / places) block[at] = 1;
  return block;
}

// Blocks of at least `bytes` in all, in random order.
std::vector<char*> take_all(size_t block_bytes, size_t bytes) {
  std::vector<char*> blocks(bytes / block_bytes);
  for (char*& block : blocks) block = take(block_bytes);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  return blocks;
}
void free_all(const std::vector<char*>& blocks) {
  for (char* block : blocks) api().free(block);
}

// Pairs of malloc and free until a block meets the place of one that was freed, or as many as `most`; 0: no memory.
unsigned pairs_until_return(size_t bytes, unsigned most, size_t places = 1) {
  char* const freed = take(bytes, places);
  api().free(freed);
  for (unsigned pairs = 1;; ++pairs) {
    char* const block = take(bytes, places);
    if (block == nullptr) return 0;
    const bool meets = block < freed + bytes && freed < block + bytes;
    api().free(block);
    if (meets || pairs == most) return pairs;
  }
}

class Guesses : public HardenedTest {};

// Four size classes in each doubling, two while they are 16 bytes apart; then two lengths of runs.
std::vector<size_t> block_sizes() {
  std::vector<size_t> classes;
  for (size_t bytes = 32; bytes <= 32 * 1024;) {
    classes.push_back(bytes);
    size_t doubling = 32;
    while (2 * doubling <= bytes) doubling *= 2;
    bytes += std::max<size_t>(16, doubling / 4);
  }
  classes.insert(classes.end(), {100'000, 300'000});
  return classes;
}

// By size class, how often two guesses are right: that the next block is the upper neighbour of the last one, or lies
// at whatever distance came most often. `kept` of every eight blocks stay when the others are freed: 0 for slabs that
// are fresh.
void expect_promised_rates(unsigned kept) {
  constexpr unsigned kGuesses = 2048;
  constexpr size_t kHeldBackBytes = 8;  // of each block, for its trailer
  for (const size_t block_bytes : block_sizes()) {
    std::vector<char*> blocks(kGuesses + 1);
    for (char*& block : blocks) block = static_cast<char*>(api().malloc(block_bytes - kHeldBackBytes));
    for (unsigned k = 0; kept != 0 && k <= kGuesses; ++k)
      if (k % 8 >= kept) api().free(std::exchange(blocks[k], nullptr));
    for (char*& block : blocks)
      if (block == nullptr) block = static_cast<char*>(api().malloc(block_bytes - kHeldBackBytes));
    std::map<ptrdiff_t, unsigned> steps;  // from each of the blocks to the next
    for (size_t k = 1; k < blocks.size(); ++k) ++steps[blocks[k] - blocks[k - 1]];
    unsigned most = 0;
    for (const auto& [step, count] : steps) most = std::max(most, count);
    const double neighbour = double(steps[ptrdiff_t(block_bytes)]) / kGuesses, best = double(most) / kGuesses;
    std::printf("%6zu bytes: neighbour %.3f, best guess %.3f\n", block_bytes, neighbour, best);
    // A true rate as promised exceeds this bound once in a billion times.
    const double promised = block_bytes <= 32 ? 1.0 / 16 : block_bytes <= 32 * 1024 ? 1.0 / 8 : 1.0 / 4;
    const double bound = promised + 6 * std::sqrt(promised * (1 - promised) / kGuesses);
    EXPECT_LE(neighbour, bound) << block_bytes;
    EXPECT_LE(best, bound) << block_bytes;
    free_all(blocks);
  }
}

TEST_F(Guesses, OfTheNextFreshBlockComeTrueAsSeldomAsPromised) { expect_promised_rates(0); }

TEST_F(Guesses, OfTheNextBlockAmongOthersComeTrueAsSeldomAsPromised) { expect_promised_rates(1); }

class Reuse : public HardenedTest {};

// Takes and frees all sizes up to 8 KiB but those near `rests`, enough to fill whatever bounds all queues together.
void churn(size_t rests = 0) {
  for (size_t bytes = 16; bytes <= 8192; bytes += bytes / 8 + 15) {
    if (bytes + bytes / 4 + 16 > rests && bytes < rests + rests / 4 + 16) continue;
    for (int round = 0; round < 3; ++round) free_all(take_all(bytes, kMebibyte / 4));
  }
}

// A queue has places for 256 KiB, and seven eighths of them are a ring, whatever other classes and threads do.
TEST_F(Reuse, AFreedAddressComesBackAfterMostOfAQueueWhateverElseIsBusy) {
  std::atomic<unsigned> busy = 0;
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] {
      churn();
      ++busy;
      while (!done) std::this_thread::sleep_for(std::chrono::milliseconds{1});
    });
  }
  while (busy < others.size()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  for (const size_t bytes : {24, 100, 500, 1500, 4000, 12000}) {
    churn();
    std::vector<unsigned> pairs(20);
    for (unsigned& number : pairs) number = pairs_until_return(bytes, 1'000'000);
    std::sort(pairs.begin(), pairs.end());
    std::printf("%zu bytes: after %u pairs, median %u\n", bytes, pairs.front(), pairs[pairs.size() / 2]);
    EXPECT_GE(pairs.front(), (size_t{256} << 10) * 7 / 8 / (bytes + bytes / 4 + 16)) << bytes;
  }
  done = true;
  for (std::thread& other : others) other.join();
}

// Nor when a thread frees it that ends, or when its class rests while others work and time passes.
TEST_F(Reuse, AFreedAddressWaitsForItsClassWhoeverFreedIt) {
  api().malloc_trim(0);  // what threads of another test left waiting passes through this thread's queues
  for (const size_t bytes : {24, 500, 4000}) {
    for (const bool ends : {false, true}) {
      const std::vector<char*> in_use = take_all(bytes, kMebibyte / 2);
      for (size_t i = 0; i < in_use.size(); i += 2) api().free(in_use[i]);
      char* const freed = static_cast<char*>(api().malloc(bytes));
      ends ? std::thread{[=] { api().free(freed); }}.join() : api().free(freed);
      churn(bytes);
      std::this_thread::sleep_for(std::chrono::milliseconds{ends ? 0 : 300});
      std::vector<char*> next;
      for (size_t i = 0; i < (size_t{224} << 10) / (bytes + bytes / 4 + 16); ++i)
        next.push_back(static_cast<char*>(api().malloc(bytes)));
      EXPECT_EQ(std::count(next.begin(), next.end(), freed), 0) << bytes << (ends ? ", by a thread that ended" : "");
      free_all(next);
      for (size_t i = 1; i < in_use.size(); i += 2) api().free(in_use[i]);
    }
  }
}

TEST_F(Reuse, AnOptionMakesTheQueuesShorter) {
  EXPECT_TRUE(ends_well([] {
    using SetOption = int (*)(const char*, const char*);
    const auto set_option = reinterpret_cast<SetOption>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
    const unsigned usual = pairs_until_return(500, 10'000);
    if (set_option("quarantine_bytes", "16k") != 0) return 2;
    api().malloc_trim(0);  // queues begin anew
    const unsigned shorter = pairs_until_return(500, 10'000);
    std::printf("after %u pairs, with 16 KiB after %u\n", usual, shorter);
    return usual > 400 && shorter < 100 ? 0 : 1;
  }));
}

// A run that was cleared comes back only after a later one of its length took its place, drawn among four. A longer one
// is cleared when the allowance is spent.
TEST_F(Reuse, AFreedRunIsNeverTheNextOne) {
  for (int k = 0; k < 100; ++k) api().free(take(3'500'000, 100));
  for (const size_t bytes : {40'000, 60'000, 100'000, 120'000, 300'000, 900'000}) {
    std::set<unsigned> pairs;
    for (int round = 0; round < 40; ++round) pairs.insert(pairs_until_return(bytes, 5000, 8));
    std::printf("%zu bytes: after %u to %u pairs\n", bytes, *pairs.begin(), *pairs.rbegin());
    EXPECT_GE(*pairs.begin(), 2u) << bytes;
    EXPECT_GT(pairs.size(), 2u) << bytes << ": the number of pairs is no secret";
  }
}

TEST_F(Reuse, AFreedAddressLiesInNoBlockOfAnotherSize) {
  const std::pair<size_t, size_t> sizes[] = {{24, 100},          {300, 1000},       {500, 1500},
                                             {4000, 300},        {30000, 2000},     {100, 30000},
                                             {100'000, 200'000}, {40'000, 100'000}, {60'000, 24}};
  for (const auto& [before, after] : sizes) {
    for (const bool trims : {false, true}) {
      std::vector<char*> freed = take_all(before, 8 * kMebibyte);
      free_all(freed);
      if (trims) api().malloc_trim(0);
      std::sort(freed.begin(), freed.end());
      const std::vector<char*> blocks = take_all(after, 24 * kMebibyte);
      size_t hits = 0;
      for (char* block : blocks) {
        const auto next = std::lower_bound(freed.begin(), freed.end(), block);
        hits += next != freed.end() && *next < block + after ? 1 : 0;
      }
      EXPECT_EQ(hits, 0u) << before << " bytes, then " << after << (trims ? ", trimmed" : "");
      free_all(blocks);
    }
  }
}

// Pages go back, addresses stay with their class and serve it again.
TEST_F(Reuse, ARetiredSlabGivesItsMemoryBackAndServesItsClassAgain) {
  constexpr size_t kBytes = 500, kAll = 48 * kMebibyte;
  EXPECT_TRUE(ends_well([] {
    api().malloc_trim(0);
    const size_t before = resident_bytes();
    std::vector<char*> first = take_all(kBytes, kAll);
    free_all(first);
    api().malloc_trim(0);
    if (resident_bytes() > before + kAll / 3) return 1;
    std::sort(first.begin(), first.end());
    for (int round = 0; round < 5; ++round) {
      const std::vector<char*> again = take_all(kBytes, kAll);
      size_t same = 0;
      for (char* block : again) same += std::binary_search(first.begin(), first.end(), block) ? 1 : 0;
      if (same < again.size() * 9 / 10) return 2;
      free_all(again);
      api().malloc_trim(0);
    }
    return 0;
  }));
}

TEST_F(Reuse, ARetiredSlabFaults) {
  const ChildEnd end = run_in_child([] {
    if (madvise(nullptr, 0, 102 /* MADV_GUARD_INSTALL */) != 0) return 77;
    const std::vector<char*> blocks = take_all(500, 8 * kMebibyte);
    free_all(blocks);
    api().malloc_trim(0);
    *static_cast<volatile char*>(blocks[blocks.size() / 2]) = 1;
    return 0;
  });
  if (end.exited_with(77)) GTEST_SKIP() << "guards have a budget here";
  EXPECT_EQ(end.signal, SIGSEGV) << end.describe();
}

// Where no addresses are left, what waits for its class serves others before an allocation fails.
TEST_F(Reuse, NoAllocationFailsForAddressesThatWait) {
  EXPECT_TRUE(ends_well([] {
    for (const size_t bytes : {100, 300, 1000, 3000, 10000}) {
      const std::vector<char*> blocks = take_all(bytes, 16 * kMebibyte);
      if (std::count(blocks.begin(), blocks.end(), nullptr) != 0) return 1;
      free_all(blocks);
    }
    return 0;
  }));
}

// Freed blocks of 4 to 32 MiB: they fault at once, always, and their addresses come back late.
class LargeRuns : public HardenedTest {};

constexpr size_t kLargeSizes[] = {4 * kMebibyte + 100000, 5'000'000, 8 * kMebibyte, 20'000'000, 32 * kMebibyte - 100};

TEST_F(LargeRuns, FaultAtOnceHoweverManyWereFreed) {
  for (const size_t bytes : kLargeSizes) {
    for (const bool alone : {true, false}) {  // as the only one, or while others of its length are in use
      for (const size_t offset : {size_t{0}, size_t{300}, bytes / 2, bytes - 1}) {
        const auto write_after_free = [&] {
          if (!alone) take(bytes, 8);
          for (int k = 0; k < 200; ++k) api().free(take(bytes, 8));  // more than any allowance pays for
          char* const block = take(bytes, 8);
          api().free(block);
          static_cast<volatile char*>(block)[offset] = 1;
        };
        EXPECT_TRUE(dies_by(SIGSEGV, write_after_free)) << bytes << " bytes, offset " << offset;
      }
    }
  }
}

// Blocks of which little was used: after a burst that would spend any allowance, and in no block of another length.
TEST_F(LargeRuns, HardlyUsedOnesComeBackAsLate) {
  for (const size_t bytes : {200'000, 900'000, 3'500'000}) {
    for (int k = 0; k < 600; ++k) api().free(take(bytes));
    char* const freed = take(bytes);
    api().free(freed);
    for (size_t longer = bytes + bytes / 3; longer < 3 * bytes; longer += bytes / 5) {
      char* const block = take(longer);
      EXPECT_FALSE(block <= freed && freed < block + longer) << bytes << " in " << longer;
      api().free(block);
    }
    const unsigned pairs = pairs_until_return(bytes, 6000);
    std::printf("%zu bytes: after %u pairs\n", bytes, pairs);
    EXPECT_GE(pairs, bytes < 1'000'000 ? 2000u : 1000u) << bytes;
  }
}

TEST_F(LargeRuns, AddressesComeBackAfterMany) {
  for (const size_t bytes : kLargeSizes) {
    const unsigned pairs = pairs_until_return(bytes, 5000, 8);
    std::printf("%zu bytes: after %u pairs\n", bytes, pairs);
    EXPECT_GE(pairs, (size_t{450} << 20) / (bytes + 64 * 1024)) << bytes;
  }
}

// A mapping lies alone at a random place, also after it grew.
TEST_F(LargeRuns, LongerOnesLieAloneAtRandomPlaces) {
  constexpr size_t kBytes = 40'000'000;
  std::set<uintptr_t> places, steps;
  uintptr_t last = 0;
  for (int round = 0; round < 100; ++round) {
    auto* block = static_cast<char*>(round % 2 == 0 ? api().malloc(kBytes) : api().aligned_alloc(1 << 20, kBytes));
    block = static_cast<char*>(api().realloc(block, kBytes + kMebibyte));
    ASSERT_NE(block, nullptr);
    const auto at = reinterpret_cast<uintptr_t>(block);
    places.insert(at);
    steps.insert(at - last);
    last = at;
    const size_t usable = api().malloc_usable_size(block);
    if (round < 4) {
      EXPECT_TRUE(dies_by(SIGSEGV, [=] { static_cast<volatile char*>(block)[-8] = 1; }));
      EXPECT_TRUE(dies_by(SIGSEGV, [=] { static_cast<volatile char*>(block)[usable + usable / 7] = 1; }));
    }
    api().free(block);
  }
  EXPECT_EQ(places.size(), 100u);
  EXPECT_EQ(steps.size(), 100u);
}

// What waits is neither charged nor in the way.
TEST_F(LargeRuns, WaitingFailsNoAllocation) {
  EXPECT_TRUE(ends_well([] {
    using SetOption = int (*)(const char*, const char*);
    const auto set_option = reinterpret_cast<SetOption>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
    for (const size_t bytes : kLargeSizes)
      for (int k = 0; k < 100; ++k) api().free(take(bytes, 8));
    if (set_option("limit_hard", "192m") != 0) return 1;
    for (int round = 0; round < 300; ++round) {
      for (const size_t bytes : kLargeSizes) {
        char* const block = take(bytes, 8);
        if (block == nullptr) return 2;
        api().free(block);
      }
    }
    return 0;
  }));
}

TEST_F(LargeRuns, AreZeroWhenTakenAgain) {
  for (int round = 0; round < 600; ++round) {
    const size_t bytes = kLargeSizes[round % 3];
    auto* const block = static_cast<char*>(api().malloc(bytes));
    ASSERT_NE(block, nullptr);
    for (size_t at = 0; at < bytes; at += bytes / 16) ASSERT_EQ(block[at], 0);
    std::memset(block + bytes / 4, 1, bytes / 64);
    api().free(block);
  }
}

TEST_F(LargeRuns, TakeFewMappings) {
  const size_t before = mapping_count();
  for (int round = 0; round < 200; ++round) api().free(take(kLargeSizes[round % 5], 8));
  EXPECT_LT(mapping_count(), before + 200);
}

// What the allocator knows of its blocks lies far from them, from libc and from each other, anew in each process.
TEST_F(LargeRuns, OwnStructuresLieApart) {
  std::set<uintptr_t> seen;
  size_t count = 0;
  for (int process = 0; process < 8; ++process) {
    FILE* const maps = popen("exec cat /proc/self/maps", "r");
    char line[512];
    uintptr_t start, end, last = 0;
    while (std::fgets(line, sizeof line, maps) != nullptr) {
      if (std::sscanf(line, "%lx-%lx rw", &start, &end) != 2 || start < uintptr_t{44} << 40 || start >> 40 >= 84)
        continue;
      if (last != 0) seen.insert(start - last), ++count;
      last = start;
    }
    pclose(maps);
  }
  EXPECT_GE(count, 8u) << "the records and the arrays of caches";
  EXPECT_EQ(seen.size(), count);
}

// The children of one process share its secrets, but not what is drawn: a forking server's child that shows an address
// shall not show where its siblings' blocks lie.
class Siblings : public HardenedTest {
 protected:
  static constexpr int kChildren = 24;
  static constexpr size_t kSizes[] = {24, 48, 120, 700, 5000, 20000, 90000, 300000};
  using Addresses = std::array<uintptr_t, 64>;

  void SetUp() override {
    HardenedTest::SetUp();
    if (IsSkipped()) return;
    // A heap in use, with free blocks in caches, slabs and spans.
    std::vector<char*> blocks;
    for (const size_t bytes : kSizes) {
      const size_t count = bytes < 1000 ? 3000 : bytes < 30000 ? 300 : 60;
      for (size_t k = 0; k < count; ++k) blocks.push_back(static_cast<char*>(api().malloc(bytes)));
    }
    for (size_t k = 0; k < blocks.size(); ++k)
      if (k % 3 != 0) api().free(blocks[k]);
  }

  // The next blocks of one size in a child, with frees between them; zeros where it died.
  static Addresses next_in_child(pid_t (*make_child)(), size_t bytes) {
    Addresses addresses = {};
    int ends[2];
    if (pipe(ends) != 0) return addresses;
    const pid_t child = make_child();
    if (child == 0) {
      // A bare child learns what it is at its first slow path.
      api().free(api().malloc(size_t{1} << 20));
      for (size_t k = 0; k < addresses.size(); ++k) {
        void* const block = api().malloc(bytes);
        addresses[k] = reinterpret_cast<uintptr_t>(block);
        if (k % 4 == 3) api().free(block);
      }
      const ssize_t written = write(ends[1], addresses.data(), sizeof addresses);
      _exit(written == sizeof addresses ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], addresses.data(), sizeof addresses) != sizeof addresses) addresses = {};
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return addresses;
  }

  static void expect_own_blocks(pid_t (*make_child)()) {
    for (const size_t bytes : kSizes) {
      int most = kChildren;
      // Few cached blocks may make one state of the parent an exception. A draw that is not made anew fails in each.
      for (int state = 0; state < (bytes > 700 ? 1 : 4) && most > kChildren / 2; ++state) {
        std::set<Addresses> different;
        std::map<uintptr_t, int> firsts;
        most = 0;
        for (int k = 0; k < kChildren; ++k) {
          const Addresses addresses = next_in_child(make_child, bytes);
          different.insert(addresses);
          most = std::max(most, ++firsts[addresses[0]]);
        }
        EXPECT_EQ(different.size(), size_t{kChildren}) << bytes << " bytes";
        EXPECT_EQ(different.count(Addresses{}), 0u) << bytes << " bytes: a child died";
        for (int k = 0; k < 9; ++k) static_cast<void>(api().malloc(bytes));
      }
      if (bytes <= 700)
        EXPECT_LE(most, kChildren / 2) << bytes << " bytes: the first block is the same in most children";
    }
  }
};

TEST_F(Siblings, DrawTheirOwnBlocks) { expect_own_blocks(fork); }

TEST_F(Siblings, OfTheBareCallDrawTheirOwnBlocks) {
  expect_own_blocks([] { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); });  // runs no handlers
}

}  // namespace
}  // namespace freestone_test
