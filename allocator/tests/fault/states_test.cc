// The last word of a block says whether it is live, free or changing: nobody can make it say so (STATE-1). malloc_trim
// checks the words of a large heap part by part.
#include <gtest/gtest.h>
#include <setjmp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

// Blocks without a gap before the last word, and with a gap.
constexpr size_t kSizes[] = {24, 20, 40, 120, 248, 504, 1016, 1000, 4088};
constexpr size_t kWordBytes = 8;

void* (*volatile copy)(void*, const void*, size_t) = std::memcpy;
void* (*volatile fill_bytes)(void*, int, size_t) = std::memset;

size_t block_bytes(size_t bytes) {
  size_t step = 16;
  while (step * 16 < bytes + kWordBytes) step *= 2;
  const size_t grain = bytes + kWordBytes <= 128 ? 16 : step;
  return (bytes + kWordBytes + grain - 1) / grain * grain;
}

struct Pair {
  char* low = nullptr;
  char* high = nullptr;  // right behind it
};

// Two live blocks side by side, among many others.
Pair pair_of(size_t bytes) {
  const size_t count = bytes < 1000 ? 3000 : 600;
  std::vector<char*> blocks(count);
  for (char*& block : blocks) {
    block = static_cast<char*>(api().malloc(bytes));
    std::memset(block, 0x5a, bytes);
  }
  for (size_t i = count / 8; i < count; ++i) {
    for (size_t k = count / 8; k < count; ++k)
      if (blocks[k] == blocks[i] + block_bytes(bytes)) return {blocks[i], blocks[k]};
  }
  return {};
}

char* end_of(char* block, size_t bytes) { return block + block_bytes(bytes) - kWordBytes; }
// By loads and stores: calls of memcpy are checked.
void write_word(char* at, uint64_t word) { *reinterpret_cast<volatile uint64_t*>(at) = word; }
uint64_t read_word(const char* at) { return *reinterpret_cast<const volatile uint64_t*>(at); }

// The last word of a block of this size that was just freed.
uint64_t word_of_freed(size_t bytes) {
  auto* const block = static_cast<char*>(api().malloc(bytes));
  api().free(block);
  return read_word(end_of(block, bytes));
}

const uint64_t kForged[] = {0, 1, 2, 3, 5, 0xff, 0x101, ~uint64_t{0}, uint64_t{1} << 63 | 1, uint64_t{1} << 63 | 3};
constexpr size_t kSlabBytesMax = 32768;
constexpr size_t kTooMany = 5000;  // for a copy into or from a block of kSizes

// What may look at the last word of a block.
struct Act {
  const char* name;
  void (*run)(const Pair&, size_t bytes);
};
char far[kSlabBytesMax];
const Act kFreeNext{"free of the next", [](const Pair& pair, size_t) { api().free(pair.high); }};
const Act kFreeOwn{"free of its own", [](const Pair& pair, size_t) { api().free(pair.low); }};
const Act kTrim{"trim", [](const Pair&, size_t) { api().malloc_trim(0); }};
const Act kExit{"exit", [](const Pair&, size_t) { std::exit(0); }};
const Act kCopyTo{"copy to", [](const Pair& pair, size_t bytes) { copy(pair.low, far, bytes); }};
const Act kCopyFrom{"copy from", [](const Pair& pair, size_t bytes) { copy(far, pair.low, bytes); }};
const Act kFill{"fill", [](const Pair& pair, size_t bytes) { fill_bytes(pair.low, 0, bytes); }};
const Act kUsableSize{"usable size", [](const Pair& pair, size_t) { api().malloc_usable_size(pair.low); }};
const Act kResize{"realloc", [](const Pair& pair, size_t bytes) { api().realloc(pair.low, bytes); }};

class States : public HardenedTest {};

// What is done to a pair in a child, with an act at its end, ends the child by SIGABRT.
void expect_seen(size_t bytes, const Act& act, const std::function<void(const Pair&)>& damage, uint64_t word = 0) {
  const auto be_damaged = [&] {
    const Pair pair = pair_of(bytes);
    if (pair.low == nullptr) return 9;
    damage(pair);
    act.run(pair, kTooMany);
    return 0;
  };
  EXPECT_TRUE(dies_by(SIGABRT, be_damaged)) << bytes << " bytes, word " << word << ", " << act.name;
}

// An overflow over the last word, whose low neighbour's content is `fill`, that goes on into the next block.
void expect_overflow_seen(size_t bytes, uint64_t word, char fill, const Act& act) {
  const auto overflow = [&](const Pair& pair) {
    for (char* at = pair.low; at != end_of(pair.low, bytes); ++at) *static_cast<volatile char*>(at) = fill;
    write_word(end_of(pair.low, bytes), word);
    write_word(pair.high, 0x4141414141414141);
  };
  expect_seen(bytes, act, overflow, word);
}

TEST_F(States, AForgedWordIsSeenAtEveryMoment) {
  size_t number = 0;
  for (const size_t bytes : kSizes) {
    for (const Act* act : {&kFreeNext, &kFreeOwn, &kTrim, &kExit, &kCopyTo, &kCopyFrom}) {
      for (const char fill : {'\0', 'x'}) {
        for (const uint64_t word : {kForged[number++ % std::size(kForged)], uint64_t{0}, uint64_t{1}})
          expect_overflow_seen(bytes, word, fill, *act);
      }
    }
  }
}

// A child that other threads were cut off from still knows which blocks may end in zero.
TEST_F(States, ZerosOverAnEndAreSeenInAChildOfAThreadedProgram) {
  std::atomic<bool> done = false;
  const auto work = [&] {
    while (!done)
      for (void* volatile block : {api().malloc(24), api().malloc(424), api().malloc(824)}) api().free(block);
  };
  std::thread others[2] = {std::thread{work}, std::thread{work}};
  const Pair pair = pair_of(24);
  for (int round = 0; round < 20; ++round) {
    EXPECT_TRUE(dies_by(SIGABRT, [&] {
      for (char* at = pair.low; at != pair.high + kWordBytes; ++at) *static_cast<volatile char*>(at) = 0;
      api().free(pair.high);
    }));
  }
  done = true;
  for (std::thread& other : others) other.join();
}

// If a word followed from the address by sums, neighbours that lie equally far apart would differ by the same: nearly
// all steps repeat. With two products 0.3 of 8,000 steps do in the mean, and 164 with the worst of 80,000 keys.
TEST_F(States, WordsThatWereReadForetellNoOther) {
  EXPECT_TRUE(ends_well([] {
    std::vector<char*> blocks(4000);
    for (char*& block : blocks) block = static_cast<char*>(api().malloc(24));
    std::sort(blocks.begin(), blocks.end());
    std::set<uint64_t> steps;  // sums, and masks of bit 63, since a sum without carries is its mask
    size_t pairs = 0;
    for (size_t i = 1; i < blocks.size(); ++i) {
      if (blocks[i] - blocks[i - 1] != 32) continue;
      const uint64_t low = read_word(end_of(blocks[i - 1], 24)) >> 31, high = read_word(end_of(blocks[i], 24)) >> 31;
      steps.insert({(high - low) & ((uint64_t{1} << 33) - 1), (low ^ high) | uint64_t{1} << 63});
      ++pairs;
    }
    return pairs < 1000 ? 9 : 2 * pairs - steps.size() > pairs / 10 ? 1 : 0;
  }));
}

TEST_F(States, AnotherBlocksFreeWordIsSeen) {
  for (const size_t bytes : kSizes) {
    for (const uint64_t flipped : {uint64_t{0}, ~uint64_t{0}}) {  // as free, as changing
      const uint64_t word = word_of_freed(bytes) ^ flipped;
      expect_overflow_seen(bytes, word, '\0', kFreeNext);
      expect_overflow_seen(bytes, word, 'x', kTrim);
    }
  }
}

TEST_F(States, AWriteAfterFreeMayEndInAnyWord) {
  for (const size_t bytes : kSizes) {
    for (const uint64_t word : kForged) {
      const auto write_after_free = [&](const Pair& pair) {
        api().free(pair.low);
        for (size_t at = 0; at < bytes; at += 4) *reinterpret_cast<volatile uint32_t*>(pair.low + at) = 0x41414141;
        write_word(end_of(pair.low, bytes), word);
      };
      for (const Act* act : {&kTrim, &kExit}) expect_seen(bytes, *act, write_after_free, word);
    }
  }
}

// memcpy believes no length that three bytes of overflow made larger.
TEST_F(States, AForgedLengthIsNotBelieved) {
  for (const size_t bytes : kSizes) {
    const auto lengthen = [&](const Pair& pair) {
      char* const word = end_of(pair.low, bytes);
      write_word(word, (read_word(word) & ~uint64_t{0xffffff}) | 0xffff00);
    };
    for (const Act* act : {&kCopyTo, &kCopyFrom}) expect_seen(bytes, *act, lengthen);
  }
}

// A single wrong byte in the last word of a block, for each size class, state, byte and value, at each act. One
// process serves a class: the handler of SIGABRT leads back.
enum class State { used, freed, changing };
constexpr State kStates[] = {State::used, State::freed, State::changing};
const Act* const kActs[] = {&kCopyFrom, &kCopyTo,   &kFill, &kUsableSize, &kResize,
                            &kFreeOwn,  &kFreeNext, &kTrim, &kExit};
sigjmp_buf before_check;

bool ends_by_abort() {
  const int status = fork_and([]() -> int {
    std::signal(SIGABRT, SIG_DFL);
    std::exit(0);
  });
  return status == 1000 + SIGABRT;
}

bool is_caught(const Act& act, const Pair& pair, size_t bytes) {
  if (&act == &kExit) return ends_by_abort();
  if (sigsetjmp(before_check, 0) != 0) return true;
  act.run(pair, bytes);
  return false;
}

// Every value meets every act at the lowest byte; elsewhere each does in some of the classes. The checks of the whole
// heap are dear.
bool is_asked(size_t act, size_t number, size_t byte, unsigned value) {
  if (kActs[act] == &kExit) return byte == 0 && (value == 3 || value == number * 4 % 256);
  if (kActs[act] == &kTrim) return (byte == 0 && value < 4) || (value + number + byte) % 16 == 0;
  return byte == 0 || (value + number + act) % 4 == 0;
}

// Pairs of neighbours, none in two pairs.
std::vector<Pair> pairs_of(size_t bytes) {
  std::vector<char*> blocks(bytes < 1000 ? 1000 : 200);  // the first come from a queue, in random order
  for (char*& block : blocks) block = static_cast<char*>(api().malloc(bytes));
  std::sort(blocks.begin(), blocks.end());
  std::vector<Pair> pairs;
  for (size_t i = 0; i + 1 < blocks.size(); ++i)
    if (blocks[i + 1] == blocks[i] + block_bytes(bytes)) pairs.push_back({blocks[i], blocks[i + 1]}), ++i;
  pairs.resize(std::min<size_t>(pairs.size(), 32));
  return pairs;
}

int check_single_bytes(size_t bytes, size_t number) {
  const int errors = dup(STDERR_FILENO);
  std::freopen("/dev/null", "w", stderr);
  struct sigaction action = {};
  action.sa_handler = [](int) { siglongjmp(before_check, 1); };
  action.sa_flags = SA_NODEFER;
  sigaction(SIGABRT, &action, nullptr);
  static const std::vector<Pair> pairs = pairs_of(bytes);  // static: a free could flush blocks that look damaged
  if (pairs.size() < 2 * std::size(kStates)) return dprintf(errors, "%zu pairs", pairs.size()), 9;
  const auto state_of = [](size_t pair) { return kStates[pair % std::size(kStates)]; };
  for (size_t i = 0; i < pairs.size(); ++i)
    if (state_of(i) != State::used) api().free(pairs[i].low);
  for (size_t i = 0; i < pairs.size(); ++i) {
    char* const end = end_of(pairs[i].low, bytes);
    if (state_of(i) == State::changing) write_word(end, ~read_word(end));  // slab/state_word.h
  }
  const auto fails = [&](const char* what, State state, const Act& act, size_t byte, unsigned value) {
    dprintf(errors, "%s: %zu bytes, state %d, %s, byte %zu, value %u\n", what, bytes, static_cast<int>(state), act.name,
            byte, value);
    return 1;
  };
  if (ends_by_abort()) return fails("a false alarm at exit", State::used, kExit, 0, 0);
  for (size_t byte = 0; byte < kWordBytes; ++byte) {
    for (unsigned value = 0; value < 256; ++value) {
      for (size_t i = 0; i < std::size(kStates); ++i) {
        const State state = kStates[i];
        const Pair& pair = pairs[value % (pairs.size() / std::size(kStates)) * std::size(kStates) + i];
        auto* const wrong = reinterpret_cast<volatile unsigned char*>(end_of(pair.low, bytes) + byte);
        const unsigned char right = *wrong;
        if (right == value) continue;
        for (size_t act = 0; act < std::size(kActs); ++act) {
          if (!is_asked(act, number, byte, value)) continue;
          *wrong = static_cast<unsigned char>(value);
          if (!is_caught(*kActs[act], pair, bytes)) return fails("not seen", state, *kActs[act], byte, value);
          *wrong = right;
          // A block that seems to change may be so.
          if (state == State::changing && value == 0 && is_caught(kCopyFrom, pair, bytes))
            return fails("a false alarm", state, *kActs[act], byte, value);
        }
      }
    }
  }
  return 0;
}

TEST_F(States, AnyWrongByteOfAnyLastWordIsSeen) {
  size_t number = 0;
  for (size_t bytes = 24; bytes + kWordBytes <= kSlabBytesMax; bytes = block_bytes(bytes + 1) - kWordBytes) {
    EXPECT_TRUE(ends_well([&] { return check_single_bytes(bytes, number); })) << bytes << " bytes";
    ++number;
  }
  EXPECT_EQ(number, 71U);
}

// The twin: zeros and words in a block's own bytes, frees of both neighbours, and a look at all.
TEST_F(States, WhatTheProgramMayWriteIsNoDamage) {
  for (const size_t bytes : kSizes) {
    for (const uint64_t word : kForged) {
      const auto use = [&] {
        const Pair pair = pair_of(bytes);
        if (pair.low == nullptr) return 9;
        std::memset(pair.low, 0, bytes);
        for (size_t at = 0; at + 8 <= bytes; at += 8) write_word(pair.low + at, word);
        api().free(pair.high);
        api().malloc_trim(0);
        api().free(pair.low);
        api().malloc_trim(0);
        std::exit(0);
      };
      EXPECT_TRUE(ends_well(use)) << bytes << " bytes, word " << word;
    }
  }
}

class Trim : public HardenedTest {};

// In a heap of live blocks one is overflowed: the lowest, the middle or the highest (`place` 0 to 2).
bool trims_see(size_t block_bytes, size_t heap_bytes, size_t place, int trims) {
  const ChildEnd end = run_in_child([&] {
    std::vector<char*> blocks(heap_bytes / block_bytes);
    for (char*& block : blocks) block = static_cast<char*>(api().malloc(block_bytes));
    std::sort(blocks.begin(), blocks.end());
    static_cast<volatile char*>(blocks[place * (blocks.size() - 1) / 2])[block_bytes] = 0x55;
    for (int i = 0; i < trims; ++i) api().malloc_trim(0);
    return 0;
  });
  EXPECT_TRUE(end.signal == SIGABRT || end.exited_with(0)) << end.describe();
  return end.signal == SIGABRT;
}

// So its time does not grow with the heap; with each call it checks the next part, so nothing stays unseen.
TEST_F(Trim, ChecksALargeHeapInParts) {
  constexpr size_t kMiB = size_t{1} << 20;
  constexpr size_t kHeaps[][2] = {{56, 64 * kMiB}, {4088, 64 * kMiB}, {40000, 512 * kMiB}};  // the last: no slab blocks
  for (const auto& [block_bytes, heap_bytes] : kHeaps) {
    int seen_at_once = 0;
    for (const size_t place : {0, 1, 2}) {
      if (trims_see(block_bytes, heap_bytes, place, 1)) ++seen_at_once;
      EXPECT_TRUE(trims_see(block_bytes, heap_bytes, place, 20)) << "blocks of " << block_bytes << ", place " << place;
    }
    EXPECT_LE(seen_at_once, 1) << "blocks of " << block_bytes << " bytes: one call checked all";
  }
}

}  // namespace
}  // namespace freestone_test
