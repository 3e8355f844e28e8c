// Room 17: validation finds each kind of damage.
#include <gtest/gtest.h>

#include "freestone/freestone.h"
#include "front/heap.h"
#include "heaps/heap_object.h"
#include "region/account.h"

namespace freestone {
namespace {

std::string damage() {
  const char* found = nullptr;
  const int error = freestone_validate(&found);
  EXPECT_EQ(error != 0, found != nullptr);
  return found != nullptr ? found : "";
}

TEST(report, DamageIsNotSeenInAHeapInOrder) { EXPECT_EQ(damage(), ""); }

TEST(report, DamageInTheAccountIsFound) {
  account.charged.add_relaxed(1);
  EXPECT_NE(damage().find("account"), std::string::npos);
  account.charged.add_relaxed(~u64{0});
  EXPECT_EQ(damage(), "");
}

TEST(report, DamageInASlabsSummaryIsFound) {
  const SizeClass c = class_of(3000);
  SlabUser user;
  void* block;
  ASSERT_EQ(take_blocks(c, user, 1, 1, &block, BlockPlace::slab), 1u);
  Record& record = record_of(slab_start(class_info(c), unit_of(block)));
  const u64 summary = record.summary.load_relaxed();
  record.summary.or_seq(bit(16));  // busy, though nobody holds the slab
  EXPECT_NE(damage().find("slab"), std::string::npos);
  record.summary.store_seq(summary);
  EXPECT_EQ(damage(), "");
  return_blocks(c, user, &block, 1);
}

TEST(report, DamageInTheSpansBitmapsIsFound) {
  deallocate(allocate(300000));
  ASSERT_EQ(damage(), "");  // also makes what the first validation takes from the spans
  Super& super = super_at(region.heap_start / kGroupUnits / kSuperGroups);
  u32& longest = super.free_in_group[region.heap_start / kGroupUnits % kSuperGroups].longest;
  longest ^= 1;
  EXPECT_NE(damage().find("spans"), std::string::npos);
  longest ^= 1;
  EXPECT_EQ(damage(), "");
}

TEST(report, DamageInAThreadCacheIsFound) {
  Cache& cache = *ensure_cache();
  cache.capacity_bytes += 16;
  EXPECT_NE(damage().find("cache"), std::string::npos);
  cache.capacity_bytes -= 16;
  EXPECT_EQ(damage(), "");
}

TEST(report, DamageInAHeapObjectIsFound) {
  freestone_heap* heap = freestone_heap_create(0);
  void* block = freestone_heap_allocate(heap, 100);
  Record& record = record_of(unit_of(block));
  ++record.heap.live;
  EXPECT_NE(damage().find("heap object"), std::string::npos);
  EXPECT_EQ(freestone_heap_validate(heap), EFAULT);
  --record.heap.live;
  EXPECT_EQ(freestone_heap_validate(heap), 0);
  freestone_heap_destroy(heap);
}

}  // namespace
}  // namespace freestone
