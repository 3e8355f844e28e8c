// What compilers call in place of malloc and operator new: with hints, with numbers of types, and to learn the size.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <set>
#include <string>

#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kToken = 0x2552'7a9b'0c11'83fd;
constexpr unsigned char kCold = 1;
constexpr std::align_val_t k256{256};

struct SizedBlock {
  void* block;
  size_t bytes;
};

template <typename Function>
Function found(const std::string& name) {
  void* address = dlsym(RTLD_DEFAULT, name.c_str());
  EXPECT_NE(address, nullptr) << name;
  return reinterpret_cast<Function>(address);
}

class CompilerCalls : public testing::Test {
 protected:
  void SetUp() override {
    if (!subject().is_freestone || !subject().serves_operators) GTEST_SKIP() << "a promise of libfreestone";
  }
};

void expect_block(void* block, size_t bytes, size_t alignment = 16) {
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0U);
  EXPECT_GE(api().malloc_usable_size(block), bytes);
  std::memset(block, 0x5a, bytes);
}

void expect_and_free(void* block, size_t bytes, size_t alignment = 16) {
  expect_block(block, bytes, alignment);
  api().free(block);
}

TEST_F(CompilerCalls, MallocsFamilyTakesTokens) {
  constexpr size_t kBytes = 3000;
  const std::string token = "__alloc_token_";
  for (const char* name : {"malloc", "valloc", "pvalloc"}) {
    SCOPED_TRACE(name);
    expect_and_free(found<void* (*)(size_t, size_t)>(token + name)(kBytes, kToken), kBytes);
  }
  for (const char* name : {"aligned_alloc", "memalign"}) {
    SCOPED_TRACE(name);
    expect_and_free(found<void* (*)(size_t, size_t, size_t)>(token + name)(256, kBytes, kToken), kBytes, 256);
  }
  void* block = nullptr;
  const auto aligned = found<int (*)(void**, size_t, size_t, size_t)>(token + "posix_memalign");
  EXPECT_EQ(aligned(&block, 3, kBytes, kToken), EINVAL);
  EXPECT_EQ(aligned(&block, 512, kBytes, kToken), 0);
  expect_block(block, kBytes, 512);
  block = found<void* (*)(void*, size_t, size_t)>(token + "realloc")(block, 2 * kBytes, kToken);
  EXPECT_EQ(static_cast<char*>(block)[kBytes - 1], 0x5a);
  expect_block(block, 2 * kBytes);
  const auto array = found<void* (*)(void*, size_t, size_t, size_t)>(token + "reallocarray");
  EXPECT_EQ(array(block, SIZE_MAX / 2, 3, kToken), nullptr);
  expect_and_free(array(block, 3, kBytes, kToken), 3 * kBytes);
  block = found<void* (*)(size_t, size_t, size_t)>(token + "calloc")(3, 7, kToken);
  EXPECT_EQ(std::string(static_cast<char*>(block), 21), std::string(21, '\0'));
  api().free(block);
}

// By the mangled names; the array forms are deleted as arrays, aligned ones with their alignment.
TEST_F(CompilerCalls, OperatorsTakeHintsAndTokens) {
  constexpr size_t kBytes = 700;
  using Nothrow = const std::nothrow_t&;
  const std::string nothrow = "RKSt9nothrow_t", hint = "12__hot_cold_t", aligned = "St11align_val_t";
  for (const bool array : {false, true}) {
    const std::string plain = array ? "_Znam" : "_Znwm";
    const std::string token = "__alloc_token_" + plain;
    SCOPED_TRACE(plain);
    void* blocks[] = {
        found<void* (*)(size_t, unsigned char)>(plain + hint)(kBytes, kCold),
        found<void* (*)(size_t, size_t)>(token)(kBytes, kToken),
        found<void* (*)(size_t, unsigned char, size_t)>(token + hint)(kBytes, kCold, kToken),
        found<void* (*)(size_t, Nothrow, size_t)>(token + nothrow)(kBytes, std::nothrow, kToken),
        found<void* (*)(size_t, Nothrow, unsigned char)>(plain + nothrow + hint)(kBytes, std::nothrow, kCold),
    };
    for (void* block : blocks) {
      expect_block(block, kBytes);
      array ? ::operator delete[](block) : ::operator delete(block);
    }
    void* aligned_blocks[] = {
        found<void* (*)(size_t, std::align_val_t, unsigned char)>(plain + aligned + hint)(kBytes, k256, kCold),
        found<void* (*)(size_t, std::align_val_t, size_t)>(token + aligned)(kBytes, k256, kToken),
        found<void* (*)(size_t, std::align_val_t, Nothrow, unsigned char)>(plain + aligned + nothrow + hint)(
            kBytes, k256, std::nothrow, kCold),
    };
    for (void* block : aligned_blocks) {
      expect_block(block, kBytes, 256);
      array ? ::operator delete[](block, k256) : ::operator delete(block, k256);
    }
    const auto fails = found<void* (*)(size_t, Nothrow, unsigned char)>(plain + nothrow + hint);
    EXPECT_EQ(fails(PTRDIFF_MAX, std::nothrow, kCold), nullptr);
    const auto throws = found<void* (*)(size_t, unsigned char, size_t)>(token + hint);
    EXPECT_THROW(throws(PTRDIFF_MAX, kCold, kToken), std::bad_alloc);
  }
}

// Hardened: a slab never holds blocks of both partitions, whichever call made them, grew them or freed them before.
TEST_F(CompilerCalls, TypesWithPointersHaveSlabsOfTheirOwn) {
  if (!subject().is_hardened) GTEST_SKIP() << "a mitigation";
  constexpr uintptr_t kSlab = uintptr_t{1} << 14;  // no slab is shorter
  const std::string prefix = "__alloc_token_";
  const auto malloc_of = found<void* (*)(size_t, size_t)>(prefix + "malloc");
  const auto calloc_of = found<void* (*)(size_t, size_t, size_t)>(prefix + "calloc");
  const auto realloc_of = found<void* (*)(void*, size_t, size_t)>(prefix + "realloc");
  const auto aligned_of = found<int (*)(void**, size_t, size_t, size_t)>(prefix + "posix_memalign");
  const auto new_of = found<void* (*)(size_t, size_t)>(prefix + "_Znwm");
  const auto new_array_of = found<void* (*)(size_t, std::align_val_t, size_t)>(prefix + "_ZnamSt11align_val_t");
  void* none = nullptr;
  EXPECT_EQ(aligned_of(&none, 24, 100, 1), EINVAL);  // no power of two, as for the plain name
  std::set<uintptr_t> slabs[2];
  for (int round = 0; round < 40; ++round) {
    for (const size_t bytes : {24U, 200U, 3000U, 30000U}) {
      for (const size_t token : {size_t{0}, size_t{1}, kToken, ~kToken}) {
        void* blocks[6] = {malloc_of(bytes, token), calloc_of(bytes / 8, 8, token), realloc_of(nullptr, bytes, token)};
        ASSERT_EQ(aligned_of(&blocks[3], 64, bytes, token), 0);
        blocks[2] = api().realloc(blocks[2], bytes < 30000 ? 3 * bytes : 300);  // by the plain name
        blocks[4] = new_of(bytes, token);
        blocks[5] = new_array_of(bytes, k256, token);
        EXPECT_EQ(std::string(static_cast<char*>(blocks[1]), bytes), std::string(bytes, '\0'));
        for (void* block : blocks)
          slabs[token == 1 || token == ~kToken].insert(reinterpret_cast<uintptr_t>(block) / kSlab);
        for (void* block : {blocks[0], blocks[1], blocks[2], blocks[3]}) api().free(block);
        ::operator delete(blocks[4]);
        ::operator delete[](blocks[5], k256);
      }
    }
  }
  for (const uintptr_t slab : slabs[1]) EXPECT_FALSE(slabs[0].contains(slab)) << std::hex << slab * kSlab;
}

// The fast build has no use for what is left of a block; in the hardened one it is checked.
TEST_F(CompilerCalls, SizeReturningNewSaysWhatMayBeUsed) {
  for (const size_t bytes : {1U, 100U, 5001U, 300001U}) {
    SCOPED_TRACE(bytes);
    const SizedBlock plain = found<SizedBlock (*)(size_t)>("__size_returning_new")(bytes);
    const SizedBlock hinted = found<SizedBlock (*)(size_t, unsigned char, size_t)>(
        "__alloc_token___size_returning_new_hot_cold")(bytes, kCold, kToken);
    for (const SizedBlock& it : {plain, hinted}) {
      expect_block(it.block, it.bytes);
      EXPECT_GE(it.bytes, bytes);
      EXPECT_EQ(it.bytes, subject().is_hardened ? bytes : api().malloc_usable_size(it.block));
      ::operator delete(it.block, it.bytes);
    }
    const SizedBlock aligned =
        found<SizedBlock (*)(size_t, std::align_val_t)>("__size_returning_new_aligned")(bytes, k256);
    expect_block(aligned.block, aligned.bytes, 256);
    ::operator delete(aligned.block, aligned.bytes, k256);
  }
}

}  // namespace
}  // namespace freestone_test
