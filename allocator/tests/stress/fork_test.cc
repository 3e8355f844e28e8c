// fork while other threads are in the midst of the allocator. The child must be able to use the whole heap at once.
// What handlers of others do is stress.fork_handlers; that the parent's blocks stay as they are is stress.fork_held.
#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/exercise.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

// Threads that allocate, free and pass blocks around until told to stop; their blocks are reachable, so that a child
// may free them.
class Churn {
 public:
  explicit Churn(size_t threads, uint64_t seed) : tables_(threads) {
    for (size_t i = 0; i < threads; ++i) random_.emplace_back(seed + i);
    threads_.emplace(threads, [this](size_t i) { step(i); });
  }
  ~Churn() {
    threads_.reset();
    free_all();
  }
  // In a child: nobody else runs. A block that its thread held in a register at the fork is lost, none is there twice.
  void free_all() {
    for (auto& table : tables_)
      for (auto& slot : table) api().free(slot.exchange(nullptr));
  }
  uint64_t operations() const { return operations_; }

 private:
  void step(size_t index) {
    Random& random = random_[index];
    auto& slot = tables_[random.below(4) == 0 ? random.below(tables_.size()) : index][random.below(256)];
    const size_t size = random.below(200) == 0 ? random.log_uniform(32768, 2 << 20) : 1 + random.below(2000);
    auto* block = static_cast<char*>(api().malloc(size));
    if (block != nullptr) block[size - 1] = 1;
    api().free(slot.exchange(block));
    operations_.fetch_add(1, std::memory_order_relaxed);
  }

  std::vector<std::array<std::atomic<void*>, 256>> tables_;
  std::vector<Random> random_;
  std::atomic<uint64_t> operations_{0};
  std::optional<Background> threads_;
};

TEST(Fork, WhileThreadsAllocateGivesAChildAWholeHeap) {
  const uint64_t seed = test_seed("fork");
  Churn churn(4, seed);
  for (uint64_t i = 0; i < scaled(400); ++i) {
    const int status = fork_and([&] {
      const Exercise result = Exerciser(seed + i).run(80);
      churn.free_all();
      return result.sound() && result.nulls == 0 ? 0 : 1;
    });
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  EXPECT_GT(churn.operations(), 1000u);
}

TEST(Fork, InAChildThatStartsThreadsWorksAgain) {
  const uint64_t seed = test_seed("fork in fork");
  Churn churn(2, seed);
  for (uint64_t i = 0; i < scaled(25); ++i) {
    const int status = fork_and([&] {
      int failures = 0;
      {
        Churn inner(2, seed + i);
        for (uint64_t j = 0; j < 3; ++j)
          failures += fork_and([&] {
            const int result = exercise(seed + j, 100);
            inner.free_all();
            return result;
          }) != 0;
      }
      churn.free_all();
      return failures;
    });
    ASSERT_EQ(status, 0) << "fork " << i;
  }
}

// The blocks that the forking thread has cached are its own, whoever is the first to allocate in the child.
TEST(Fork, AChildsFirstThreadLeavesTheSurvivorsBlocksAlone) {
  constexpr size_t kBytes = 48;
  static std::array<unsigned char*, 4000> of_thread;
  std::array<unsigned char*, 64> of_survivor{};
  for (auto*& block : of_survivor) block = static_cast<unsigned char*>(api().malloc(kBytes));
  for (auto* block : of_survivor) api().free(block);
  std::thread([] {}).join();  // its stack is used again: the child's pthread_create does not allocate
  const int status = fork_and([&] {
    pthread_t thread;
    const auto allocate = [](void*) -> void* {
      for (auto*& block : of_thread) memset(block = static_cast<unsigned char*>(api().malloc(kBytes)), 1, kBytes);
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, allocate, nullptr) != 0 || pthread_join(thread, nullptr) != 0) return 2;
    for (auto*& block : of_survivor) memset(block = static_cast<unsigned char*>(api().malloc(kBytes)), 2, kBytes);
    for (const auto* block : of_thread)
      if (block[0] != 1 || block[kBytes - 1] != 1) return 1;
    return 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(Fork, FromSeveralThreadsAtOnceWorks) {
  const uint64_t seed = test_seed("forking threads");
  Churn churn(2, seed);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < scaled(40); ++i)
        failures += fork_and([&] { return exercise(seed + thread * 1000 + i, 100); }) != 0;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(Fork, ChildMayExitOrdinarilyWithAtexitHandlersThatAllocate) {
  Churn churn(4, test_seed("fork and exit"));
  for (uint64_t i = 0; i < scaled(30); ++i) {
    const int status = fork_and([]() -> int {
      std::atexit([] { _exit(17 + exercise(3, 100)); });
      std::exit(0);
    });
    ASSERT_EQ(status, 17);
  }
}

}  // namespace
}  // namespace freestone_test
