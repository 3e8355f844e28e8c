// The jemalloc names that Redis and jemalloc-ctl use, with jemalloc's types and errors.
#include <climits>

#include "api/support.h"

extern "C" {
int mallctlnametomib(const char* name, size_t* mib, size_t* length);
int mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes);
void malloc_stats_print(void (*write)(void*, const char*), void* context, const char* options);
}

namespace freestone_test {
namespace {

size_t figure(const char* name) { return get<size_t>(std::string("stats.") + name); }

TEST(Mallctl, StatisticsFollowTheHeapAtEachEpoch) {
  ASSERT_EQ(set<uint64_t>("epoch", 1), 0);
  const size_t before = figure("allocated");
  const auto epoch = get<uint64_t>("epoch");
  void* block = malloc(10 * kMiB);
  EXPECT_EQ(figure("allocated"), before) << "a snapshot until the next epoch";
  ASSERT_EQ(set<uint64_t>("epoch", 1), 0);
  EXPECT_EQ(get<uint64_t>("epoch"), epoch + 1);
  EXPECT_GE(figure("allocated"), before + malloc_usable_size(block));
  EXPECT_LE(figure("allocated"), before + malloc_usable_size(block) + 32 * kKiB);
  EXPECT_LE(figure("allocated"), figure("active"));
  EXPECT_LE(figure("active"), figure("resident"));
  EXPECT_LE(figure("resident"), figure("mapped"));
  EXPECT_EQ(figure("arenas.0.small.allocated") + figure("arenas.0.large.allocated"), figure("allocated"));
  EXPECT_EQ(figure("arenas.4096.pactive") * get<size_t>("arenas.page"), figure("active"));
  EXPECT_GT(figure("metadata"), 0U);
  EXPECT_GE(get<unsigned>("stats.arenas.0.nthreads"), 1U);
  figure("retained");
  free(block);
}

// What zmalloc.c of Redis asks: MEMORY PURGE, and the background thread that it switches on at start.
TEST(Mallctl, PurgesAsRedisDoes) {
  Blocks(50, kMiB).release();
  const uint64_t purged = stats().purged_bytes;
  const auto arenas = get<unsigned>("arenas.narenas");
  EXPECT_EQ(arenas, 1U);
  EXPECT_EQ(call(arena_name(arenas, "purge")), 0);
  EXPECT_GT(stats().purged_bytes, purged);
  EXPECT_EQ(call("arena.4096.purge"), 0);
  EXPECT_EQ(call("arena.77.purge"), EFAULT);
}

// Pages inside slabs of which every block is free go as time passes, though the program does nothing else.
TEST(Mallctl, DecaysPagesInsideSlabs) {
  const auto decay_ms = get<ssize_t>("arenas.dirty_decay_ms");
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", -1), 0);
  Blocks stays(15000, 4000), goes(48000, 1000);
  for (size_t k = 0; k < goes.size(); ++k)
    if (k % 8 != 0) free(std::exchange(goes[k], nullptr));
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", 2), 0);
  const uint64_t purged = stats().purged_bytes;
  const auto gone = [&] { return stats().purged_bytes - purged; };
  for (int looks = 0; gone() < 8 * kMiB && looks < 20'000; ++looks) {
    ASSERT_EQ(call("arena.0.decay"), 0);
    usleep(5000);
  }
  EXPECT_GE(gone(), 8 * kMiB);
  ASSERT_EQ(set<ssize_t>("arenas.dirty_decay_ms", decay_ms), 0);
}

TEST(Mallctl, StartsAndStopsTheBackgroundThread) {
  EXPECT_FALSE(get<bool>("background_thread"));
  EXPECT_EQ(set<bool>("background_thread", true), 0);
  EXPECT_TRUE(get<bool>("background_thread"));
  EXPECT_EQ(figure("background_thread.num_threads"), 1U);
  EXPECT_EQ(set<bool>("background_thread", false), 0);
  EXPECT_FALSE(get<bool>("background_thread"));
}

// A C program's flag may be any byte.
TEST(Mallctl, TakesAnyByteButZeroForTrue) {
  for (const int byte : {0x61, 0}) {
    EXPECT_EQ(set<unsigned char>("prof.active", static_cast<unsigned char>(byte)), 0);
    EXPECT_EQ(get<bool>("prof.active"), byte != 0);
  }
}

TEST(Mallctl, NamesBecomeMibsWhoseNumbersCanBeExchanged) {
  size_t mib[6];
  size_t length = 4;
  size_t value = 0;
  size_t bytes = sizeof value;
  ASSERT_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), 0);
  EXPECT_EQ(length, 4U);
  const auto bins = get<unsigned>("arenas.nbins");
  size_t last = 0;
  for (mib[2] = 0; mib[2] < bins; ++mib[2]) {
    ASSERT_EQ(mallctlbymib(mib, length, &value, &bytes, nullptr, 0), 0);
    EXPECT_GT(value, last);
    EXPECT_EQ(freestone_good_size(value), value);
    last = value;
  }
  EXPECT_EQ(mallctlbymib(mib, length, nullptr, nullptr, nullptr, 0), ENOENT);
  length = 3;
  EXPECT_EQ(mallctlnametomib("arenas.bin.0.size", mib, &length), EINVAL);
  // A name of two numbers.
  length = 6;
  ASSERT_EQ(mallctlnametomib("stats.arenas.4096.bins.2.curregs", mib, &length), 0);
  EXPECT_EQ(length, 6U);
  for (mib[4] = 0; mib[4] < bins; ++mib[4]) {
    ASSERT_EQ(mallctlbymib(mib, length, &value, &bytes, nullptr, 0), 0) << mib[4];
    EXPECT_EQ(value, figure(("arenas.0.bins." + std::to_string(mib[4]) + ".curregs").c_str()));
  }
  EXPECT_EQ(mallctlbymib(mib, length, &value, &bytes, nullptr, 0), ENOENT);
  // jemalloc-ctl keeps the mibs of "epoch" and "stats.allocated".
  length = 1;
  ASSERT_EQ(mallctlnametomib("epoch", mib, &length), 0);
  uint64_t epoch = 1;
  EXPECT_EQ(mallctlbymib(mib, length, &epoch, &bytes, &epoch, sizeof epoch), 0);
}

TEST(Mallctl, AnswersWithJemallocsErrors) {
  for (const char* name : {"no.such.name", "thread.allocatedp", "stats.allocate", "stats.allocated.more"})
    EXPECT_EQ(call(name), ENOENT) << name;
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
  EXPECT_EQ(option("dirty_decay_ms"), "5000");
  EXPECT_EQ(get<ssize_t>("arena.0.dirty_decay_ms"), 5000);
  EXPECT_EQ(set<ssize_t>("arenas.dirty_decay_ms", before), 0);
  EXPECT_EQ(set<ssize_t>("arenas.dirty_decay_ms", -2), EINVAL);
}

TEST(Mallctl, FlushesTheThreadsCache) {
  malloc_trim(0);  // the caches of threads that ended
  free(malloc(100));
  EXPECT_GT(stats().thread_cached_bytes, 0U);
  EXPECT_EQ(mallctl("thread.tcache.flush", nullptr, nullptr, nullptr, 0), 0);  // call()'s text is freed afterwards
  EXPECT_EQ(stats().thread_cached_bytes, 0U);
}

TEST(Mallctl, StartsAndDumpsTheProfiler) {
  EXPECT_FALSE(get<bool>("prof.active"));
  EXPECT_EQ(set<bool>("prof.active", true), 0);
  EXPECT_TRUE(get<bool>("prof.active"));
  const Blocks blocks(300, 50000);
  const std::string path = testing::TempDir() + "mallctl.heap";
  EXPECT_EQ(set<const char*>("prof.dump", path.c_str()), 0);
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
  unlink(path.c_str());
  EXPECT_EQ(set<const char*>("prof.dump", "/no/such/folder/x.heap"), EIO);
  EXPECT_EQ(set<bool>("prof.active", false), 0);
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
  for (const char* part : {"\"allocated\":", "\"figures\":{\"live_bytes\":"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(Mallopt, ChangesTheOptionsThatItNames) {
  EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, 123456), 1);
  EXPECT_EQ(option("dirty_bytes"), "123456");
  EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 2 << 20), 1);
  const uint64_t before = stats().mapped_bytes;
  void* block = malloc(3 << 20);
  EXPECT_GE(stats().mapped_bytes, before + (3 << 20)) << "3 MiB are above the threshold now";
  free(block);
  EXPECT_EQ(mallopt(M_MMAP_THRESHOLD, 32 << 20), 1);
  EXPECT_EQ(mallopt(M_ARENA_MAX, 1), 1);
  EXPECT_EQ(mallopt(M_TRIM_THRESHOLD, -1), 1) << "-1 turns trimming off";
  EXPECT_EQ(option("dirty_bytes"), "1099511627776");
}

// Large blocks that were freed count as free memory that is kept: what may be kept changes under them.
TEST(Mallopt, WhatIsKeptMayChangeWhileLargeBlocksAreKept) {
  const std::string before = option("dirty_bytes");
  Blocks beside(1, 24 * kMiB);
  for (const std::string value : {"16m", "64k", "1g", "0", "16m", "0"}) {
    ASSERT_EQ(freestone_option_set("dirty_bytes", value.c_str()), 0);
    for (int k = 0; k < 4; ++k)
      for (const size_t bytes : {kMiB - kMiB / 8, kMiB / 4 + kMiB / 8, kMiB / 2}) Blocks(1, bytes).release();
    const freestone_stats s = stats();
    EXPECT_EQ(s.live_bytes + s.cached_bytes + s.slab_free_bytes + s.dirty_bytes + s.clean_bytes,
              s.committed_bytes + s.mapped_bytes);
    if (value == "0") {
      if (!is_hardened()) {  // there freed blocks wait, without memory
        EXPECT_LE(s.run_cached_bytes, kMiB / 2) << "more than the thread's own is still kept";
      }
      EXPECT_LT(s.dirty_bytes, s.live_bytes / 8 + 3 * kMiB) << "free memory is still kept";
    } else if (!is_hardened() && value == "16m") {
      EXPECT_GT(s.run_cached_bytes, kMiB / 2) << "none was kept that the change could reach";
    }
  }
  ASSERT_EQ(freestone_option_set("dirty_bytes", before.c_str()), 0);
}

// Every parameter of malloc.h, around the borders that mallopt(3) states: two parameters have any.
TEST(Mallopt, AnswersAsItsManualHasIt) {
  const int free_of_borders[] = {M_TRIM_THRESHOLD, M_TOP_PAD,   M_MMAP_MAX, M_CHECK_ACTION, M_PERTURB,
                                 M_ARENA_TEST,     M_ARENA_MAX, M_NLBLKS,   M_GRAIN,        M_KEEP};
  const auto is_taken = [&](int number, long value) {
    if (number == M_MXFAST) return value >= 0 && value <= static_cast<long>(80 * sizeof(size_t) / 4);
    if (number == M_MMAP_THRESHOLD) return value >= 0 && value <= static_cast<long>(4 * 1024 * 1024 * sizeof(long));
    return std::find(std::begin(free_of_borders), std::end(free_of_borders), number) != std::end(free_of_borders);
  };
  const long values[] = {INT_MIN, -1, 0, 1, 160, 161, 1 << 20, 32 << 20, (32 << 20) + 1, INT_MAX};
  for (int number = -20; number <= 20; ++number) {
    for (const long value : values)
      EXPECT_EQ(mallopt(number, static_cast<int>(value)), is_taken(number, value) ? 1 : 0) << number << ", " << value;
  }
  void* block = malloc(100000);
  ASSERT_NE(block, nullptr) << "whatever was set, the library serves";
  free(block);
}

}  // namespace
}  // namespace freestone_test
