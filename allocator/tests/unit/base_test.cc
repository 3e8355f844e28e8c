// Rooms 1 and 7: bit tricks and size classes, against definitions written out.
#include "base/bits.h"
#include "slab/size_class.h"
#include "unit/support.h"

namespace freestone {
namespace {

bool run_at(u64 word, unsigned start, unsigned length) {
  for (unsigned i = start; i < start + length; ++i)
    if (i >= 64 || (word & bit(i)) == 0) return false;
  return true;
}

TEST(base, RunsOfBitsAreThoseThatACountFinds) {
  Random random(test_seed("runs"));
  for (int round = 0; round < 3000; ++round) {
    // Few, half or most bits set.
    u64 word = random.next();
    if (round % 3 == 0) word &= random.next();
    if (round % 3 == 1) word |= random.next() | random.next();
    const auto length = static_cast<unsigned>(random.between(1, 64));
    unsigned longest = 0;
    u64 starts = 0;
    for (unsigned start = 0; start < 64; ++start) {
      if (run_at(word, start, length)) starts |= bit(start);
      while (run_at(word, start, longest + 1)) ++longest;
    }
    ASSERT_EQ(stretch_starts(word, length), starts) << std::hex << word << " length " << length;
    ASSERT_EQ(longest_stretch(word), longest) << std::hex << word;
  }
}

TEST(base, EverySizeHasTheSmallestClassThatHoldsIt) {
  for (usize bytes = 0; bytes <= kCachedBytesMax; ++bytes) {
    const SizeClass c = class_of(bytes);
    ASSERT_GE(class_bytes(c), bytes);
    if (c > 1) {
      ASSERT_LT(class_bytes(c - 1), bytes);
    }
    if (bytes > kFineBytesMax) {
      ASSERT_LE((class_bytes(c) - bytes) * 8, bytes) << "more than an eighth is wasted";
    }
  }
}

TEST(base, AlignedRequestsGetAClassOfThatAlignment) {
  for (usize alignment = 1; alignment <= kUnitBytes; alignment *= 2) {
    for (usize bytes = 1; bytes <= kSmallBytesMax; bytes += 61) {
      const SizeClass c = class_of_aligned(bytes, alignment);
      ASSERT_GE(class_bytes(c), bytes);
      if (is_slab_class(c)) {
        ASSERT_EQ(class_bytes(c) % alignment, 0u) << bytes << " at " << alignment;
      }
    }
  }
}

TEST(base, InteriorPointersHaveTheNumberOfTheirBlock) {
  Random random(test_seed("interior"));
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    const ClassInfo& info = class_info(c);
    for (int round = 0; round < 200; ++round) {
      const usize offset = random.below(usize{info.blocks} * info.bytes);
      ASSERT_EQ(block_number(info, offset), offset / info.bytes);
    }
  }
}

}  // namespace
}  // namespace freestone
