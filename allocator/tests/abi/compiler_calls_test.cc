// What compilers call in place of malloc and operator new: with hints, with numbers of types, and to learn the size.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
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

void* find(const std::string& name) { return dlsym(RTLD_DEFAULT, name.c_str()); }
template <typename Function>
Function found(const std::string& name) {
  return reinterpret_cast<Function>(find(name));
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

TEST_F(CompilerCalls, MallocsFamilyTakesTokens) {
  constexpr size_t kBytes = 3000;
  for (const char* name : {"malloc", "valloc", "pvalloc"}) {
    SCOPED_TRACE(name);
    const auto call = found<void* (*)(size_t, size_t)>(std::string("__alloc_token_") + name);
    ASSERT_NE(call, nullptr);
    void* block = call(kBytes, kToken);
    expect_block(block, kBytes);
    api().free(block);
  }
  for (const char* name : {"aligned_alloc", "memalign"}) {
    SCOPED_TRACE(name);
    const auto call = found<void* (*)(size_t, size_t, size_t)>(std::string("__alloc_token_") + name);
    ASSERT_NE(call, nullptr);
    void* block = call(256, kBytes, kToken);
    expect_block(block, kBytes, 256);
    api().free(block);
  }
  void* block = nullptr;
  const auto aligned = found<int (*)(void**, size_t, size_t, size_t)>("__alloc_token_posix_memalign");
  EXPECT_EQ(aligned(&block, 3, kBytes, kToken), EINVAL);
  EXPECT_EQ(aligned(&block, 512, kBytes, kToken), 0);
  expect_block(block, kBytes, 512);
  block = found<void* (*)(void*, size_t, size_t)>("__alloc_token_realloc")(block, 2 * kBytes, kToken);
  EXPECT_EQ(static_cast<char*>(block)[kBytes - 1], 0x5a);
  expect_block(block, 2 * kBytes);
  const auto array = found<void* (*)(void*, size_t, size_t, size_t)>("__alloc_token_reallocarray");
  EXPECT_EQ(array(block, SIZE_MAX / 2, 3, kToken), nullptr);
  block = array(block, 3, kBytes, kToken);
  expect_block(block, 3 * kBytes);
  api().free(block);
  block = found<void* (*)(size_t, size_t, size_t)>("__alloc_token_calloc")(3, 7, kToken);
  EXPECT_EQ(std::memcmp(block, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 21), 0);
  api().free(block);
}

// By the mangled names; the array forms are deleted as arrays, aligned ones with their alignment.
TEST_F(CompilerCalls, OperatorsTakeHintsAndTokens) {
  constexpr size_t kBytes = 700;
  for (const bool array : {false, true}) {
    const std::string plain = array ? "_Znam" : "_Znwm";
    const auto release = [array](void* block) { array ? ::operator delete[](block) : ::operator delete(block); };
    const auto release_aligned = [array](void* block) {
      array ? ::operator delete[](block, k256) : ::operator delete(block, k256);
    };
    const std::string nothrow = "RKSt9nothrow_t", hint = "12__hot_cold_t", aligned = "St11align_val_t";
    const std::string token = "__alloc_token_";
    SCOPED_TRACE(plain);
    void* blocks[] = {
        found<void* (*)(size_t, unsigned char)>(plain + hint)(kBytes, kCold),
        found<void* (*)(size_t, size_t)>(token + plain)(kBytes, kToken),
        found<void* (*)(size_t, unsigned char, size_t)>(token + plain + hint)(kBytes, kCold, kToken),
        found<void* (*)(size_t, const std::nothrow_t&, size_t)>(token + plain + nothrow)(kBytes, std::nothrow, kToken),
        found<void* (*)(size_t, const std::nothrow_t&, unsigned char)>(plain + nothrow + hint)(kBytes, std::nothrow,
                                                                                              kCold),
    };
    for (void* block : blocks) {
      expect_block(block, kBytes);
      release(block);
    }
    void* aligned_blocks[] = {
        found<void* (*)(size_t, std::align_val_t, unsigned char)>(plain + aligned + hint)(kBytes, k256, kCold),
        found<void* (*)(size_t, std::align_val_t, size_t)>(token + plain + aligned)(kBytes, k256, kToken),
        found<void* (*)(size_t, std::align_val_t, const std::nothrow_t&, unsigned char)>(plain + aligned + nothrow +
                                                                                         hint)(kBytes, k256,
                                                                                               std::nothrow, kCold),
    };
    for (void* block : aligned_blocks) {
      expect_block(block, kBytes, 256);
      release_aligned(block);
    }
    const auto fails = found<void* (*)(size_t, const std::nothrow_t&, unsigned char)>(plain + nothrow + hint);
    EXPECT_EQ(fails(PTRDIFF_MAX, std::nothrow, kCold), nullptr);
    const auto throws = found<void* (*)(size_t, unsigned char, size_t)>(token + plain + hint);
    EXPECT_THROW(throws(PTRDIFF_MAX, kCold, kToken), std::bad_alloc);
  }
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
