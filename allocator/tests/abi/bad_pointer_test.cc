// A pointer that no allocation gave ends the process with one clear line and SIGABRT, in every build.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"

namespace freestone_test {
namespace {

alignas(64) char static_bytes[256];

struct BadPointer {
  const char* name;
  void* (*make)();

  friend std::ostream& operator<<(std::ostream& out, const BadPointer& it) { return out << it.name; }
};

char* mapped_mebibyte() {
  return static_cast<char*>(mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

const BadPointer kPointers[] = {
    {"one", [] { return reinterpret_cast<void*>(1); }},
    {"sixteen", [] { return reinterpret_cast<void*>(16); }},
    {"static_storage", []() -> void* { return static_bytes + 64; }},
    {"code", []() -> void* { return reinterpret_cast<void*>(&api); }},
    {"stack",
     []() -> void* {
       alignas(16) char bytes[64];
       char* volatile address = bytes;
       return address;
     }},
    {"foreign_mapping", []() -> void* { return mapped_mebibyte() + 4096; }},
    {"unmapped",
     []() -> void* {
       char* range = mapped_mebibyte();
       munmap(range, 1 << 20);
       return range + 8192;
     }},
    {"block_of_glibc",
     [] {
       void* libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
       return reinterpret_cast<void* (*)(size_t)>(dlsym(libc, "malloc"))(100);
     }},
    {"non_canonical", [] { return reinterpret_cast<void*>(0xDEADBEEFDEADBEE0); }},
    {"highest_address", [] { return reinterpret_cast<void*>(-16L); }},
    {"far_above_a_block", []() -> void* { return static_cast<char*>(api().malloc(64)) + (size_t{1} << 45); }},
};

struct Use {
  const char* name;
  void (*apply)(void*);

  friend std::ostream& operator<<(std::ostream& out, const Use& it) { return out << it.name; }
};

const Use kUses[] = {
    {"free", [](void* p) { api().free(p); }},
    {"realloc", [](void* p) { api().free(api().realloc(p, 200)); }},
    {"reallocarray", [](void* p) { api().free(api().reallocarray(p, 10, 20)); }},
    {"cfree", [](void* p) { api().cfree(p); }},
    {"free_sized", [](void* p) { api().free_sized(p, 64); }},
    {"free_aligned_sized", [](void* p) { api().free_aligned_sized(p, 64, 64); }},
    {"usable_size", [](void* p) { static_bytes[0] = static_cast<char>(api().malloc_usable_size(p)); }},
    {"delete", [](void* p) { ::operator delete(p); }},
    {"sized_delete", [](void* p) { ::operator delete(p, size_t{64}); }},
    {"aligned_delete", [](void* p) { ::operator delete(p, std::align_val_t{64}); }},
};

class ForeignPointer : public testing::TestWithParam<std::tuple<BadPointer, Use>> {};

TEST_P(ForeignPointer, EndsInOneClearLineAndAbort) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  const auto& [pointer, use] = GetParam();
  const ChildEnd end = run_in_child([&pointer = pointer, &use = use] {
    api().free(api().malloc(64));  // a heap that is in use
    use.apply(pointer.make());
  });
  EXPECT_EQ(end.signal, SIGABRT) << end.describe();
  EXPECT_EQ(end.errors.rfind("freestone: ", 0), 0u) << end.describe();
  EXPECT_EQ(std::count(end.errors.begin(), end.errors.end(), '\n'), 1) << end.describe();
  EXPECT_LT(end.errors.size(), 300u) << end.describe();
}

INSTANTIATE_TEST_SUITE_P(Pointers, ForeignPointer,
                         testing::Combine(testing::ValuesIn(kPointers), testing::ValuesIn(kUses)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                         });

struct Misuse {
  const char* name;
  const char* said;
  void (*apply)(void* block, size_t bytes);
  std::vector<size_t> sizes;

  friend std::ostream& operator<<(std::ostream& out, const Misuse& it) { return out << it.name; }
};

void free_twice(void* block, size_t bytes) {
  static void* other = api().malloc(bytes);  // the slab stays
  static_bytes[0] = static_cast<char>(other != nullptr);
  api().free(block);
  api().free(block);
}
void free_with_another_between(void* block, size_t bytes) {
  void* other = api().malloc(bytes);
  api().free(block);
  api().free(other);
  api().free(block);
}
void free_after_pairs(void* block, size_t bytes) {
  api().free(block);
  for (int i = 0; i < 100; ++i) api().free(api().malloc(bytes));
  api().free(block);
}
void reallocate_freed(void* block, size_t bytes) {
  api().free(block);
  static_bytes[0] = static_cast<char>(api().realloc(block, bytes * 2) != nullptr);
}
void reallocate_freed_hugely(void* block, size_t) {
  api().free(block);
  static_bytes[0] = static_cast<char>(api().realloc(block, SIZE_MAX - 100) != nullptr);
}
void ask_freed(void* block, size_t) {
  api().free(block);
  static_bytes[0] = static_cast<char>(api().malloc_usable_size(block));
}
void free_inside(void* block, size_t) { api().free(static_cast<char*>(block) + 64); }

// In a thread of its own, whose cache is new: a free that lifts an array above its mark is looked at. Trims give back
// the caches of threads that ended, before it and after it.
template <class Act>
void with_new_cache(Act act) {
  api().malloc_trim(0);
  std::thread(act).join();
  api().malloc_trim(0);
}
void free_inside_first(void*, size_t bytes) {
  with_new_cache([bytes] { free_inside(api().malloc(bytes), bytes); });
}
// The first of so many blocks, freed again after all of them.
template <size_t kBlocks>
void free_first_again(void*, size_t bytes) {
  with_new_cache([bytes] {
    static void* blocks[kBlocks];
    for (void*& block : blocks) block = api().malloc(bytes);
    for (void* block : blocks) api().free(block);
    api().free(blocks[0]);
  });
}
void free_what_a_thread_freed(void*, size_t bytes) {
  with_new_cache([bytes] {
    void* block = api().malloc(bytes);
    void* other = api().malloc(bytes);  // the slab stays
    with_new_cache([block] { api().free(block); });
    api().free(block);
    api().free(other);
  });
}
// It would stay where it is.
void reallocate_oddly_inside(void* block, size_t bytes) {
  static_bytes[0] = static_cast<char>(api().realloc(static_cast<char*>(block) + 40, bytes - 1) != nullptr);
}
void reallocate_freed_in_place(void* block, size_t bytes) {
  void* other = api().malloc(bytes);
  api().free(block);
  api().free(other);
  static_bytes[0] = static_cast<char>(api().realloc(block, bytes - 1) != nullptr);
}

const Misuse kMisuses[] = {
    {"free_twice", "double free", free_twice, {16, 1000, 9000}},
    {"free_twice_large",
     "free",
     free_twice,
     {65536, 200000, 1 << 20, (1 << 20) + 1, 5 << 20, 8 << 20, (8 << 20) + 1, 64 << 20}},
    {"free_after_pairs", "double free", free_after_pairs, {100}},
    {"free_with_another_between", "free", free_with_another_between, {40000, 5 << 20}},
    {"realloc", "realloc", reallocate_freed, {48, 5000, 50000, 200000, 1 << 20, 5 << 20}},
    {"realloc_hugely", "realloc", reallocate_freed_hugely, {48, 5000, 50000, 200000, 1 << 20, 5 << 20}},
    {"usable_size", "malloc_usable_size", ask_freed, {24, 5000, 32000, 100000}},
    {"inside", "free", free_inside, {40000}},
    {"inside_first", "invalid free", free_inside_first, {100, 1000, 5000, 32000}},
    {"free_after_others", "double free", free_first_again<4>, {5000, 20000}},
    {"free_after_many", "double free", free_first_again<60>, {16, 1000}},
    {"free_after_a_flush", "double free", free_first_again<3000>, {16, 500}},
    {"free_what_a_thread_freed", "double free", free_what_a_thread_freed, {48, 1000, 10000}},
    {"realloc_oddly_inside", "realloc", reallocate_oddly_inside, {1000, 5000, 30000}},
    {"realloc_in_place", "realloc", reallocate_freed_in_place, {1000, 10000}},
};

class FreedBlock : public testing::TestWithParam<Misuse> {};

// The hit path's own check and those of the slow paths: what the fast build sees at once, before the block can have two
// owners.
TEST_P(FreedBlock, IsNotTakenForALiveOne) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  const Misuse& misuse = GetParam();
  for (const size_t bytes : misuse.sizes) {
    const ChildEnd end = run_in_child([&] { misuse.apply(api().malloc(bytes), bytes); });
    EXPECT_EQ(end.signal, SIGABRT) << bytes << ": " << end.describe();
    EXPECT_EQ(end.errors.rfind("freestone: ", 0), 0u) << bytes << ": " << end.describe();
    if (subject().is_hardened) continue;  // says more: the trailer knows
    EXPECT_NE(end.errors.find(misuse.said), std::string::npos) << bytes << ": " << end.describe();
  }
}

INSTANTIATE_TEST_SUITE_P(Misuses, FreedBlock, testing::ValuesIn(kMisuses),
                         [](const auto& info) { return std::string(info.param.name); });

// A child whose fork cut nobody short looks at every block again, live runs too.
TEST(ForkedAlone, ATrimSeesAWriteBehindALiveRun) {
  if (kEmulated) GTEST_SKIP() << "the emulator wipes no memory when a process forks";
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of the hardened build";
  EXPECT_TRUE(dies_by(SIGABRT, [] {
    auto* block = static_cast<volatile char*>(api().malloc(40000));
    for (size_t i = 0; i < 16; ++i) block[40000 + i] = 1;
    api().malloc_trim(0);
  }));
}

// Free memory that becomes a guard loses its contents: it is looked at before. Where the next block lies is drawn, so
// several times.
TEST_F(HardenedTest, AWriteAfterFreeIsSeenWhereAGuardComes) {
  for (int round = 0; round < 4; ++round) {
    const ChildEnd end = run_in_child([] {
      constexpr size_t kBytes = 32761;  // three units
      auto* block = static_cast<char*>(api().malloc(kBytes));
      std::fill_n(block, kBytes, 'p');
      std::thread([block] { api().free(block); }).join();
      block[24570] = 'w';
      for (int turn = 0; turn < 3; ++turn) {
        void* blocks[300];
        for (void*& other : blocks) other = api().malloc(kBytes);
        for (void* other : blocks) api().free(other);
      }
    });
    EXPECT_NE(end.signal, 0) << "round " << round << ": " << end.describe();
  }
}

// The first block of a slab: what lies before it may not be touched.
TEST_F(HardenedTest, AnInteriorPointerOfABlockBehindAGuardEndsInOneClearLineAndAbort) {
  constexpr size_t kUnit = 16384;
  for (const size_t size : {24u, 100u, 1000u, 5000u}) {
    std::vector<char*> first;
    for (int i = 0; i < 4000 && first.size() < 4; ++i) {
      auto* block = static_cast<char*>(api().malloc(size));
      if (reinterpret_cast<uintptr_t>(block) % kUnit == 0) first.push_back(block);
    }
    ASSERT_FALSE(first.empty());
    for (char* block : first) {
      for (const size_t inside : {1, 8, 16, 17, 24, 32, 39, 40}) {
        if (inside >= size) continue;
        EXPECT_TRUE(dies_by(SIGABRT, "invalid free", [&] { api().free(block + inside); }))
            << size << " bytes, " << inside << " behind its start";
      }
    }
  }
}

// The kernel puts a new mapping right before the last one: a write that runs on from one block would reach another.
TEST_F(HardenedTest, AMappedBlockFaultsBehindItsLastPage) {
  constexpr size_t kMapped = 40 << 20, kAllButTheMark = kMapped - 8;
  for (const bool resized : {false, true}) {
    for (const bool beyond : {false, true}) {
      const auto write = [&] {
        volatile char* blocks[4];
        for (auto& block : blocks) {
          block = static_cast<char*>(api().malloc(resized ? 2 * kMapped : kAllButTheMark));
          if (resized) block = static_cast<char*>(api().realloc(const_cast<char*>(block), kAllButTheMark));
          block[kMapped - 9] = 1;
        }
        if (beyond) blocks[3][kMapped] = 1;
      };
      EXPECT_TRUE(dies_by(beyond ? SIGSEGV : 0, write)) << "resized: " << resized;
    }
  }
}

// A large block that shrinks keeps its place in the hardened build, and what it gives up faults.
TEST(ShrunkLargeBlock, FaultsBehindItsNewEnd) {
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of the hardened build";
  constexpr size_t kBytes = 200000;
  EXPECT_TRUE(ends_well([] { static_cast<volatile char*>(api().malloc(kBytes))[kBytes - 1] = 1; }));
  EXPECT_TRUE(dies_by(SIGSEGV, [] {
    void* old = api().malloc(kBytes);
    auto* block = static_cast<volatile char*>(api().realloc(old, kBytes / 2));
    if (block != old) return 1;
    block[kBytes - 1] = 1;
    return 0;
  }));
}

// Content stays, what is gained shows nothing of the past, and the next owner of the memory can use all of it.
TEST(ShrunkLargeBlock, GrowsAgainAndIsReusedWhole) {
  for (const size_t bytes : {size_t{100000}, size_t{200000}, size_t{700000}, size_t{9000000}}) {
    const int turns = bytes < 1000000 ? 400 : 8;
    for (int turn = 0; turn < turns; ++turn) {
      auto* block = static_cast<char*>(api().malloc(bytes));
      ASSERT_NE(block, nullptr);
      std::fill_n(block, bytes, 'a');
      for (const size_t next : {bytes / 2, bytes / 2 + 5000, bytes / 3, bytes - 1, bytes / 2, bytes}) {
        const size_t kept = std::min(next, bytes / 3);
        block = static_cast<char*>(api().realloc(block, next));
        ASSERT_NE(block, nullptr);
        ASSERT_EQ(static_cast<size_t>(std::count(block, block + kept, 'a')), kept) << bytes << " to " << next;
      }
      const auto shown = std::count(block + bytes / 2, block + bytes, 'a');
      ASSERT_TRUE(shown == 0 || !subject().is_hardened) << bytes;
      api().free(block);
    }
  }
}

// A large block that grows keeps its place where it can. What it gains is zero, and the page behind it faults.
TEST(GrownLargeBlock, KeepsItsPlaceAndFaultsBehindItsNewEnd) {
  if (!subject().is_hardened) GTEST_SKIP() << "a promise of the hardened build";
  constexpr int kMoved = 10;  // exit status of a child without fault: this and how often the block moved, of 8 times
  int moved = 0;
  for (const size_t start : {size_t{40000}, size_t{100000}, size_t{140000}, size_t{500000}}) {
    const auto grow = [start](bool overflow) {
      int moves = 0;
      size_t bytes = start;
      auto* block = static_cast<char*>(api().malloc(bytes));
      std::fill_n(block, bytes, 'a');
      for (int step = 0; step < 8; ++step) {
        const size_t next = bytes + bytes / 4;
        auto* grown = static_cast<char*>(api().realloc(block, next));
        if (std::count(grown, grown + bytes, 'a') != static_cast<std::ptrdiff_t>(bytes)) return 1;
        if (std::count(grown + bytes, grown + next, 0) != static_cast<std::ptrdiff_t>(next - bytes)) return 2;
        std::fill_n(grown + bytes, next - bytes, 'a');
        moves += grown != block ? 1 : 0;
        block = grown;
        bytes = next;
      }
      constexpr size_t kUnit = 16384;
      const auto behind = (reinterpret_cast<uintptr_t>(block) + bytes + 8 + kUnit - 1) / kUnit * kUnit;
      if (overflow) *reinterpret_cast<volatile char*>(behind) = 1;
      api().free(block);
      return kMoved + moves;
    };
    const ChildEnd control = run_in_child([&] { return grow(false); });
    ASSERT_GE(control.exit_status, kMoved) << start << ": " << control.describe();
    moved += control.exit_status - kMoved;
    EXPECT_TRUE(dies_by(SIGSEGV, [&] { return grow(true); })) << start;
  }
  EXPECT_LE(moved, 20);  // of 32; 4 in a fresh heap. What earlier tests left stands in the way of some.
}

// memcpy remembers the large block of its last call, which may be freed, shorter or somebody else's by the next.
TEST(RememberedLargeBlock, IsLookedAtAgain) {
  Dl_info info;
  if (dladdr(dlsym(RTLD_DEFAULT, "memcpy"), &info) == 0 || std::strstr(info.dli_fname, "freestone") == nullptr)
    GTEST_SKIP() << "memcpy is libc's";
  const auto copy = reinterpret_cast<void* (*)(void*, const void*, size_t)>(dlsym(RTLD_DEFAULT, "memcpy"));
  for (const size_t bytes : {size_t{60000}, size_t{300000}, size_t{1500000}}) {
    static char outside[64];
    const auto run = [&](auto change, bool reads) {
      return run_in_child([&] {
        auto* block = static_cast<char*>(api().malloc(bytes));
        char* const at = block + bytes - 5000;
        std::memset(block, 1, bytes);
        const auto use = [&] { reads ? copy(outside, at, 64) : copy(at, outside, 64); };
        use();
        change(block);
        use();
      });
    };
    for (const bool reads : {false, true}) {
      const ChildEnd control = run([](char*) {}, reads);
      EXPECT_TRUE(control.exited_with(0)) << bytes << ": " << control.describe();
      const ChildEnd freed = run([](char* block) { api().free(block); }, reads);
      EXPECT_TRUE(freed.signal == SIGABRT || freed.signal == SIGSEGV) << bytes << ": " << freed.describe();
      const ChildEnd shrunk = run([&](char* block) { static_cast<void>(api().realloc(block, bytes - 6000)); }, reads);
      EXPECT_EQ(shrunk.signal, SIGABRT) << bytes << ": " << shrunk.describe();
    }
  }
}

TEST(ForeignPointerBeforeTheFirstAllocationOfAThread, IsRefusedToo) {
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  EXPECT_TRUE(dies_by(SIGABRT, "", [] {
    pthread_t thread;
    const auto body = [](void*) -> void* { return api().free(static_bytes + 16), nullptr; };
    pthread_create(&thread, nullptr, body, nullptr);
    pthread_join(thread, nullptr);
    return 0;
  }));
}

}  // namespace
}  // namespace freestone_test
