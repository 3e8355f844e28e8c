// Room 7: the size classes, against definitions written out.
#include "config/size_class.h"

#include "unit/support.h"

namespace freestone {
namespace {

TEST(config_size_class, EverySizeHasTheSmallestClassThatHoldsIt) {
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

TEST(config_size_class, AlignedRequestsGetAClassOfThatAlignment) {
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

TEST(config_size_class, InteriorPointersHaveTheNumberOfTheirBlock) {
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
