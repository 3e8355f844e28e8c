// Sizes near the largest that exist: every allocating function refuses what nobody can have, whatever it adds or
// multiplies on the way, and a refused realloc leaves the block as it was.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <set>
#include <vector>

#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kMost = PTRDIFF_MAX;

// A call of freestone.h, null in another subject.
template <typename Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

// Above `kMost`, or so near below it that neither an address space nor a rounding has room.
const std::vector<size_t>& sizes() {
  static const std::vector<size_t> list = [] {
    std::set<size_t> all;
    const size_t middles[] = {SIZE_MAX,         SIZE_MAX / 2,  SIZE_MAX / 2 + SIZE_MAX / 4,
                              SIZE_MAX / 9 * 8, kMost / 9 * 8, size_t{1} << 62,
                              size_t{1} << 50};
    const size_t steps[] = {1, 8, 16, 4096, 16384, 65536, size_t{1} << 20, size_t{2} << 20};
    for (const size_t middle : middles) {
      for (size_t k = 0; k <= 40; ++k) {
        for (const size_t step : steps) {
          all.insert(middle - k * step);
          if (middle != SIZE_MAX && middle + k * step > middle - 1) all.insert(middle + k * step);
        }
      }
    }
    return std::vector<size_t>(all.lower_bound(size_t{1} << 49), all.end());
  }();
  return list;
}

void expect_refused(void* block, const char* call, size_t size) {
  EXPECT_EQ(block, nullptr) << call << " of " << size;
  EXPECT_EQ(errno, ENOMEM) << call << " of " << size;
  errno = 0;
}

TEST(NearLimit, PlainCallsAndProductsRefuse) {
  errno = 0;
  for (const size_t size : sizes()) {
    expect_refused(api().malloc(size), "malloc", size);
    expect_refused(api().valloc(size), "valloc", size);
    expect_refused(api().pvalloc(size), "pvalloc", size);
    expect_refused(api().realloc(nullptr, size), "realloc(null, n)", size);
    expect_refused(api().reallocarray(nullptr, 1, size), "reallocarray(null, 1, n)", size);
    for (const size_t factor : {size_t{1}, size_t{2}, size_t{3}, size_t{16}, size_t{4096}, size_t{1} << 32, SIZE_MAX}) {
      expect_refused(api().calloc(size, factor), "calloc(n, m)", size);
      expect_refused(api().calloc(factor, size), "calloc(m, n)", size);
      expect_refused(api().reallocarray(nullptr, size, factor), "reallocarray(null, n, m)", size);
      if (factor > 1) expect_refused(api().calloc(size / factor + 1, factor), "calloc(n / m + 1, m)", size);
    }
  }
}

TEST(NearLimit, AlignedFormsRefuse) {
  const auto expect_aligned_alloc_refused = [](size_t alignment, size_t size) {
    errno = 0;
    EXPECT_EQ(api().aligned_alloc(alignment, size), nullptr) << alignment << ", " << size;
    EXPECT_TRUE(errno == ENOMEM || errno == EINVAL) << alignment << ", " << size;
  };
  for (unsigned shift = 3; shift < 64; ++shift) {
    const size_t alignment = size_t{1} << shift;
    // An alignment that nothing can have, for sizes that everybody has.
    for (const size_t size : {0, 1, 100, 5000, 50000, 500000, 64 << 20})
      if (shift >= 48) expect_aligned_alloc_refused(alignment, size);
    for (const size_t size : sizes()) {
      expect_aligned_alloc_refused(alignment, size);
      EXPECT_EQ(api().memalign(alignment - 1, size), nullptr) << alignment - 1 << ", " << size;
      EXPECT_EQ(api().memalign(alignment, size), nullptr) << alignment << ", " << size;
      void* block = &block;
      const int error = api().posix_memalign(&block, alignment, size);
      EXPECT_TRUE(error == ENOMEM || error == EINVAL) << alignment << ", " << size;
    }
  }
}

TEST(NearLimit, OperatorsRefuse) {
  if (!subject().serves_operators) GTEST_SKIP() << "the subject has no operator new";
  for (const size_t size : sizes()) {
    EXPECT_EQ(::operator new(size, std::nothrow), nullptr) << size;
    EXPECT_EQ(::operator new[](size, std::nothrow), nullptr) << size;
    EXPECT_EQ(::operator new(size, std::align_val_t{64}, std::nothrow), nullptr) << size;
    EXPECT_EQ(::operator new[](size, std::align_val_t{4096}, std::nothrow), nullptr) << size;
    EXPECT_THROW(static_cast<void>(::operator new(size)), std::bad_alloc) << size;
    EXPECT_THROW(static_cast<void>(::operator new[](size, std::align_val_t{1 << 20})), std::bad_alloc) << size;
  }
}

// Every kind of block: of a slab, a run of a class, a run, an own mapping, aligned ones; and under options sampled and
// guarded ones.
TEST(NearLimit, RefusedReallocKeepsTheBlock) {
  const size_t blocks[] = {1,      24,     1000,    1024,          5000,    32768,    40000,
                           131072, 200000, 1 << 20, (1 << 20) + 1, 4 << 20, 33 << 20, 40 << 20};
  for (const size_t bytes : blocks) {
    for (const size_t alignment : {size_t{16}, size_t{4096}, size_t{1} << 20}) {
      auto* block =
          static_cast<unsigned char*>(alignment == 16 ? api().malloc(bytes) : api().aligned_alloc(alignment, bytes));
      ASSERT_NE(block, nullptr);
      std::memset(block, 0xA5, bytes);
      const size_t usable = api().malloc_usable_size(block);
      errno = 0;
      for (const size_t size : sizes()) {
        expect_refused(api().realloc(block, size), "realloc", size);
        expect_refused(api().reallocarray(block, size, 1), "reallocarray(n, 1)", size);
        expect_refused(api().reallocarray(block, size, 3), "reallocarray(n, 3)", size);
      }
      EXPECT_EQ(api().malloc_usable_size(block), usable);
      size_t kept = 0;
      while (kept < bytes && block[kept] == 0xA5) ++kept;
      EXPECT_EQ(kept, bytes) << "block of " << bytes;
      api().free(block);
    }
  }
}

TEST(NearLimit, HeapObjectsRefuse) {
  auto* create = find<void*(size_t)>("freestone_heap_create");
  if (create == nullptr) GTEST_SKIP() << "a promise of libfreestone";
  auto* destroy = find<size_t(void*)>("freestone_heap_destroy");
  auto* allocate = find<void*(void*, size_t)>("freestone_heap_allocate");
  auto* zeroed = find<void*(void*, size_t)>("freestone_heap_allocate_zeroed");
  auto* aligned = find<void*(void*, size_t, size_t)>("freestone_heap_allocate_aligned");
  auto* reallocate = find<void*(void*, void*, size_t)>("freestone_heap_reallocate");
  for (const size_t limit : {size_t{0}, size_t{64} << 20, SIZE_MAX}) {
    void* heap = create(limit);
    ASSERT_NE(heap, nullptr);
    for (const size_t bytes : {size_t{100}, size_t{100000}}) {
      auto* block = static_cast<unsigned char*>(allocate(heap, bytes));
      ASSERT_NE(block, nullptr);
      std::memset(block, 0x5A, bytes);
      for (const size_t size : sizes()) {
        EXPECT_EQ(allocate(heap, size), nullptr) << size;
        EXPECT_EQ(zeroed(heap, size), nullptr) << size;
        for (const size_t alignment : {size_t{16}, size_t{4096}, size_t{1} << 20, size_t{1} << 62})
          EXPECT_EQ(aligned(heap, size, alignment), nullptr) << size;
        EXPECT_EQ(reallocate(heap, block, size), nullptr) << size;
      }
      EXPECT_EQ(block[0], 0x5A);
      EXPECT_EQ(block[bytes - 1], 0x5A);
    }
    destroy(heap);
  }
}

TEST(NearLimit, GoodSizeIsNeverLess) {
  auto* good_size = find<size_t(size_t)>("freestone_good_size");
  if (good_size == nullptr) GTEST_SKIP() << "a promise of libfreestone";
  for (const size_t size : sizes()) EXPECT_GE(good_size(size), size);
}

}  // namespace
}  // namespace freestone_test
