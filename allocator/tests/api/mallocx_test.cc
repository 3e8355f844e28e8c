// jemalloc's calls with flags, and the arenas and caches that a program makes for them.
#include <algorithm>
#include <map>
#include <set>

#include "api/support.h"

extern "C" {
void* mallocx(size_t size, int flags);
void* rallocx(void* block, size_t size, int flags);
size_t xallocx(void* block, size_t size, size_t extra, int flags);
size_t sallocx(const void* block, int flags);
void dallocx(void* block, int flags);
void sdallocx(void* block, size_t size, int flags);
size_t nallocx(size_t size, int flags);
}

namespace freestone_test {
namespace {

constexpr int kZero = 0x40;
int log_of_alignment(unsigned log) { return static_cast<int>(log); }
int of_cache(unsigned number) { return static_cast<int>((number + 2) << 8); }
int of_arena(unsigned number) { return static_cast<int>((number + 1) << 20); }
size_t large_bytes(unsigned number) {
  return get<size_t>("stats.arenas." + std::to_string(number) + ".large.allocated");
}
unsigned made_arena() { return get<unsigned>("arenas.create"); }
void destroy(unsigned number) { ASSERT_EQ(call(arena_name(number, "destroy")), 0); }

bool is_filled(const unsigned char* block, size_t bytes, unsigned char with) {
  return std::all_of(block, block + bytes, [=](unsigned char byte) { return byte == with; });
}

// Flags of any kind, over three arenas of which 0 is the process heap.
int random_flags(Random& random, const unsigned (&arenas)[3], unsigned cache) {
  int flags = random.below(3) == 0 ? kZero : 0;
  if (random.below(3) == 0) flags |= log_of_alignment(static_cast<unsigned>(random.below(14)));
  if (random.below(2) == 0) flags |= of_arena(arenas[random.below(3)]);
  if (random.below(4) == 0) flags |= of_cache(cache);
  return flags;
}

// What each call promises of the block that it returns; with kZero all is zero from `clear_from` on.
void expect_block(unsigned char* block, size_t bytes, int flags, size_t clear_from) {
  ASSERT_NE(block, nullptr) << bytes;
  ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % std::max<size_t>(size_t{1} << (flags & 0x3f), 16), 0U);
  const size_t usable = sallocx(block, flags);
  ASSERT_GE(usable, bytes);
  ASSERT_EQ(usable, malloc_usable_size(block));
  if ((flags & kZero) == 0 || clear_from >= usable) return;
  ASSERT_TRUE(is_filled(block + clear_from, usable - clear_from, 0)) << bytes << " from " << clear_from;
}

// Contents, sizes, alignments and zeroes are as promised while a program mixes all calls and free().
TEST(Mallocx, ManyBlocksAreWhatTheirFlagsSay) {
  struct Block {
    size_t bytes;
    int flags;
    unsigned char fill;
  };
  const unsigned arenas[] = {0, made_arena(), made_arena()};
  const auto cache = get<unsigned>("tcache.create");
  std::map<unsigned char*, Block> live;
  Random random(45);
  const auto keep = [&](unsigned char* block, size_t bytes, int flags) {
    const auto fill = static_cast<unsigned char>(random.next() | 1);
    std::memset(block, fill, bytes);
    ASSERT_TRUE(live.emplace(block, Block{bytes, flags, fill}).second) << "handed out twice";
  };
  for (int step = 0; step < 60'000; ++step) {
    const size_t bytes = random_size(random, random.below(50) == 0 ? 22 : 12);
    const int flags = random_flags(random, arenas, cache);
    if (live.size() < 300) {
      auto* block = static_cast<unsigned char*>(mallocx(bytes, flags));
      ASSERT_NO_FATAL_FAILURE(expect_block(block, bytes, flags, 0));
      const size_t told = nallocx(bytes, flags);  // of another malloc's block no more than what is asked for
      ASSERT_EQ(told, freestone_is_active() != 0 ? sallocx(block, flags) : bytes) << bytes << ", " << flags;
      ASSERT_NO_FATAL_FAILURE(keep(block, bytes, flags));
      continue;
    }
    auto chosen = std::next(live.begin(), static_cast<long>(random.below(live.size())));
    const auto [block, held] = *chosen;
    ASSERT_TRUE(is_filled(block, held.bytes, held.fill));
    live.erase(chosen);
    const uint64_t way = random.below(6);
    if (way == 0) {
      free(block);
    } else if (way == 1) {
      dallocx(block, held.flags);
    } else if (way == 2) {
      sdallocx(block, held.bytes, held.flags);
    } else {
      const size_t usable = sallocx(block, 0);
      ASSERT_EQ(xallocx(block, bytes, bytes, held.flags), usable) << "the block keeps its size, which is told";
      const bool by_flags = way != 3;
      auto* moved = static_cast<unsigned char*>(by_flags ? rallocx(block, bytes, flags) : realloc(block, bytes));
      ASSERT_NO_FATAL_FAILURE(expect_block(moved, bytes, by_flags ? flags : 0, usable));
      ASSERT_TRUE(is_filled(moved, std::min(held.bytes, bytes), held.fill));
      ASSERT_NO_FATAL_FAILURE(keep(moved, bytes, by_flags ? flags : held.flags));
    }
  }
  for (const auto& [block, held] : live) free(block);
  for (const unsigned number : {arenas[1], arenas[2]}) {
    EXPECT_EQ(large_bytes(number), 0U) << "all was freed";
    destroy(number);
  }
  EXPECT_EQ(set("tcache.destroy", cache), 0);
  EXPECT_EQ(freestone_validate(nullptr), 0);
}

TEST(Mallocx, ARequestThatNobodyCanServeFails) {
  EXPECT_EQ(mallocx(size_t{1} << 63, 0), nullptr);
  EXPECT_EQ(mallocx(size_t{1} << 63, kZero | log_of_alignment(12)), nullptr);
  EXPECT_EQ(nallocx(size_t{1} << 63, 0), 0U);
  EXPECT_EQ(mallocx(100, of_arena(3000)), nullptr) << "there is no such arena";
  void* block = mallocx(100, 0);
  EXPECT_EQ(rallocx(block, size_t{1} << 63, kZero), nullptr);
  std::memset(block, 1, 100);
  dallocx(block, 0);
}

TEST(Arenas, AResetFreesAllBlocksAndTheNumberStays) {
  const unsigned number = made_arena();
  EXPECT_GT(get<unsigned>("arenas.narenas"), number);
  EXPECT_TRUE(get<bool>(arena_name(number, "initialized")));
  for (int round = 0; round < 3; ++round) {
    for (size_t bytes = 1; bytes < 3 * kMiB; bytes = bytes * 3 / 2 + 1)
      std::memset(mallocx(bytes, of_arena(number)), 1, bytes);
    EXPECT_GT(large_bytes(number), 6 * kMiB);
    ASSERT_EQ(call(arena_name(number, "reset")), 0);
    EXPECT_EQ(large_bytes(number), 0U);
    EXPECT_EQ(freestone_validate(nullptr), 0);
  }
  destroy(number);
  EXPECT_EQ(call(arena_name(number, "reset")), EFAULT);
  EXPECT_EQ(mallocx(10, of_arena(number)), nullptr);
  EXPECT_EQ(made_arena(), number) << "the number is free again";
  destroy(number);
}

TEST(Arenas, TellWhichBlocksAreTheirs) {
  const unsigned number = made_arena();
  void* inside = mallocx(100, of_arena(number));
  void* outside = mallocx(100, 0);
  const auto holder = [](void* block) {
    unsigned found = ~0U;
    size_t bytes = sizeof found;
    EXPECT_EQ(mallctl("arenas.lookup", &found, &bytes, &block, sizeof block), 0);
    return found;
  };
  EXPECT_EQ(holder(inside), number);
  EXPECT_EQ(holder(outside), 0U);
  inside = rallocx(inside, 5000, 0);
  EXPECT_EQ(holder(inside), number) << "a block that moves stays in its arena";
  inside = rallocx(inside, 5000, of_arena(number) | log_of_alignment(12));
  EXPECT_EQ(holder(inside), number);
  free(inside);
  free(outside);
  EXPECT_EQ(set("thread.arena", number), 0);
  EXPECT_EQ(get<unsigned>("thread.arena"), number);
  EXPECT_EQ(set("thread.arena", 0U), 0);
  EXPECT_EQ(set("thread.arena", 3000U), EINVAL);
  destroy(number);
}

TEST(Arenas, AreMadeAndDestroyedByManyThreads) {
  const auto work = [] {
    for (int round = 0; round < 200; ++round) {
      const unsigned number = made_arena();
      std::set<void*> blocks;
      for (size_t bytes = 8; bytes < 100'000; bytes *= 3)
        ASSERT_TRUE(blocks.insert(std::memset(mallocx(bytes, of_arena(number)), 1, bytes)).second);
      for (void* block : blocks)
        if (round % 2 == 0) free(block);
      destroy(number);
    }
  };
  {
    const std::jthread threads[] = {std::jthread(work), std::jthread(work), std::jthread(work), std::jthread(work)};
  }
  EXPECT_EQ(freestone_validate(nullptr), 0);
}

TEST(Arenas, RunOutAndComeBack) {
  std::vector<unsigned> made;
  unsigned number = 0;
  size_t bytes = sizeof number;
  while (mallctl("arenas.create", &number, &bytes, nullptr, 0) == 0) made.push_back(number);
  EXPECT_EQ(mallctl("arenas.create", &number, &bytes, nullptr, 0), EAGAIN);
  EXPECT_GE(made.size(), 500U);
  for (const unsigned each : made) destroy(each);
  EXPECT_EQ(call(arena_name(made.front(), "destroy")), EFAULT) << "a second time";
  destroy(made_arena());
  EXPECT_EQ(freestone_validate(nullptr), 0);
}

TEST(Arenas, RefuseWhatTheyDoNotServe) {
  const void* hooks = "";
  unsigned number = 0;
  size_t bytes = sizeof number;
  EXPECT_EQ(mallctl("arenas.create", &number, &bytes, &hooks, sizeof hooks), EINVAL) << "extent hooks";
  EXPECT_EQ(call("arena.0.reset"), EFAULT);
  EXPECT_EQ(call("arena.0.destroy"), EFAULT);
  EXPECT_EQ(call("experimental.utilization.query"), ENOENT);
  EXPECT_EQ(set<const char*>("arena.0.dss", "primary"), EFAULT);
  EXPECT_EQ(std::string(get<const char*>("arena.0.dss")), "disabled");
  EXPECT_EQ(set<size_t>("arena.0.retain_grow_limit", kMiB), 0);
  EXPECT_EQ(set("tcache.flush", 4000U), EFAULT);
  const auto cache = get<unsigned>("tcache.create");
  EXPECT_NE(get<unsigned>("tcache.create"), cache);
  EXPECT_EQ(set("tcache.flush", cache), 0);
  EXPECT_EQ(set("tcache.destroy", cache), 0);
  EXPECT_EQ(set("tcache.destroy", cache), EFAULT);
}

// Redis computes from these what its small blocks leave free.
TEST(Arenas, TheirBinsHoldTheBlocksInUse) {
  const Blocks blocks(5000, 90);
  ASSERT_EQ(set<uint64_t>("epoch", 1), 0);
  size_t in_use = 0;
  for (unsigned k = 0; k < get<unsigned>("arenas.nbins"); ++k) {
    const std::string bin = "stats.arenas.0.bins." + std::to_string(k);
    const auto regs = get<size_t>(bin + ".curregs");
    const auto room = get<size_t>(bin + ".curslabs") * get<uint32_t>("arenas.bin." + std::to_string(k) + ".nregs");
    EXPECT_LE(regs, room) << bin;
    in_use += regs;
  }
  EXPECT_GE(in_use, blocks.size());
}

TEST(Arenas, AForkedChildHasThem) {
  const unsigned number = made_arena();
  auto* block = static_cast<char*>(mallocx(5000, of_arena(number)));
  std::memset(block, 7, 5000);
  EXPECT_TRUE(ends_well([&] {
    if (block[4999] != 7) return -1;
    free(block);
    std::memset(mallocx(100, of_arena(number)), 1, 100);
    return call(arena_name(number, "destroy"));
  }));
  free(block);
  EXPECT_DEATH(free(block), "free");
  destroy(number);
}

// Under FREESTONE_DISABLE=1 the program's arenas are numbers; the other malloc serves what names them.
TEST(SwitchedOff, ControlsAnswerAndFiguresAreZero) {
  if (freestone_is_active() != 0) GTEST_SKIP() << "FREESTONE_DISABLE=1 is not set";
  const unsigned number = made_arena();
  EXPECT_NE(made_arena(), number);
  EXPECT_TRUE(get<bool>(arena_name(number, "initialized")));
  EXPECT_EQ(set("thread.arena", number), 0);
  EXPECT_EQ(get<unsigned>("thread.arena"), number);
  EXPECT_EQ(set("thread.arena", 0U), 0);
  void* block = mallocx(5000, of_arena(number) | kZero);
  EXPECT_EQ(get<size_t>(arena_name(number, "dirty_decay_ms")), get<size_t>("arenas.dirty_decay_ms"));
  for (const char* what : {"purge", "decay", "reset"}) EXPECT_EQ(call(arena_name(number, what)), 0) << what;
  for (const char* what : {"thread.idle", "thread.tcache.flush"}) EXPECT_EQ(call(what), 0) << what;
  EXPECT_EQ(set<uint64_t>("epoch", 1), 0);
  for (const char* what : {"allocated", "active", "resident", "mapped", "retained", "metadata"})
    EXPECT_EQ(get<size_t>(std::string("stats.") + what), 0U) << what;
  EXPECT_EQ(large_bytes(number), 0U);
  EXPECT_EQ(set("background_thread", true), EAGAIN) << "it would find nothing to do";
  EXPECT_EQ(set("background_thread", false), 0);
  dallocx(block, of_arena(number));
  destroy(number);
  EXPECT_EQ(call(arena_name(number, "purge")), EFAULT);
  EXPECT_EQ(made_arena(), number);
}

}  // namespace
}  // namespace freestone_test
