// Every C name of the malloc family: results, errno, edge sizes, alignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kPtrdiffMax = PTRDIFF_MAX;
constexpr size_t kImpossibleSizes[] = {kPtrdiffMax, kPtrdiffMax + 1, SIZE_MAX - 4096, SIZE_MAX - 1, SIZE_MAX};
constexpr size_t kEdgeSizes[] = {
    0,     1,     7,     8,     15,    16,     17,     31,     32,      33,      63,      64,      65,       127,
    128,   129,   255,   256,   257,   1008,   1023,   1024,   1025,    4095,    4096,    4097,    16383,    16384,
    16385, 32767, 32768, 32769, 65536, 131072, 262144, 524289, 1048575, 1048576, 1048577, 4194305, 33554432, 33554433};

// Whether the subject exports a call; libfreestone exports every one.
template <auto call>
bool is_exported() {
  EXPECT_TRUE(api().*call != nullptr || !subject().is_freestone);
  return api().*call != nullptr;
}

bool aligned_to(const void* block, size_t alignment) { return reinterpret_cast<uintptr_t>(block) % alignment == 0; }

// One way to obtain `size` bytes; the table below covers every allocating name.
struct Allocator {
  const char* name;
  bool (*present)();
  void* (*allocate)(size_t size);
  size_t alignment;

  friend std::ostream& operator<<(std::ostream& out, const Allocator& it) { return out << it.name; }
};

const Allocator kAllocators[] = {
    {"malloc", is_exported<&Api::malloc>, [](size_t n) { return api().malloc(n); }, 1},
    {"calloc", is_exported<&Api::calloc>, [](size_t n) { return api().calloc(1, n); }, 1},
    {"calloc_transposed", is_exported<&Api::calloc>, [](size_t n) { return api().calloc(n, 1); }, 1},
    {"realloc_of_null", is_exported<&Api::realloc>, [](size_t n) { return api().realloc(nullptr, n); }, 1},
    {"reallocarray_of_null", is_exported<&Api::reallocarray>,
     [](size_t n) { return api().reallocarray(nullptr, n, 1); }, 1},
    {"aligned_alloc_64", is_exported<&Api::aligned_alloc>, [](size_t n) { return api().aligned_alloc(64, n); }, 64},
    {"memalign_256", is_exported<&Api::memalign>, [](size_t n) { return api().memalign(256, n); }, 256},
    {"posix_memalign_4096", is_exported<&Api::posix_memalign>,
     [](size_t n) {
       void* block = nullptr;
       const int error = api().posix_memalign(&block, 4096, n);
       if (error != 0) errno = error;
       return block;
     },
     4096},
    {"valloc", is_exported<&Api::valloc>, [](size_t n) { return api().valloc(n); }, 4096},
    {"pvalloc", is_exported<&Api::pvalloc>, [](size_t n) { return api().pvalloc(n); }, 4096},
};

class EveryAllocator : public testing::TestWithParam<Allocator> {
 protected:
  void SetUp() override {
    if (!GetParam().present()) GTEST_SKIP() << "not exported by " << subject().owner;
  }
};

TEST_P(EveryAllocator, GivesWritableDistinctAlignedBlocksOfEverySize) {
  std::vector<void*> blocks;
  std::set<void*> addresses;
  for (const size_t size : kEdgeSizes) {
    void* block = GetParam().allocate(size);
    ASSERT_NE(block, nullptr) << size;
    EXPECT_TRUE(aligned_to(block, GetParam().alignment)) << size;
    EXPECT_TRUE(aligned_to(block, size >= 16 ? 16 : 8)) << size;
    const size_t usable = api().malloc_usable_size(block);
    EXPECT_GE(usable, size);
    std::memset(block, static_cast<int>(blocks.size() + 1), usable);
    EXPECT_TRUE(addresses.insert(block).second) << "the same address twice for size " << size;
    blocks.push_back(block);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto* bytes = static_cast<unsigned char*>(blocks[i]);
    const size_t usable = api().malloc_usable_size(blocks[i]);
    for (size_t at = 0; at < usable; at += at < 64 || usable - at <= 64 ? 1 : 61)
      ASSERT_EQ(bytes[at], static_cast<unsigned char>(i + 1)) << kEdgeSizes[i] << " at " << at;
    api().free(blocks[i]);
  }
}

TEST_P(EveryAllocator, RefusesImpossibleSizesWithEnomem) {
  for (const size_t size : kImpossibleSizes) {
    errno = 0;
    EXPECT_EQ(GetParam().allocate(size), nullptr) << size;
    EXPECT_EQ(errno, ENOMEM) << size;
  }
}

TEST_P(EveryAllocator, GivesUniqueBlocksForSizeZero) {
  void* first = GetParam().allocate(0);
  void* second = GetParam().allocate(0);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_NE(first, second);
  api().free(first);
  api().free(second);
}

INSTANTIATE_TEST_SUITE_P(Names, EveryAllocator, testing::ValuesIn(kAllocators),
                         [](const auto& info) { return std::string(info.param.name); });

// Where the first byte is that is not zero; `size` when all are. All are zero when the first is and each equals its
// neighbour.
size_t first_dirty(const unsigned char* bytes, size_t size) {
  if (size == 0 || (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0)) return size;
  return static_cast<size_t>(std::find_if(bytes, bytes + size, [](unsigned char byte) { return byte != 0; }) - bytes);
}

TEST(Calloc, IsZeroInReusedDirtyMemory) {
  for (const size_t size : kEdgeSizes) {
    std::vector<void*> dirty;
    for (int i = 0; i < (size < 65536 ? 64 : 2); ++i) {
      void* block = api().malloc(size);
      ASSERT_NE(block, nullptr);
      std::memset(block, 0xA5, api().malloc_usable_size(block));
      dirty.push_back(block);
    }
    for (void* block : dirty) api().free(block);
    for (size_t i = 0; i < dirty.size(); ++i) {
      auto* bytes = static_cast<unsigned char*>(api().calloc(1, size));
      ASSERT_NE(bytes, nullptr);
      dirty[i] = bytes;
      ASSERT_EQ(first_dirty(bytes, size), size) << "a byte that is not zero";
    }
    for (void* block : dirty) api().free(block);
  }
}

TEST(Realloc, KeepsTheContentBetweenAnyTwoSizes) {
  for (const size_t from : kEdgeSizes) {
    if (from == 0 || from > 5000000) continue;
    for (const size_t to : kEdgeSizes) {
      if (to == 0 || to > 5000000) continue;
      auto* block = static_cast<unsigned char*>(api().malloc(from));
      for (size_t i = 0; i < from; i += i < 256 ? 1 : 127) block[i] = static_cast<unsigned char>(i * 31 + from);
      block[from - 1] = 0x77;
      auto* moved = static_cast<unsigned char*>(api().realloc(block, to));
      ASSERT_NE(moved, nullptr);
      EXPECT_GE(api().malloc_usable_size(moved), to);
      const size_t kept = from < to ? from : to;
      for (size_t i = 0; i < kept; i += i < 256 ? 1 : 127)
        ASSERT_EQ(moved[i], i == from - 1 ? 0x77 : static_cast<unsigned char>(i * 31 + from))
            << from << " to " << to << " at " << i;
      if (to >= from) {
        ASSERT_EQ(moved[from - 1], 0x77);
      }
      moved[to - 1] = 1;
      api().free(moved);
    }
  }
}

TEST(Realloc, ToZeroEitherFreesOrGivesABlock) {
  // Both are allowed; what may not happen is a leak or a block that is neither.
  for (int i = 0; i < 100000; ++i) {
    void* block = api().realloc(api().malloc(64), 0);
    if (block != nullptr) api().free(block);
  }
}

TEST(Realloc, KeepsTheContentOfAnAlignedBlock) {
  for (const size_t alignment : {size_t{32}, size_t{4096}, size_t{1} << 20}) {
    void* aligned = nullptr;
    ASSERT_EQ(api().posix_memalign(&aligned, alignment, 3000), 0);
    std::memset(aligned, 0x3C, 3000);
    for (const size_t size : {size_t{2000}, size_t{9000}, size_t{3} << 20, size_t{64}}) {
      aligned = api().realloc(aligned, size);
      ASSERT_NE(aligned, nullptr);
      for (size_t i = 0; i < 64; ++i) ASSERT_EQ(static_cast<char*>(aligned)[i], 0x3C);
    }
    api().free(aligned);
  }
}

TEST(UsableSize, StaysTheSameWhileTheBlockLivesAndOfNullIsZero) {
  std::vector<void*> others;
  void* block = api().malloc(1234);
  const size_t usable = api().malloc_usable_size(block);
  for (size_t i = 1; i < 1000; ++i) others.push_back(api().malloc(i * 3));
  for (void* other : others) api().free(other);
  EXPECT_EQ(api().malloc_usable_size(block), usable);
  EXPECT_EQ(api().malloc_usable_size(nullptr), 0u);
  api().free(block);
}

TEST(Free, AcceptsNull) {
  api().free(nullptr);
  if (api().cfree != nullptr) api().cfree(nullptr);
  if (api().free_sized != nullptr) api().free_sized(nullptr, 100);
  if (api().free_aligned_sized != nullptr) api().free_aligned_sized(nullptr, 64, 128);
}

TEST(Free, PreservesErrno) {
  for (const size_t size : kEdgeSizes) {
    std::vector<void*> blocks;
    for (int i = 0; i < (size < 65536 ? 3000 : 8); ++i) blocks.push_back(api().malloc(size));
    for (void* block : blocks) {
      if (block != nullptr && size > 0) *static_cast<char*>(block) = 1;
      errno = 4711;
      api().free(block);
      ASSERT_EQ(errno, 4711) << size;
    }
  }
}

TEST(FreeSized, FreesWhatMallocAndAlignedAllocGave) {
  if (!is_exported<&Api::free_sized>() || !is_exported<&Api::free_aligned_sized>()) GTEST_SKIP();
  for (const size_t size : kEdgeSizes)
    for (int i = 0; i < 40; ++i) {
      api().free_sized(api().malloc(size), size);
      api().free_sized(api().calloc(1, size), size);
      api().free_sized(api().realloc(api().malloc(7), size == 0 ? 1 : size), size == 0 ? 1 : size);
    }
  for (size_t alignment = 1; alignment <= 1 << 22; alignment *= 2)
    for (const size_t size : {size_t{0}, size_t{1}, alignment, alignment * 3, size_t{5000}})
      api().free_aligned_sized(api().aligned_alloc(alignment, size), alignment, size);
}

TEST(Alignment, IsHonouredUpToOneGibibyte) {
  for (size_t alignment = 16; alignment <= size_t{1} << 30; alignment *= 2) {
    for (const size_t size : {size_t{1}, size_t{16}, size_t{100}, size_t{4096}, size_t{70000}, size_t{3} << 20}) {
      void* block = nullptr;
      ASSERT_EQ(api().posix_memalign(&block, alignment, size), 0) << alignment << ' ' << size;
      EXPECT_TRUE(aligned_to(block, alignment)) << alignment << ' ' << size;
      static_cast<char*>(block)[0] = 1;
      static_cast<char*>(block)[size - 1] = 2;
      EXPECT_GE(api().malloc_usable_size(block), size);
      api().free(block);
      block = api().aligned_alloc(alignment, size);
      ASSERT_NE(block, nullptr);
      EXPECT_TRUE(aligned_to(block, alignment)) << alignment << ' ' << size;
      api().free(block);
    }
  }
}

TEST(Alignment, HoldsForManyLiveBlocksOfOneKind) {
  for (const size_t alignment :
       {size_t{32}, size_t{64}, size_t{128}, size_t{512}, size_t{2048}, size_t{4096}, size_t{16384}}) {
    std::vector<unsigned char*> blocks;
    for (size_t i = 0; i < 300; ++i) {
      auto* block = static_cast<unsigned char*>(api().memalign(alignment, i + 1));
      ASSERT_TRUE(aligned_to(block, alignment));
      std::memset(block, static_cast<int>(i), i + 1);
      blocks.push_back(block);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      ASSERT_EQ(blocks[i][0], static_cast<unsigned char>(i));
      ASSERT_EQ(blocks[i][i], static_cast<unsigned char>(i));
      api().free(blocks[i]);
    }
  }
}

TEST(PosixMemalign, RefusesByItsResultAndTouchesNothing) {
  const auto expect_refusal = [](size_t alignment, size_t size, int error) {
    void* const before = reinterpret_cast<void*>(0x1234);
    void* block = before;
    errno = 4711;
    EXPECT_EQ(api().posix_memalign(&block, alignment, size), error) << alignment << ", " << size;
    EXPECT_EQ(block, before) << alignment << ", " << size;
    EXPECT_TRUE(errno == 4711 || error != EINVAL) << "posix_memalign reports by its result, not by errno";
  };
  for (const size_t alignment : std::initializer_list<size_t>{0, 1, 2, 4, 12, 24, 100, 4097, SIZE_MAX})
    expect_refusal(alignment, 64, EINVAL);
  for (const size_t size : kImpossibleSizes) expect_refusal(64, size, ENOMEM);
  // An alignment that leaves no room for the size.
  expect_refusal(size_t{1} << 62, 1 << 20, ENOMEM);
  expect_refusal(size_t{1} << 62, kPtrdiffMax - 4096, ENOMEM);
}

TEST(AlignedAlloc, RefusesAnAlignmentThatIsNoPowerOfTwoOrLeavesNoRoom) {
  errno = 0;
  EXPECT_EQ(api().aligned_alloc(size_t{1} << 62, size_t{1} << 62), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  if (!subject().is_freestone) GTEST_SKIP() << "allocators differ";
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{24}, size_t{4097}, SIZE_MAX}) {
    errno = 0;
    EXPECT_EQ(api().aligned_alloc(alignment, 64), nullptr) << alignment;
    EXPECT_EQ(errno, EINVAL) << alignment;
  }
}

TEST(Memalign, WithABadAlignmentRefusesOrRoundsUp) {
  for (const size_t alignment : {size_t{3}, size_t{24}, size_t{100}, size_t{4097}}) {
    errno = 0;
    void* block = api().memalign(alignment, 64);
    if (block == nullptr) {
      EXPECT_EQ(errno, EINVAL);
      continue;
    }
    size_t power = 1;
    while (power < alignment) power *= 2;
    EXPECT_TRUE(aligned_to(block, power)) << alignment;
    api().free(block);
  }
}

TEST(Pvalloc, RoundsUpToWholePages) {
  if (api().pvalloc == nullptr) GTEST_SKIP();
  for (const size_t size : {size_t{1}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{10000}}) {
    void* block = api().pvalloc(size);
    ASSERT_TRUE(aligned_to(block, 4096));
    EXPECT_GE(api().malloc_usable_size(block), (size + 4095) / 4096 * 4096);
    api().free(block);
  }
}

}  // namespace
}  // namespace freestone_test
