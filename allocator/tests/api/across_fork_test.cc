// The background thread, heap objects and limits across fork.
#include <dirent.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "api/support.h"
#include "support/child.h"

namespace freestone_test {
namespace {

int thread_count() {
  DIR* folder = opendir("/proc/self/task");
  int count = 0;
  while (const dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

// Asks until the answer is yes; what never comes is ended by the test's time limit.
template <typename Question>
bool comes_true(Question question) {
  while (!question()) usleep(10000);
  return true;
}

bool waits_for_threads(int wanted) {
  return comes_true([wanted] { return thread_count() == wanted; });
}

template <typename Work>
int in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void make_dirty() {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(malloc(kMiB - 100000));
    memset(blocks.back(), 1, kMiB - 100000);
  }
  for (void* block : blocks) free(block);
}

// Half-life 100 ms: what is dirty goes back though the program does nothing.
TEST(BackgroundPurge, GivesBackWhileTheProgramIsIdleAlsoInAChild) {
  if (is_hardened()) GTEST_SKIP() << "freed runs wait sealed instead of becoming dirty";
  EXPECT_EQ(freestone_option_set("dirty_decay_ms", "100"), 0);
  EXPECT_EQ(freestone_option_set("dirty_bytes", "16m"), 0);
  const auto idle_purges = [](bool thread_expected) {
    make_dirty();
    freestone_trim(~size_t{0});  // the run caches go to the spans
    const uint64_t dirty = stats().dirty_bytes;
    const auto purged = [dirty] { return stats().dirty_bytes <= dirty / 4; };
    if (thread_expected) return dirty > kMiB && comes_true(purged);
    for (int i = 0; i < 300 && !purged(); ++i) usleep(10000);
    return purged();
  };
  const int before = thread_count();
  EXPECT_FALSE(idle_purges(false)) << "without the thread nothing happens: the test would prove nothing";
  ASSERT_EQ(freestone_option_set("background_purge", "true"), 0);
  EXPECT_TRUE(waits_for_threads(before + 1));
  EXPECT_TRUE(idle_purges(true));
  EXPECT_EQ(in_child([&] {
    make_dirty();
    for (int i = 0; i < 2000; ++i) free(malloc(200000));  // slow paths start the child's thread
    if (!waits_for_threads(2)) return 1;
    return idle_purges(true) ? 0 : 2;
  }), 0);
  ASSERT_EQ(freestone_option_set("background_purge", "false"), 0);
  EXPECT_TRUE(waits_for_threads(before));
}

TEST(HeapObjects, CanBeUsedInAChildForkedWhileOthersAllocate) {
  freestone_heap* heap = freestone_heap_create(0);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) freestone_heap_deallocate(heap, freestone_heap_allocate(heap, 500));
    });
  }
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(in_child([&] {
      alarm(kHangSeconds);
      void* block = freestone_heap_allocate(heap, 5000);
      if (block == nullptr || freestone_heap_validate(heap) != 0) return 1;
      freestone_heap_deallocate(heap, block);
      freestone_heap_destroy(heap);
      return 0;
    }), 0) << i;
  }
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(freestone_heap_destroy(heap), 0U);
}

// The program's handler is older than the first heap object and uses it on each side of the fork.
TEST(HeapObjects, CanBeUsedByForkHandlersThatAreOlder) {
  static freestone_heap* heap = nullptr;
  EXPECT_EQ(in_child([] {
    alarm(kHangSeconds);
    const auto use = [] {
      if (heap != nullptr) freestone_heap_deallocate(heap, freestone_heap_allocate(heap, 100));
    };
    pthread_atfork(use, use, use);
    heap = freestone_heap_create(1 << 20);
    std::atomic<bool> stop{false};
    std::thread other([&] {
      while (!stop) freestone_heap_deallocate(heap, freestone_heap_allocate(heap, 500));
    });
    int failures = 0;
    for (int i = 0; i < 50; ++i) failures += in_child([] { return freestone_heap_validate(heap); }) != 0;
    stop = true;
    other.join();
    return failures;
  }), 0);
}

TEST(LimitsAndFork, TheChildKeepsTheLimitAndCountsForItself) {
  ASSERT_EQ(set_limits(0, stats().charged_bytes + 8 * kMiB), 0);
  EXPECT_EQ(in_child([] {
    std::vector<void*> blocks;
    blocks.reserve(100);
    while (void* block = malloc(kMiB)) blocks.push_back(block);
    if (blocks.size() < 4 || blocks.size() > 9) return 1;
    for (void* block : blocks) free(block);
    return malloc(2 * kMiB) != nullptr ? 0 : 2;
  }), 0);
  set_limits(0, 0);
}

}  // namespace
}  // namespace freestone_test
