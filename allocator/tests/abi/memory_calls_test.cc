// What the hardened library promises of blocks of every size. libc's memory functions do not leave their block and
// touch no freed one, and a call that names a wrong size, alignment or family ends the process. No right call does.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>
#include <vector>

#include "support/child.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kUnit = 16384;
using Copy = void* (*)(void*, const void*, size_t);

// Null unless the subject defines memcpy itself.
Copy checked_copy() {
  Dl_info of_memcpy{};
  Dl_info of_malloc{};
  void* const found = dlsym(RTLD_DEFAULT, "memcpy");
  if (!subject().is_hardened || dladdr(found, &of_memcpy) == 0) return nullptr;
  if (dladdr(reinterpret_cast<void*>(api().malloc), &of_malloc) == 0) return nullptr;
  return of_memcpy.dli_fbase == of_malloc.dli_fbase ? reinterpret_cast<Copy>(found) : nullptr;
}

class MemoryCalls : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (checked_copy() == nullptr) GTEST_SKIP() << "the subject checks no memory functions";
  }
};

TEST_P(MemoryCalls, FromTheMiddleOfABlockEndInIt) {
  const size_t bytes = GetParam();
  for (const size_t beyond : {0, 1}) {
    for (const size_t from : {bytes / 2, bytes - 1, bytes}) {
      const auto copy = [&] {
        auto* block = static_cast<char*>(api().malloc(bytes));
        auto* source = static_cast<char*>(api().calloc(1, bytes + 1));
        checked_copy()(block + from, source, bytes - from + beyond);
      };
      EXPECT_TRUE(beyond == 0 ? ends_well(copy) : dies_by(SIGABRT, "heap overflow", copy)) << from;
    }
  }
}

TEST_P(MemoryCalls, TouchNoFreedBlock) {
  const size_t bytes = GetParam();
  for (const bool writes : {true, false}) {
    for (const size_t inside : {size_t{0}, bytes / 2}) {
      const auto copy = [&] {
        auto* block = static_cast<char*>(api().malloc(bytes));
        char byte = 1;
        api().free(block);
        writes ? checked_copy()(block + inside, &byte, 1) : checked_copy()(&byte, block + inside, 1);
      };
      const char* const said = writes ? "write after free" : "read after free";
      EXPECT_TRUE(dies_by(SIGABRT, said, copy)) << inside;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, MemoryCalls, testing::Values(100, 5000, 40000, 200000, 1 << 20, 5 << 20, 31 << 20),
                         testing::PrintToStringParamName());

// Sizes above the slabs, where the start of a block has a record and its inside has none.
TEST(UsableSize, IsNotToldInsideABlock) {
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of the hardened build";
  for (const size_t bytes : {100, 5000, 40000, 100000, 200000, 5 << 20}) {
    EXPECT_TRUE(dies_by(SIGABRT, "invalid malloc_usable_size", [&] {
      api().malloc_usable_size(static_cast<char*>(api().malloc(bytes)) + 16);
    })) << bytes;
  }
}

// More than fill two slabs.
std::vector<char*> many_blocks(size_t bytes) {
  std::vector<char*> blocks(200 + 3 * kUnit / bytes);
  for (char*& block : blocks) block = static_cast<char*>(api().malloc(bytes));
  return blocks;
}

// GLib copies what a class adds to its parent's, mostly nothing, from an aligned address behind the parent's end.
TEST(MemoryCallsOfNoBytes, TakeEveryAddressBehindABlock) {
  // Not the compiler's own, which leave out a call for no bytes.
  const auto copy = reinterpret_cast<Copy>(dlsym(RTLD_DEFAULT, "memcpy"));
  const auto move = reinterpret_cast<Copy>(dlsym(RTLD_DEFAULT, "memmove"));
  const auto set = reinterpret_cast<void* (*)(void*, int, size_t)>(dlsym(RTLD_DEFAULT, "memset"));
  char outside = 0;
  for (size_t bytes = 8; bytes < kUnit; bytes += std::max<size_t>(8, bytes / 16 / 8 * 8)) {
    const std::vector<char*> blocks = many_blocks(bytes);
    for (char* block : blocks) {
      for (size_t beyond = 0; beyond < 2 * bytes; beyond += std::max<size_t>(8, bytes / 64)) {
        char* const at = block + bytes + beyond;
        ASSERT_EQ(copy(at, &outside, 0), at);
        ASSERT_EQ(copy(&outside, at, 0), &outside);
        ASSERT_EQ(move(at, at, 0), at);
        ASSERT_EQ(set(at, 1, 0), at);
      }
    }
    for (char* block : blocks) api().free(block);
  }
}

// 113 blocks of 144 bytes leave 112 bytes of their unit.
TEST(MemoryCallsBehindASlab, SeeAnAccessToWhatIsLeftOfIt) {
  if (checked_copy() == nullptr) GTEST_SKIP() << "the subject checks no memory functions";
  constexpr size_t kStride = 144, kLast = kUnit / kStride * kStride;
  for (const bool reads : {false, true}) {
    EXPECT_TRUE(dies_by(SIGABRT, reads ? "read past the end" : "heap overflow", [reads] {
      char outside[8] = {};
      const std::vector<char*> blocks = many_blocks(kStride - 8);
      const auto last = std::find_if(blocks.begin(), blocks.end(), [](const char* block) {
        return reinterpret_cast<uintptr_t>(block) % kUnit == kLast - kStride;
      });
      if (last == blocks.end()) return 1;
      char* const behind = *last + kStride;
      reads ? checked_copy()(outside, behind, 8) : checked_copy()(behind, outside, 8);
      return 0;
    }));
  }
}

// Each size and its next: up to the largest slab, run, and with a mapping of its own.
constexpr size_t kEverySize[] = {100, 5000, 40000, 200000, 5 << 20, 40 << 20, (40 << 20) + 1};

TEST(UsableSize, IsAtLeastWhatWasAskedForAfterRealloc) {
  constexpr size_t kMiB = 1 << 20;
  const size_t sizes[] = {33 * kMiB, 40 * kMiB, 64 * kMiB - 8, 64 * kMiB, 64 * kMiB + 1, 70 * kMiB};
  for (const size_t before : sizes) {
    for (const size_t after : sizes) {
      void* block = api().realloc(api().malloc(before), after);
      const size_t usable = api().malloc_usable_size(block);
      EXPECT_GE(usable, after) << "from " << before;
      EXPECT_TRUE(usable == after || !subject().is_hardened) << usable << " from " << before;
      api().free(block);
    }
  }
}

TEST(UsableSize, IsAtMostAQuarterMoreAfterAReallocThatShrinks) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  EXPECT_TRUE(ends_well([] {  // so many moves close runs for what other tests allocate
    for (size_t before = 4608; before < size_t{3} << 20; before += before / 8) {
      for (size_t after = before - 1; after >= 4096; after -= after / 16) {
        auto* block = static_cast<unsigned char*>(api().malloc(before));
        block[0] = 0xa1, block[after - 1] = 0xb2;
        block = static_cast<unsigned char*>(api().realloc(block, after));
        const size_t usable = api().malloc_usable_size(block);
        if (block[0] != 0xa1 || block[after - 1] != 0xb2) return 2;
        if (usable < after || usable > after + after / 4) return 3;
        api().free(block);
      }
    }
    return 0;
  }));
}

// The compiler sees no pair of these, so it warns of none.
void* (*volatile new_array)(size_t) = [](size_t bytes) { return operator new[](bytes); };
void (*volatile delete_object)(void*) = [](void* block) { operator delete(block); };

TEST(MismatchedFree, IsSeenOfEverySize) {
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of the hardened build";
  struct Mismatch {
    const char* name;
    void (*apply)(size_t bytes, bool wrong);
  };
  static const Mismatch kMismatches[] = {
      {"size above", [](size_t n, bool wrong) { api().free_sized(api().malloc(n), n + wrong); }},
      {"size below", [](size_t n, bool wrong) { api().free_sized(api().malloc(n), n - wrong); }},
      {"size before realloc",
       [](size_t n, bool wrong) { api().free_sized(api().realloc(api().malloc(n), n - 1), n - 1 + wrong); }},
      {"alignment",
       [](size_t n, bool wrong) { api().free_aligned_sized(api().aligned_alloc(64, n), wrong ? 32 : 64, n); }},
      {"free of new",
       [](size_t n, bool wrong) { wrong ? api().free(operator new(n)) : delete_object(operator new(n)); }},
      {"delete of an array",
       [](size_t n, bool wrong) { wrong ? delete_object(new_array(n)) : operator delete[](new_array(n)); }},
      {"realloc of new", [](size_t n, bool wrong) { api().realloc(wrong ? operator new(n) : api().malloc(n), n + 1); }},
  };
  for (const size_t bytes : kEverySize) {
    for (const Mismatch& mismatch : kMismatches) {
      for (const bool wrong : {false, true}) {
        EXPECT_TRUE(dies_by(wrong ? SIGABRT : 0, [&] { mismatch.apply(bytes, wrong); }))
            << mismatch.name << " of " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace freestone_test
