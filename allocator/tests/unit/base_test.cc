// Room 1: bit tricks, against definitions written out.
#include "base/bits.h"
#include "unit/support.h"

namespace freestone {
namespace {

bool stretch_at(u64 word, unsigned start, unsigned length) {
  for (unsigned i = start; i < start + length; ++i)
    if (i >= 64 || (word & bit(i)) == 0) return false;
  return true;
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

}  // namespace
}  // namespace freestone
