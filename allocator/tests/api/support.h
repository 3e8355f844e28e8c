// What these tests share.
#pragma once

#include <fcntl.h>
#include <freestone/freestone.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

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

// The hardened build keeps some bytes of a block and holds freed ones back for a while.
extern const bool is_hardened_library;  // library_fast.cc, library_hardened.cc
inline bool is_hardened() { return is_hardened_library; }

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;

// A small generator whose seed is printed with a failure.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  // Sizes over all scales up to 2^largest.
  size_t size(unsigned largest) { return 1 + below(uint64_t{1} << (3 + below(largest - 2))); }

 private:
  uint64_t state_;
};

// A field of /proc/self/status, in bytes. Allocates nothing: it is asked for at limits.
inline size_t process_bytes(const char* field) {
  char text[4096];
  const int file = open("/proc/self/status", O_RDONLY);
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  text[length > 0 ? length : 0] = '\0';
  const char* line = strstr(text, field);
  return line != nullptr ? strtoul(line + strlen(field), nullptr, 10) * kKiB : 0;
}

}  // namespace freestone_test
