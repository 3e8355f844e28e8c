// fork at the worst moment: other threads are inside the allocator. The child must be able to use the whole heap at
// once.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <memory>
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
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i, seed] { run(i, seed + i); });
  }
  ~Churn() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    free_all();
  }
  // In a child: nobody else runs. A block that its thread held in a register at the fork is lost, none is there twice.
  void free_all() {
    for (auto& table : tables_)
      for (auto& slot : table) api().free(slot.exchange(nullptr));
  }
  uint64_t operations() const { return operations_; }

 private:
  void run(size_t index, uint64_t seed) {
    Random random(seed);
    while (!stop_) {
      auto& slot = tables_[random.below(4) == 0 ? random.below(tables_.size()) : index][random.below(256)];
      const size_t size = random.below(200) == 0 ? random.log_uniform(32768, 2 << 20) : 1 + random.below(2000);
      auto* block = static_cast<char*>(api().malloc(size));
      if (block != nullptr) block[size - 1] = 1;
      api().free(slot.exchange(block));
      operations_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  std::vector<std::array<std::atomic<void*>, 256>> tables_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> operations_{0};
};

// The end of a child, told by its status; a child that hangs is killed by its alarm.
int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Fork, WhileThreadsAllocateGivesAChildAWholeHeap) {
  const uint64_t seed = test_seed("fork");
  Churn churn(4, seed);
  for (uint64_t i = 0; i < scaled(400); ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(kHangSeconds);
      const Exercise result = Exerciser(seed + i).run(80);
      churn.free_all();
      _exit(result.sound() && result.nulls == 0 ? 0 : 1);
    }
    ASSERT_EQ(wait_for(child), 0) << "fork " << i;
  }
  EXPECT_GT(churn.operations(), 1000u);
}

TEST(Fork, InAChildThatStartsThreadsWorksAgain) {
  const uint64_t seed = test_seed("fork in fork");
  Churn churn(2, seed);
  for (uint64_t i = 0; i < scaled(25); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangSeconds);
      int failures = 0;
      {
        Churn inner(2, seed + i);
        for (int j = 0; j < 3; ++j) {
          const pid_t grandchild = fork();
          if (grandchild == 0) {
            const bool sound = Exerciser(seed + static_cast<uint64_t>(j)).run(100).sound();
            inner.free_all();
            _exit(sound ? 0 : 1);
          }
          failures += wait_for(grandchild) != 0;
        }
      }
      churn.free_all();
      _exit(failures);
    }
    ASSERT_EQ(wait_for(child), 0) << "fork " << i;
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
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kHangSeconds);
    pthread_t thread;
    const auto allocate = [](void*) -> void* {
      for (auto*& block : of_thread) memset(block = static_cast<unsigned char*>(api().malloc(kBytes)), 1, kBytes);
      return nullptr;
    };
    if (pthread_create(&thread, nullptr, allocate, nullptr) != 0 || pthread_join(thread, nullptr) != 0) _exit(2);
    for (auto*& block : of_survivor) memset(block = static_cast<unsigned char*>(api().malloc(kBytes)), 2, kBytes);
    for (const auto* block : of_thread)
      if (block[0] != 1 || block[kBytes - 1] != 1) _exit(1);
    _exit(0);
  }
  EXPECT_EQ(wait_for(child), 0);
}

TEST(Fork, FromSeveralThreadsAtOnceWorks) {
  const uint64_t seed = test_seed("forking threads");
  Churn churn(2, seed);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (uint64_t i = 0; i < scaled(40); ++i) {
        const pid_t child = fork();
        if (child == 0) {
          alarm(kHangSeconds);
          _exit(Exerciser(seed + thread * 1000 + i).run(100).sound() ? 0 : 1);
        }
        failures += wait_for(child) != 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

TEST(Fork, ChildMayExitOrdinarilyWithAtexitHandlersThatAllocate) {
  Churn churn(4, test_seed("fork and exit"));
  for (uint64_t i = 0; i < scaled(30); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangSeconds);
      std::atexit([] { _exit(Exerciser(3).run(100).sound() ? 17 : 18); });
      std::exit(0);
    }
    ASSERT_EQ(wait_for(child), 17);
  }
}

TEST(Fork, HandlersOfOthersMayAllocate) {
  static bool registered = false;
  if (!registered) {
    registered = true;
    const auto use_heap = [] { api().free(api().malloc(5000)); };
    pthread_atfork(use_heap, use_heap, use_heap);
  }
  Churn churn(4, test_seed("atfork"));
  for (uint64_t i = 0; i < scaled(100); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(kHangSeconds);
      _exit(Exerciser(4).run(60).sound() ? 0 : 1);
    }
    ASSERT_EQ(wait_for(child), 0) << "fork " << i;
  }
}

// What the parent holds is not disturbed by what children do.
TEST(Fork, ChildrenDoNotTouchTheParentsBlocks) {
  std::vector<unsigned char*> blocks;
  for (size_t i = 0; i < 5000; ++i) {
    auto* block = static_cast<unsigned char*>(api().malloc(1 + i % 700));
    std::memset(block, static_cast<int>(i), 1 + i % 700);
    blocks.push_back(block);
  }
  for (uint64_t i = 0; i < scaled(20); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (unsigned char* block : blocks) {
        *block = 0xEE;
        api().free(block);
      }
      _exit(Exerciser(6).run(100).sound() ? 0 : 1);
    }
    ASSERT_EQ(wait_for(child), 0);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (size_t at = 0; at < 1 + i % 700; ++at) ASSERT_EQ(blocks[i][at], static_cast<unsigned char>(i));
    api().free(blocks[i]);
  }
}

}  // namespace
}  // namespace freestone_test
