// Random workloads at random limits: the limit is never exceeded, nothing aborts, and content survives.
//
// FREESTONE_TEST_SCALE multiplies the number of workloads: 40 gives 10,000. Each prints its seed when it fails.
#include <thread>

#include "api/support.h"

namespace freestone_test {
namespace {

struct Block {
  unsigned char* address = nullptr;
  size_t bytes = 0;
};

void mark(const Block& b) {
  memset(b.address, static_cast<int>(b.bytes), std::min<size_t>(b.bytes, 64));
  b.address[b.bytes - 1] = static_cast<unsigned char>(b.bytes);
}
bool is_marked(const Block& b) {
  return b.address[0] == static_cast<unsigned char>(b.bytes) &&
         b.address[b.bytes - 1] == static_cast<unsigned char>(b.bytes);
}

// Allocates, frees and resizes until `operations` are done. Returns the number of refusals.
unsigned work(uint64_t seed, unsigned operations, unsigned largest) {
  Random random(seed);
  Block blocks[256];
  unsigned refused = 0;
  for (unsigned i = 0; i < operations; ++i) {
    Block& b = blocks[random.below(256)];
    const size_t bytes = random.size(largest);
    if (b.address != nullptr) {
      EXPECT_TRUE(is_marked(b)) << "seed " << seed;
      if (random.below(3) == 0) {
        auto* moved = static_cast<unsigned char*>(realloc(b.address, bytes));
        if (moved == nullptr) {
          ++refused;
          continue;
        }
        b = {moved, bytes};
        mark(b);
      } else {
        free(b.address);
        b = {};
      }
      continue;
    }
    switch (random.below(4)) {
      case 0: b.address = static_cast<unsigned char*>(calloc(1, bytes)); break;
      case 1: b.address = static_cast<unsigned char*>(aligned_alloc(size_t{16} << random.below(9), bytes)); break;
      default: b.address = static_cast<unsigned char*>(malloc(bytes));
    }
    if (b.address == nullptr) {
      ++refused;
      continue;
    }
    b.bytes = bytes;
    mark(b);
  }
  for (Block& b : blocks) free(b.address);
  return refused;
}

TEST(RandomWorkloads, NeverExceedTheHardLimitAndNeverAbort) {
  const char* scale = getenv("FREESTONE_TEST_SCALE");
  const unsigned workloads = 250 * static_cast<unsigned>(scale != nullptr ? atoi(scale) : 1);
  uint64_t refused = 0;
  for (unsigned seed = 1; seed <= workloads && !testing::Test::HasFailure(); ++seed) {
    Random random(seed);
    malloc_trim(0);
    const uint64_t base = stats().charged_bytes;
    const uint64_t limit = base + kMiB + random.below(32 * kMiB);
    ASSERT_EQ(set_limits(random.below(2) == 0 ? base + random.below(limit - base) : 0, limit), 0);
    const unsigned largest = 10 + static_cast<unsigned>(random.below(14));
    if (random.below(3) == 0) {
      std::thread other([&] { refused += work(seed * 2 + 1, 1500, largest); });
      const unsigned own = work(seed * 2, 1500, largest);
      other.join();
      refused += own;
    } else {
      refused += work(seed * 2, 3000, largest);
    }
    const freestone_stats s = stats();
    EXPECT_LE(s.charged_bytes, limit) << "seed " << seed;
    set_limits(0, 0);
    const char* damage = nullptr;
    EXPECT_EQ(freestone_validate(&damage), 0) << damage << ", seed " << seed;
  }
  EXPECT_GT(refused, 0U) << "no workload met its limit: the test would pass without limits";
  printf("%u workloads, %llu refusals\n", workloads, static_cast<unsigned long long>(refused));
}

// peak_bytes sees every instant: it is the highest the account ever was.
TEST(RandomWorkloads, ThePeakStaysBelowTheLimitToo) {
  malloc_trim(0);
  const uint64_t limit = stats().peak_bytes + 4 * kMiB;
  ASSERT_EQ(set_limits(0, limit), 0);
  EXPECT_GT(work(99, 20000, 23), 0U);
  EXPECT_LE(stats().peak_bytes, limit);
  set_limits(0, 0);
}

}  // namespace
}  // namespace freestone_test
