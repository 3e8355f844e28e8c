// The background thread, heap objects and limits across fork.
#include <dirent.h>
#include <pthread.h>

#include "api/support.h"

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

void make_dirty() { Blocks(8, kMiB - 100000).release(); }

// Another thread that allocates from a heap object, until the end of the scope.
std::jthread allocating_thread(freestone_heap* heap) {
  return std::jthread([heap](const std::stop_token& stop) {
    while (!stop.stop_requested()) freestone_heap_deallocate(heap, freestone_heap_allocate(heap, 500));
  });
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
  EXPECT_TRUE(ends_well([&] {
    make_dirty();
    for (int i = 0; i < 2000; ++i) free(malloc(200000));  // slow paths start the child's thread
    if (!waits_for_threads(2)) return 1;
    return idle_purges(true) ? 0 : 2;
  }));
  ASSERT_EQ(freestone_option_set("background_purge", "false"), 0);
  EXPECT_TRUE(waits_for_threads(before));
}

TEST(HeapObjects, CanBeUsedInAChildForkedWhileOthersAllocate) {
  freestone_heap* heap = freestone_heap_create(0);
  {
    const std::jthread others[] = {allocating_thread(heap), allocating_thread(heap)};
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(ends_well([&] {
        void* block = freestone_heap_allocate(heap, 5000);
        if (block == nullptr || freestone_heap_validate(heap) != 0) return 1;
        freestone_heap_deallocate(heap, block);
        freestone_heap_destroy(heap);
        return 0;
      })) << i;
    }
  }
  EXPECT_EQ(freestone_heap_destroy(heap), 0U);
}

// The program's handler is older than the first heap object and uses it on each side of the fork.
TEST(HeapObjects, CanBeUsedByForkHandlersThatAreOlder) {
  static freestone_heap* heap = nullptr;
  EXPECT_TRUE(ends_well([] {
    const auto use = [] {
      if (heap != nullptr) freestone_heap_deallocate(heap, freestone_heap_allocate(heap, 100));
    };
    pthread_atfork(use, use, use);
    heap = freestone_heap_create(1 << 20);
    const std::jthread other = allocating_thread(heap);
    int failures = 0;
    for (int i = 0; i < 50; ++i) failures += ends_well([] { return freestone_heap_validate(heap); }) ? 0 : 1;
    return failures;
  }));
}

TEST(LimitsAndFork, TheChildKeepsTheLimitAndCountsForItself) {
  ASSERT_EQ(set_limits(0, stats().charged_bytes + 8 * kMiB), 0);
  const ChildEnd end = run_in_child([] {
    Blocks blocks;
    blocks.reserve(100);
    while (void* block = malloc(kMiB)) blocks.push_back(block);
    if (blocks.size() < 4 || blocks.size() > 9) return 1;
    blocks.release();
    return malloc(2 * kMiB) != nullptr ? 0 : 2;
  });
  set_limits(0, 0);
  EXPECT_TRUE(end.exited_with(0)) << end.describe();
}

}  // namespace
}  // namespace freestone_test
