// What these tests share.
#pragma once

#include <freestone/freestone.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

extern "C" int mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);

namespace freestone_test {

inline freestone_stats stats() {
  freestone_stats s{};
  s.version = FREESTONE_STATS_VERSION;
  EXPECT_EQ(freestone_get_stats(&s), 0);
  return s;
}

inline int set_limits(uint64_t soft, uint64_t hard) {
  const freestone_limits limits{FREESTONE_LIMITS_VERSION, 0, soft, hard};
  return freestone_set_limits(&limits);
}

// No limits before and after each test.
class NoLimitsLeft : public testing::Test {
 protected:
  void TearDown() override { set_limits(0, 0); }
};

inline std::string option(const char* name) {
  char text[256] = "";
  EXPECT_EQ(freestone_option_get(name, text, sizeof text), 0) << name;
  return text;
}

// The hardened build keeps some bytes of a block and holds freed ones back for a while.
inline bool is_hardened() { return subject().is_hardened; }

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

// Sizes over all scales up to 2^largest.
inline size_t random_size(Random& random, unsigned largest) {
  return 1 + random.below(uint64_t{1} << (3 + random.below(largest - 2)));
}

// Blocks that are freed at the end. Their table is a block itself: at a limit there must be room in it.
struct Blocks : std::vector<void*> {
  Blocks() = default;
  Blocks(size_t number, size_t bytes) { take(number, bytes); }
  Blocks(const Blocks&) = delete;
  ~Blocks() { release(); }

  // All bytes are written.
  void take(size_t number, size_t bytes) {
    for (; number > 0; --number) push_back(memset(malloc(bytes), 1, bytes));
  }
  void free_last() {
    free(back());
    pop_back();
  }
  void release() {
    for (void* block : *this) free(block);
    clear();
  }
};

// mallctl, with jemalloc's types.
template <typename T>
T get(const std::string& name) {
  T value{};
  size_t bytes = sizeof value;
  EXPECT_EQ(mallctl(name.c_str(), &value, &bytes, nullptr, 0), 0) << name;
  EXPECT_EQ(bytes, sizeof value) << name;
  return value;
}

template <typename T>
int set(const std::string& name, T value) {
  return mallctl(name.c_str(), nullptr, nullptr, &value, sizeof value);
}

inline int call(const std::string& name) { return mallctl(name.c_str(), nullptr, nullptr, nullptr, 0); }

inline std::string arena_name(unsigned number, const char* what) {
  return "arena." + std::to_string(number) + "." + what;
}

}  // namespace freestone_test
