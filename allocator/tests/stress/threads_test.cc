// Threads: blocks that cross them, threads that come and go, many more threads than cores, and what happens at a
// thread's end.
#include <gtest/gtest.h>
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "model/block.h"
#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

// A block with content, made and checked by any thread.
Block make(uint64_t id, size_t size) {
  Block block;
  block.start = static_cast<unsigned char*>(api().malloc(size));
  block.size = size;
  block.id = id;
  if (block.start != nullptr) fill(block);
  return block;
}

std::atomic<uint64_t> damaged{0};

void destroy(const Block& block) {
  if (block.start == nullptr || !intact(block, block.size)) damaged.fetch_add(1);
  api().free(block.start);
}

class Threads : public testing::Test {
  void SetUp() override { damaged = 0; }
  void TearDown() override { EXPECT_EQ(damaged.load(), 0u) << "blocks that were missing or had changed"; }
};

template <typename Body>
void run_threads(size_t count, Body body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

struct Channel {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::vector<Block>> batches;
  bool closed = false;

  void put(std::vector<Block> batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return batches.size() < 64; });
    batches.push_back(std::move(batch));
    changed.notify_all();
  }
  bool take(std::vector<Block>& batch) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return closed || !batches.empty(); });
    if (batches.empty()) return false;
    batch = std::move(batches.front());
    batches.pop_front();
    changed.notify_all();
    return true;
  }
  void close() {
    const std::lock_guard lock(mutex);
    closed = true;
    changed.notify_all();
  }
};

// One-way traffic: what the producers allocate is freed by others, so memory must find its way back.
TEST_F(Threads, ProducersAndConsumersKeepContentAndMemory) {
  for (const size_t producers : {1, 3}) {
    Channel channel;
    const uint64_t seed = test_seed("producers");
    const size_t before = resident_bytes();
    std::atomic<size_t> peak{0};
    std::vector<std::thread> consumers;
    for (int i = 0; i < 2; ++i)
      consumers.emplace_back([&] {
        for (std::vector<Block> batch; channel.take(batch);)
          for (const Block& block : batch) destroy(block);
      });
    run_threads(producers, [&](size_t thread) {
      Random random(seed + thread);
      for (uint64_t i = 0; i < scaled(6000) / producers; ++i) {
        std::vector<Block> batch;
        for (uint64_t j = 0; j < 100; ++j)
          batch.push_back(make(thread << 40 | i << 8 | j,
                               random.below(20) == 0 ? random.log_uniform(1000, 40000) : 1 + random.below(400)));
        channel.put(std::move(batch));
        if (thread == 0 && i % 500 == 0) peak = std::max(peak.load(), resident_bytes());
      }
    });
    channel.close();
    for (std::thread& consumer : consumers) consumer.join();
    // At most 65 batches of about 0.1 MiB wait at a time; hundreds of MiB pass through.
    EXPECT_LT(peak.load(), before + (size_t{96} << 20)) << "memory does not come back from the consumers";
  }
}

TEST_F(Threads, BlocksOutliveTheThreadsThatMadeThem) {
  const uint64_t seed = test_seed("churn");
  std::mutex mutex;
  std::vector<Block> heritage;
  for (uint64_t generation = 0; generation < scaled(250); ++generation) {
    run_threads(8, [&](size_t thread) {
      Random random(seed + generation * 8 + thread);
      std::vector<Block> own;
      for (uint64_t i = 0; i < 200; ++i)
        own.push_back(make(generation << 32 | thread << 16 | i, 1 + random.log_uniform(1, 5000)));
      for (int i = 0; i < 100; ++i) {
        std::swap(own[random.below(own.size())], own.back());
        destroy(own.back());
        own.pop_back();
      }
      const std::lock_guard lock(mutex);
      heritage.insert(heritage.end(), own.begin(), own.end());
      // Half of what earlier threads left is freed here.
      for (size_t i = heritage.size() / 2; i > 0; --i) {
        std::swap(heritage[random.below(heritage.size())], heritage.back());
        destroy(heritage.back());
        heritage.pop_back();
      }
    });
  }
  for (const Block& block : heritage) destroy(block);
}

TEST_F(Threads, HundredTwentyEightOnFewCoresKeepContent) {
  const uint64_t seed = test_seed("many");
  pthread_barrier_t start;
  pthread_barrier_init(&start, nullptr, 128);
  run_threads(128, [&](size_t thread) {
    Random random(seed + thread);
    std::vector<Block> table(64);
    pthread_barrier_wait(&start);
    for (uint64_t i = 0; i < scaled(12000); ++i) {
      Block& block = table[random.below(table.size())];
      if (block.start != nullptr) destroy(block);
      block = make(thread << 40 | i, random.below(50) == 0 ? random.log_uniform(1024, 100000) : random.below(512));
    }
    for (const Block& block : table)
      if (block.start != nullptr) destroy(block);
  });
  pthread_barrier_destroy(&start);
}

TEST_F(Threads, FreeingEachOthersBlocksInTurnKeepsContent) {
  // Larson's pattern: every thread frees and replaces blocks in every other thread's table.
  constexpr size_t kThreads = 6;
  const uint64_t seed = test_seed("crossing");
  std::vector<std::pair<std::mutex, std::vector<Block>>> tables(kThreads);
  run_threads(kThreads, [&](size_t thread) {
    Random random(seed + thread);
    for (uint64_t i = 0; i < scaled(120000); ++i) {
      const Block fresh = make(thread << 40 | i, 1 + random.below(1500));
      auto& [mutex, table] = tables[random.below(kThreads)];
      Block old;
      {
        const std::lock_guard lock(mutex);
        if (table.size() < 500) {
          table.push_back(fresh);
          continue;
        }
        old = std::exchange(table[random.below(table.size())], fresh);
      }
      destroy(old);
    }
  });
  for (const auto& [mutex, table] : tables)
    for (const Block& block : table) destroy(block);
}

// Destructors of a thread's own data run at its end, some after the allocator's own: all of them may allocate and free.
struct LateUser {
  std::vector<Block> blocks;
  LateUser() { blocks.push_back(make(1, 100)); }
  ~LateUser() {
    for (const Block& block : blocks) destroy(block);
    for (uint64_t i = 0; i < 50; ++i) destroy(make(i, 16 + i * 40));
  }
};

pthread_key_t late_keys[8];
std::atomic<int> late_runs{0};

void late_destructor(void* value) {
  const auto round = reinterpret_cast<uintptr_t>(value);
  for (uint64_t i = 0; i < 100; ++i) destroy(make(i, 8 + i * 30));
  late_runs.fetch_add(1);
  // Comes back until the last round of destructors (there are at least four).
  if (round < 5) pthread_setspecific(late_keys[round % 8], reinterpret_cast<void*>(round + 1));
}

TEST_F(Threads, DestructorsAtTheirEndMayAllocateAndFree) {
  for (pthread_key_t& key : late_keys) ASSERT_EQ(pthread_key_create(&key, late_destructor), 0);
  late_runs = 0;
  const uint64_t rounds = std::max<uint64_t>(1, scaled(60));
  for (uint64_t round = 0; round < rounds; ++round)
    run_threads(8, [](size_t) {
      thread_local LateUser user;
      user.blocks.push_back(make(7, 3000));
      for (const pthread_key_t key : late_keys) pthread_setspecific(key, reinterpret_cast<void*>(1));
      destroy(make(9, 64));
    });
  EXPECT_GT(late_runs.load(), static_cast<int>(8 * 8 * rounds))
      << "destructors that set their key again were not called again";
  for (const pthread_key_t key : late_keys) pthread_key_delete(key);
}

// A thread whose first call is a free, or that only allocates in its destructors.
TEST_F(Threads, MayBeginWithAFreeOrAllocateOnlyAtTheirEnd) {
  pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key, late_destructor), 0);
  late_keys[0] = key;
  for (int round = 0; round < 300; ++round) {
    std::vector<Block> blocks;
    for (uint64_t i = 0; i < 200; ++i) blocks.push_back(make(i, 64 + i));
    std::thread freeing([&] {
      for (const Block& block : blocks) destroy(block);
    });
    std::thread ending([&] { pthread_setspecific(key, reinterpret_cast<void*>(6)); });
    freeing.join();
    ending.join();
  }
  pthread_key_delete(key);
}

TEST_F(Threads, CancelledOnesLeaveASoundHeap) {
#ifdef FREESTONE_TEST_ADDRESS_SANITIZER
  GTEST_SKIP() << "the address sanitizer takes what a cancelled thread's frames leave on its stack for an error";
#endif
  for (int round = 0; round < 100; ++round) {
    sem_t started;
    sem_init(&started, 0, 0);
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void* started) -> void* {
          for (uint64_t i = 0;; ++i) {
            destroy(make(i, 1 + i % 2000));
            if (i == 50) sem_post(static_cast<sem_t*>(started));
            pthread_testcancel();
          }
        },
        &started);
    sem_wait(&started);
    pthread_cancel(thread);
    pthread_join(thread, nullptr);
    sem_destroy(&started);
  }
}

// POSIX does not promise it. CANCEL-1
TEST_F(Threads, CancelledInsideACallHoldNothingUp) {
#if defined(FREESTONE_TEST_ADDRESS_SANITIZER) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own locks are left taken";
#endif
  if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
  EXPECT_TRUE(ends_well([] {
    alarm(100);
    static const auto take = api().malloc;  // C++ ends the program if it is cancelled in a frame that cleans up
    static const auto give = api().free;
    const auto use = [](void* seed) -> void* {
      pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, nullptr);
      std::array<void*, 64> blocks{};
      for (auto s = reinterpret_cast<uint64_t>(seed);; s = s * 6364136223846793005U + 1) {
        give(blocks[s >> 50 & 63]);
        blocks[s >> 50 & 63] = take((s >> 40 & 1) != 0 ? s >> 30 & 0x7ffff : s >> 30 & 0xfff);
      }
    };
    for (uintptr_t round = 0; round < scaled(20); ++round) {
      std::array<pthread_t, 6> threads{};
      for (pthread_t& thread : threads)
        if (pthread_create(&thread, nullptr, use, reinterpret_cast<void*>(round * 7919 + 1)) != 0) return 2;
      usleep(1000);
      for (const pthread_t& thread : threads) pthread_cancel(thread);
      for (const pthread_t& thread : threads) pthread_join(thread, nullptr);
    }
    for (size_t size = 1; size < size_t{64} << 20; size = size * 3 / 2 + 1)
      for (int i = 0; i < 20; ++i) destroy(make(size, size));
    return 0;
  }));
}

}  // namespace
}  // namespace freestone_test
