// Threads of every kind are born and die: nothing of them stays, however they end.
//
// Each kind runs in a child of its own. It is judged by the memory and the mappings after some lives and after many
// more. FREESTONE_TEST_OPS=10 makes 20,000 lives of each kind.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "support/child.h"
#include "support/process_memory.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kBlocks = 60;
constexpr intptr_t kRounds = PTHREAD_DESTRUCTOR_ITERATIONS;

void use_heap() {
  std::array<void*, kBlocks> blocks{};
  for (size_t i = 0; i < kBlocks; ++i) std::memset(blocks[i] = api().malloc(16 + i * 67), 1, 16 + i * 67);
  for (void* block : blocks) api().free(block);
}

enum class Ends { returns, exits, exits_raw, exits_in_destructor, cancelled, cancelled_in_destructor, forks };

struct Kind {
  const char* name;
  bool uses_heap = false;
  Ends ends = Ends::returns;
  bool detached = false;
  unsigned at_once = 1;
  size_t own_stack = 0;          // bytes of stacks that the test makes; 0: libc's
  size_t stack = 0;              // bytes of libc's stacks; 0: as libc has them
  intptr_t destructor_from = 0;  // the first round of key destructors that uses the heap; 0: none
  bool younger_key = false;      // than the heap's own
  bool frees_others = false;     // blocks of the thread that made it
  bool thread_local_object = false;
  unsigned share = 1;  // of the usual number of lives: kinds that take long
};

constexpr Kind kKinds[] = {
    {.name = "joined"},
    {.name = "joined_heap", .uses_heap = true},
    {.name = "joined_in_batches", .uses_heap = true, .at_once = 100},
    {.name = "joined_frees_others", .frees_others = true},
    {.name = "joined_thread_local", .thread_local_object = true},
    {.name = "small_stack", .uses_heap = true, .stack = 64 << 10},
    {.name = "own_stack", .at_once = 16, .own_stack = 128 << 10},
    {.name = "own_stack_heap", .uses_heap = true, .at_once = 16, .own_stack = 128 << 10},
    {.name = "detached", .detached = true, .at_once = 16},
    {.name = "detached_heap", .uses_heap = true, .detached = true, .at_once = 16},
    {.name = "detached_large_stack", .detached = true, .at_once = 16, .stack = 32 << 20},
    {.name = "detached_large_stack_heap", .uses_heap = true, .detached = true, .at_once = 16, .stack = 32 << 20},
    {.name = "detached_64", .detached = true, .at_once = 64, .stack = 8 << 20},
    {.name = "detached_own_stack", .detached = true, .at_once = 16, .own_stack = 128 << 10},
    {.name = "detached_own_stack_heap", .uses_heap = true, .detached = true, .at_once = 16, .own_stack = 128 << 10},
    {.name = "destructor_1", .destructor_from = 1},
    {.name = "destructor_2", .destructor_from = 2},
    {.name = "destructor_3", .destructor_from = 3},
    {.name = "destructor_4", .destructor_from = 4},
    {.name = "destructor_4_heap", .uses_heap = true, .destructor_from = 4},
    {.name = "younger_destructor_1", .destructor_from = 1, .younger_key = true},
    {.name = "younger_destructor_4", .destructor_from = 4, .younger_key = true},
    {.name = "younger_destructor_4_heap", .uses_heap = true, .destructor_from = 4, .younger_key = true},
    {.name = "exits", .uses_heap = true, .ends = Ends::exits},
    {.name = "exits_raw", .uses_heap = true, .ends = Ends::exits_raw},
    {.name = "exits_raw_16", .uses_heap = true, .ends = Ends::exits_raw, .at_once = 16},
    {.name = "exits_in_destructor", .uses_heap = true, .ends = Ends::exits_in_destructor, .destructor_from = 1},
    {.name = "exits_in_younger_destructor",
     .uses_heap = true,
     .ends = Ends::exits_in_destructor,
     .destructor_from = 1,
     .younger_key = true},
    {.name = "cancelled", .uses_heap = true, .ends = Ends::cancelled},
    {.name = "cancelled_in_destructor", .uses_heap = true, .ends = Ends::cancelled_in_destructor, .destructor_from = 1},
    {.name = "cancelled_in_younger_destructor",
     .uses_heap = true,
     .ends = Ends::cancelled_in_destructor,
     .destructor_from = 1,
     .younger_key = true},
    {.name = "forks", .uses_heap = true, .ends = Ends::forks, .share = 10},
};

const Kind* kind;
pthread_key_t older_key, younger_key;
pthread_key_t key() { return kind->younger_key ? younger_key : older_key; }

struct Object {
  void* block = api().malloc(300);
  Object() { use_heap(); }
  ~Object() {
    use_heap();
    api().free(block);
  }
};
thread_local Object object;

void destroy(void* value) {
  const auto round = reinterpret_cast<intptr_t>(value);
  if (round >= kind->destructor_from) use_heap();
  if (kind->ends == Ends::exits_in_destructor) pthread_exit(nullptr);
  if (kind->ends == Ends::cancelled_in_destructor) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
  }
  if (round < kRounds) pthread_setspecific(key(), reinterpret_cast<void*>(round + 1));
}

// The heap makes its key for the second thread's cache.
const bool has_older_key = pthread_key_create(&older_key, destroy) == 0;

void live(void** given) {
  if (given != nullptr) {
    for (size_t i = 0; i < kBlocks; ++i) api().free(given[i]);
    api().free(given);
  }
  if (kind->thread_local_object) static_cast<char*>(object.block)[0] = 1;
  if (kind->uses_heap) use_heap();
  if (kind->destructor_from != 0) pthread_setspecific(key(), reinterpret_cast<void*>(1));
  switch (kind->ends) {
    case Ends::exits: pthread_exit(nullptr);
    case Ends::exits_raw: syscall(SYS_exit, 0); break;
    case Ends::cancelled: pthread_cancel(pthread_self()), pthread_testcancel(); break;
    case Ends::forks:
      if (fork_and([] { return use_heap(), 0; }) != 0) std::abort();
      break;
    default: break;
  }
}

struct Place {
  std::atomic<pid_t> thread{0};
  pthread_t id{};
  void** given = nullptr;
  void* stack = nullptr;
};

void* body(void* argument) {
  auto& place = *static_cast<Place*>(argument);
  place.thread = static_cast<pid_t>(syscall(SYS_gettid));
  live(place.given);
  return nullptr;
}

// A detached thread's own stack may serve again once the kernel has forgotten the thread.
void wait_for_end(Place& place) {
  if (!kind->detached) {
    pthread_join(place.id, nullptr);
    return;
  }
  while (place.thread == 0) usleep(10);
  while (syscall(SYS_tgkill, getpid(), place.thread.load(), 0) == 0) usleep(10);
}

void run_lives(std::vector<Place>& places, size_t count) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (kind->detached) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (kind->stack != 0) pthread_attr_setstacksize(&attributes, kind->stack);
  for (size_t i = 0; i < count; i += places.size()) {
    for (Place& place : places) {
      place.thread = 0;
      if (place.stack != nullptr) pthread_attr_setstack(&attributes, place.stack, kind->own_stack);
      if (kind->frees_others) {
        place.given = static_cast<void**>(api().malloc(kBlocks * sizeof(void*)));
        for (size_t k = 0; k < kBlocks; ++k) place.given[k] = api().malloc(10 + k * 40);
      }
      while (pthread_create(&place.id, &attributes, body, &place) != 0) usleep(100);
    }
    for (Place& place : places) wait_for_end(place);
  }
  pthread_attr_destroy(&attributes);
}

class Lives : public testing::TestWithParam<Kind> {};

TEST_P(Lives, LeaveNothing) {
  ASSERT_TRUE(has_older_key);
  kind = &GetParam();
  const size_t lives = scaled(2000) / kind->share;
  const ChildEnd end = run_in_child([&] {
    pthread_t first;
    if (kind->younger_key) {
      pthread_create(&first, nullptr, [](void*) -> void* { return use_heap(), nullptr; }, nullptr);
      pthread_join(first, nullptr);
      pthread_key_create(&younger_key, destroy);
    }
    std::vector<Place> places(kind->at_once);
    for (Place& place : places) {
      if (kind->own_stack == 0) break;
      place.stack = mmap(nullptr, kind->own_stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    run_lives(places, lives / 4);
    // The hardened build's heap swings by some MiB, up and down, and the queues of parked caches fill by and by; what
    // is left behind grows each time. libc keeps stacks for as many threads as there were at once.
    bool stays = false;
    for (unsigned turn = 0; turn < 12 && !stays; ++turn) {
      const size_t resident = resident_bytes(), mappings = mapping_count();
      run_lives(places, lives);
      const auto grown = static_cast<ssize_t>(resident_bytes() - resident);
      const auto mapped = static_cast<ssize_t>(mapping_count() - mappings);
      stays = grown < static_cast<ssize_t>((2048 + 16 * kind->at_once) << 10) &&
              mapped <= static_cast<ssize_t>(2 * kind->at_once + 8);
      if (!stays) dprintf(2, "%zu lives: %zd bytes and %zd mappings more\n", lives, grown, mapped);
    }
    return stays ? 21 : 22;
  });
  EXPECT_TRUE(end.exited_with(21)) << end.describe();
}

INSTANTIATE_TEST_SUITE_P(OfThreads, Lives, testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace freestone_test
