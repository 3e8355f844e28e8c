// Room 1: bit tricks and looks at memory, against definitions written out.
#include "base/bits.h"

#include <algorithm>
#include <string>

#include "base/chunks.h"
#include "base/digits.h"
#include "unit/support.h"

namespace freestone {
namespace {

bool stretch_at(u64 word, unsigned start, unsigned length) {
  for (unsigned i = start; i < start + length; ++i)
    if (i >= 64 || (word & bit(i)) == 0) return false;
  return true;
}

TEST(base, BitsAreCountedOneByOne) {
  Random random(test_seed("counted"));
  for (unsigned first = 0; first <= 64; ++first) {
    for (unsigned last = first; last <= 64; ++last) {
      const u64 stretch = low_mask(last) & ~low_mask(first);
      ASSERT_EQ(count_bits(stretch), last - first);
      u64 word = random.next() & stretch;
      unsigned bits = 0;
      for (unsigned i = 0; i < 64; ++i) bits += (word >> i) & 1;
      ASSERT_EQ(count_bits(word), bits) << std::hex << word;
    }
  }
}

TEST(base, StretchesOfBitsAreThoseThatACountFinds) {
  Random random(test_seed("stretches"));
  for (int round = 0; round < 3000; ++round) {
    // Few, half or most bits set.
    u64 word = random.next();
    if (round % 3 == 0) word &= random.next();
    if (round % 3 == 1) word |= random.next() | random.next();
    const auto length = static_cast<unsigned>(random.between(1, 64));
    unsigned longest = 0;
    u64 starts = 0;
    for (unsigned start = 0; start < 64; ++start) {
      if (stretch_at(word, start, length)) starts |= bit(start);
      while (stretch_at(word, start, longest + 1)) ++longest;
    }
    ASSERT_EQ(stretch_starts(word, length), starts) << std::hex << word << " length " << length;
    ASSERT_EQ(longest_stretch(word), longest) << std::hex << word;
  }
}

// Each length and start that a block can have, each byte of it set alone; what lies around is not read as its own, and
// not written.
void expect_looks_and_clears() {
  alignas(64) char memory[1536];
  for (usize start = 64; start < 128; start += kChunkBytes) {
    for (usize bytes = kChunkBytes; bytes <= 1024; bytes += kChunkBytes) {
      std::fill(std::begin(memory), std::end(memory), 'x');
      std::fill_n(memory + start, bytes, '\0');
      ASSERT_TRUE(is_clear(memory + start, bytes)) << bytes << " bytes at " << start;
      for (usize k = 0; k < bytes; ++k) {
        memory[start + k] = '\1';
        ASSERT_FALSE(is_clear(memory + start, bytes)) << "byte " << k << " of " << bytes << " at " << start;
        if (k % 64 == 17) clear(memory + start, bytes);
        memory[start + k] = '\0';
      }
      std::fill_n(memory + start, bytes, 'y');
      clear(memory + start, bytes);
      ASSERT_EQ(std::count(std::begin(memory), std::end(memory), '\0'), static_cast<std::ptrdiff_t>(bytes));
      ASSERT_TRUE(is_clear(memory + start, bytes));
    }
  }
}

TEST(base, DecimalNumbersAreReadUpToTheirEndAndNoFurther) {
  Random random(test_seed("decimals"));
  for (int round = 0; round < 1000; ++round) {
    const u64 number = random.next() >> random.between(0, 63);
    const std::string text = std::to_string(number) + "7";
    const char* at = text.data();
    ASSERT_EQ(take_decimal(at, text.data() + text.size() - 1), number);
    ASSERT_EQ(at, text.data() + text.size() - 1);
    const std::string line = std::to_string(number) + " kB";
    at = line.c_str();
    ASSERT_EQ(take_decimal(at), number);
    ASSERT_STREQ(at, " kB");
    ASSERT_EQ(take_decimal(at), 0U);
    ASSERT_STREQ(at, " kB");
  }
}

TEST(base, MemoryIsLookedAtAndClearedToTheByte) {
  expect_looks_and_clears();  // by vectors that every processor has, unless another test chose
  choose_instructions();
  expect_looks_and_clears();
}

}  // namespace
}  // namespace freestone
