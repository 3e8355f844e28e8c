// The jemalloc names that Redis and jemalloc-ctl use, with jemalloc's types and errors.
#include <climits>
#include <string>

#include "api/mallctl.h"

extern "C" {
int mallctlnametomib(const char* name, size_t* mib, size_t* length);
int mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);
void malloc_stats_print(void (*write)(void*, const char*), void* context, const char* options);
}

namespace freestone_test {
namespace {

void renew() { ASSERT_EQ(set<uint64_t>("epoch", 1), 0); }

TEST(Mallctl, StatisticsFollowTheHeapAtEachEpoch) {
  renew();
  const auto before = get<size_t>("stats.allocated");
  const auto epoch = get<uint64_t>("epoch");
  void* block = malloc(10 * kMiB);
  EXPECT_EQ(get<size_t>("stats.allocated"), before) << "a snapshot until the next epoch";
  renew();
  EXPECT_EQ(get<uint64_t>("epoch"), epoch + 1);
  EXPECT_GE(get<size_t>("stats.allocated"), before + malloc_usable_size(block));
  EXPECT_LE(get<size_t>("stats.allocated"), before + malloc_usable_size(block) + 32 * kKiB);
  EXPECT_LE(get<size_t>("stats.allocated"), get<size_t>("stats.active"));
  EXPECT_LE(get<size_t>("stats.active"), get<size_t>("stats.resident"));
  EXPECT_LE(get<size_t>("stats.resident"), get<size_t>("stats.mapped"));
  EXPECT_EQ(get<size_t>("stats.arenas.0.small.allocated") + get<size_t>("stats.arenas.0.large.allocated"),
            get<size_t>("stats.allocated"));
  EXPECT_EQ(get<size_t>("stats.arenas.4096.pactive") * get<size_t>("arenas.page"), get<size_t>("stats.active"));
  EXPECT_GT(get<size_t>("stats.metadata"), 0U);
  EXPECT_GE(get<unsigned>("stats.arenas.0.nthreads"), 1U);
  get<size_t>("stats.retained");
  free(block);
}

// What zmalloc.c of Redis asks: MEMORY PURGE, and the background thread that it switches on at start.
TEST(Mallctl, PurgesAsRedisDoes) {
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) {
    blocks.push_back(malloc(kMiB));
    memset(blocks.back(), 1, kMiB);
  }
  for (void* block : blocks) free(block);
  const uint64_t purged = stats().purged_bytes;
  const auto arenas = get<unsigned>("arenas.narenas");
  EXPECT_EQ(arenas, 1U);
  const std::string name = "arena." + std::to_string(arenas) + ".purge";
  EXPECT_EQ(mallctl(name.c_str(), nullptr, nullptr, nullptr, 0), 0);
  EXPECT_GT(stats().purged_bytes, purged);
  EXPECT_EQ(mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0), 0);
  EXPECT_EQ(mallctl("arena.77.purge", nullptr, nullptr, nullptr, 0), EFAULT);
}

// Pages inside slabs of which every block is free go as time passes, though the program does nothing else.
TEST(Mallctl, DecaysPagesInsideSlabs) {
  const auto decay_ms = get<ssize_t>("arenas.dirty_decay_ms");
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", -1), 0);
  static void* stays[6000];
  static void* goes[16000];
  for (void*& block : stays) block = memset(malloc(4000), 1, 4000);
  for (void*& block : goes) block = memset(malloc(1000), 1, 1000);
  for (size_t k = 0; k < std::size(goes); ++k) {
    if (k % 64 != 0) free(goes[k]);
  }
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", 2), 0);
  const uint64_t purged = stats().purged_bytes;
  const auto gone = [&] { return stats().purged_bytes - purged; };
  for (int looks = 0; gone() < 8 * kMiB && looks < 20'000; ++looks) {
    ASSERT_EQ(mallctl("arena.0.decay", nullptr, nullptr, nullptr, 0), 0);
    usleep(5000);
  }
  EXPECT_GE(gone(), 8 * kMiB);
  for (size_t k = 0; k < std::size(goes); k += 64) free(goes[k]);
  for (void* block : stays) free(block);
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", decay_ms), 0);
}

TEST(Mallctl, StartsAndStopsTheBackgroundThread) {
  EXPECT_FALSE(get<bool>("background_thread"));
  EXPECT_EQ(set<bool>("background_thread", true), 0);
  EXPECT_TRUE(get<bool>("background_thread"));
  EXPECT_EQ(get<size_t>("stats.background_thread.num_threads"), 1U);
  EXPECT_EQ(set<bool>("background_thread", false), 0);
  EXPECT_FALSE(get<bool>("background_thread"));
}

// A C program's flag may be any byte.
TEST(Mallctl, TakesAnyByteButZeroForTrue) {
  EXPECT_EQ(set<unsigned char>("prof.active", 0x61), 0);
  EXPECT_TRUE(get<bool>("prof.active"));
  EXPECT_EQ(set<unsigned char>("prof.active", 0), 0);
  EXPECT_FALSE(get<bool>("prof.active"));
}

TEST(Mallctl, NamesBecomeMibsWhoseNumbersCanBeExchanged) {
  size_t mib[4];
  size_t length = 4;
  ASSERT_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), 0);
  EXPECT_EQ(length, 4U);
  const auto bins = get<unsigned>("arenas.nbins");
  size_t last = 0;
  for (unsigned i = 0; i < bins; ++i) {
    mib[2] = i;
    size_t size = 0;
    size_t bytes = sizeof size;
    ASSERT_EQ(mallctlbymib(mib, length, &size, &bytes, nullptr, 0), 0);
    EXPECT_GT(size, last);
    EXPECT_EQ(freestone_good_size(size), size);
    last = size;
  }
  mib[2] = bins;
  EXPECT_EQ(mallctlbymib(mib, length, nullptr, nullptr, nullptr, 0), ENOENT);
  length = 3;
  EXPECT_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), EINVAL);
  // A name of two numbers.
  size_t two[6];
  length = 6;
  ASSERT_EQ(mallctlnametomib("stats.arenas.4096.bins.2.curregs", two, &length), 0);
  EXPECT_EQ(length, 6U);
  for (unsigned i = 0; i <= bins; ++i) {
    two[4] = i;
    size_t regs = 0;
    size_t bytes = sizeof regs;
    ASSERT_EQ(mallctlbymib(two, length, &regs, &bytes, nullptr, 0), i < bins ? 0 : ENOENT) << i;
    EXPECT_EQ(regs, i < bins ? get<size_t>("stats.arenas.0.bins." + std::to_string(i) + ".curregs") : 0U);
  }
  // jemalloc-ctl keeps the mibs of "epoch" and "stats.allocated".
  length = 1;
  ASSERT_EQ(mallctlnametomib("epoch", mib, &length), 0);
  uint64_t epoch = 1;
  size_t bytes = sizeof epoch;
  EXPECT_EQ(mallctlbymib(mib, length, &epoch, &bytes, &epoch, sizeof epoch), 0);
}

TEST(Mallctl, AnswersWithJemallocsErrors) {
  EXPECT_EQ(mallctl("no.such.name", nullptr, nullptr, nullptr, 0), ENOENT);
  EXPECT_EQ(mallctl("thread.allocatedp", nullptr, nullptr, nullptr, 0), ENOENT);
  EXPECT_EQ(mallctl("stats.allocate", nullptr, nullptr, nullptr, 0), ENOENT);
  EXPECT_EQ(mallctl("stats.allocated.more", nullptr, nullptr, nullptr, 0), ENOENT);
  EXPECT_EQ(set<size_t>("stats.allocated", 1), EPERM);
  uint32_t narrow = 0;
  size_t bytes = sizeof narrow;
  EXPECT_EQ(mallctl("stats.allocated", &narrow, &bytes, nullptr, 0), EINVAL);
  EXPECT_EQ(set<uint32_t>("epoch", 1), EINVAL);
  EXPECT_EQ(set<size_t>("max_background_threads", 3), EINVAL);
}

TEST(Mallctl, DecayTimeIsTheOptions) {
  const auto before = get<ssize_t>("arenas.dirty_decay_ms");
  EXPECT_EQ(set<ssize_t>("arenas.dirty_decay_ms", 5000), 0);
  char text[32];
  EXPECT_EQ(freestone_option_get("dirty_decay_ms", text, sizeof text), 0);
  EXPECT_STREQ(text, "2500");
  EXPECT_EQ(get<ssize_t>("arena.0.dirty_decay_ms"), 5000);
  EXPECT_EQ(set<ssize_t>("arenas.dirty_decay_ms", before), 0);
  EXPECT_EQ(set<ssize_t>("arenas.dirty_decay_ms", -2), EINVAL);
}

TEST(Mallctl, FlushesTheThreadsCache) {
  free(malloc(100));
  EXPECT_GT(stats().thread_cached_bytes, 0U);
  EXPECT_EQ(mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0), 0);
  EXPECT_EQ(stats().thread_cached_bytes, 0U);
}

TEST(Mallctl, StartsAndDumpsTheProfiler) {
  EXPECT_FALSE(get<bool>("prof.active"));
  EXPECT_EQ(set<bool>("prof.active", true), 0);
  EXPECT_TRUE(get<bool>("prof.active"));
  std::vector<void*> blocks;
  for (int i = 0; i < 300; ++i) blocks.push_back(malloc(50000));
  const std::string path = testing::TempDir() + "mallctl.heap";
  EXPECT_EQ(set<const char*>("prof.dump", path.c_str()), 0);
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
  unlink(path.c_str());
  EXPECT_EQ(set<const char*>("prof.dump", "/no/such/folder/x.heap"), EIO);
  EXPECT_EQ(set<bool>("prof.active", false), 0);
  for (void* block : blocks) free(block);
}

TEST(Mallctl, TextsAndConstants) {
  EXPECT_EQ(std::string(get<const char*>("version")).rfind("freestone ", 0), 0U);
  EXPECT_TRUE(get<bool>("config.stats"));
  EXPECT_FALSE(get<bool>("opt.zero"));
  EXPECT_EQ(get<size_t>("arenas.quantum"), 16U);
}

TEST(MallocStatsPrint, WritesTextAndJson) {
  std::string text;
  text.reserve(1 << 20);
  const auto append = [](void* string, const char* piece) { *static_cast<std::string*>(string) += piece; };
  malloc_stats_print(append, &text, nullptr);
  EXPECT_NE(text.find("live: handed out"), std::string::npos);
  text.clear();
  malloc_stats_print(append, &text, "J");
  EXPECT_EQ(text.rfind("{\"jemalloc\":{\"version\":\"", 0), 0U);
  EXPECT_NE(text.find("\"allocated\":"), std::string::npos);
  EXPECT_NE(text.find("\"figures\":{\"live_bytes\":"), std::string::npos);
}

TEST(Mallopt, ChangesTheOptionsThatItNames) {
  char text[32];
  EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, 123456), 1);
  EXPECT_EQ(freestone_option_get("dirty_bytes", text, sizeof text), 0);
  EXPECT_STREQ(text, "123456");
  EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 2 << 20), 1);
  const uint64_t before = stats().mapped_bytes;
  void* block = malloc(3 << 20);
  EXPECT_GE(stats().mapped_bytes, before + (3 << 20)) << "3 MiB are above the threshold now";
  free(block);
  EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 32 << 20), 1);
  EXPECT_EQ(mallopt(M_ARENA_MAX, 1), 1);
  EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1) << "-1 turns trimming off";
  EXPECT_EQ(freestone_option_get("dirty_bytes", text, sizeof text), 0);
  EXPECT_STREQ(text, "1099511627776");
}

// Every parameter of malloc.h, around the borders that mallopt(3) states: two parameters have any.
// Large blocks that were freed count as free memory that is kept: what may be kept changes under them.
TEST(Mallopt, WhatIsKeptMayChangeWhileLargeBlocksAreKept) {
  char before[32];
  ASSERT_EQ(freestone_option_get("dirty_bytes", before, sizeof before), 0);
  const auto come_and_go = [] {
    for (int k = 0; k < 4; ++k) {
      for (const size_t bytes : {5 * kMiB, 3 * kMiB}) free(std::memset(malloc(bytes), 1, bytes));
    }
    const freestone_stats s = stats();
    EXPECT_EQ(s.live_bytes + s.cached_bytes + s.slab_free_bytes + s.dirty_bytes + s.clean_bytes,
              s.committed_bytes + s.mapped_bytes);
    return s;
  };
  for (const char* value : {"16m", "64k", "1g", "0", "16m", "0"}) {
    ASSERT_EQ(freestone_option_set("dirty_bytes", value), 0);
    const freestone_stats s = come_and_go();
    if (std::strcmp(value, "0") == 0) {
      if (!is_hardened()) {  // there freed blocks wait, without memory
        EXPECT_LT(s.run_cached_bytes, 2 * kMiB) << "a large block is still kept";
      }
      EXPECT_LT(s.dirty_bytes, 3 * kMiB) << "free memory is still kept";
    } else if (!is_hardened() && std::strcmp(value, "16m") == 0) {
      EXPECT_GE(s.run_cached_bytes, 3 * kMiB) << "none was kept that the change could reach";
    }
  }
  ASSERT_EQ(freestone_option_set("dirty_bytes", before), 0);
}

TEST(Mallopt, AnswersAsItsManualHasIt) {
  struct Parameter {
    const char* name;
    int number;
    long lowest;
    long highest;
  };
  const Parameter parameters[] = {
      {"M_MXFAST", M_MXFAST, 0, 80 * sizeof(size_t) / 4},
      {"M_TRIM_THRESHOLD", M_TRIM_THRESHOLD, INT_MIN, INT_MAX},
      {"M_TOP_PAD", M_TOP_PAD, INT_MIN, INT_MAX},
      {"M_MMAP_THRESHOLD", M_MMAP_THRESHOLD, 0, 4 * 1024 * 1024 * sizeof(long)},
      {"M_MMAP_MAX", M_MMAP_MAX, INT_MIN, INT_MAX},
      {"M_CHECK_ACTION", M_CHECK_ACTION, INT_MIN, INT_MAX},
      {"M_PERTURB", M_PERTURB, INT_MIN, INT_MAX},
      {"M_ARENA_TEST", M_ARENA_TEST, INT_MIN, INT_MAX},
      {"M_ARENA_MAX", M_ARENA_MAX, INT_MIN, INT_MAX},
      {"M_NLBLKS", M_NLBLKS, INT_MIN, INT_MAX},
      {"M_GRAIN", M_GRAIN, INT_MIN, INT_MAX},
      {"M_KEEP", M_KEEP, INT_MIN, INT_MAX},
  };
  const long values[] = {INT_MIN, -1, 0, 1, 160, 161, 1 << 20, 32 << 20, (32 << 20) + 1, INT_MAX};
  for (int number = -20; number <= 20; ++number) {
    const Parameter* known = nullptr;
    for (const Parameter& parameter : parameters) {
      if (parameter.number == number) known = &parameter;
    }
    for (const long value : values) {
      const int expected = known != nullptr && value >= known->lowest && value <= known->highest ? 1 : 0;
      EXPECT_EQ(mallopt(number, static_cast<int>(value)), expected)
          << (known != nullptr ? known->name : "unknown") << " (" << number << ") with " << value;
    }
  }
  void* block = malloc(100000);
  ASSERT_NE(block, nullptr) << "whatever was set, the library serves";
  free(block);
}

}  // namespace
}  // namespace freestone_test
