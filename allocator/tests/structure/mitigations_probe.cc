// The core with some of its mitigations, under a small program. mitigations_test.py compiles both.
//
// What leads upward out of the core is answered here: nobody samples, and nothing is due.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "abi/entry.h"
#include "front/fork.h"
#include "front/reclaim.h"
#include "front/sampled.h"
#include "region/account.h"

namespace freestone {

namespace {
void nothing() {}
void nothing_of(const void*) {}
}  // namespace
constinit const AttentionHook attention_hook = nothing;
constinit const FailureWitness failure_witness = nothing_of;
constinit const StartObservers start_observers = nothing;
constinit const SampleObserver* const sample_functions = nullptr;
constinit const ArenaCalls arena_calls = {};
constinit const ForkHooks abi_fork_hooks = {nothing, nothing, nothing};
constinit const ForkHooks heaps_fork_hooks = {nothing, nothing, nothing};
constinit const ForkHooks sampling_fork_hooks = {nothing, nothing, nothing};
constinit const ForkHooks upkeep_fork_hooks = {nothing, nothing, nothing};

namespace {

constexpr unsigned kThreads = 3;
constexpr unsigned kPlaces = 256;
constexpr unsigned kRounds = 20'000;

struct Held {
  Atomic<usize> block;  // its size stands in its first word, and again in its last
};
Held places[kPlaces];
Atomic<u32> wrong;

void put(char* block, usize bytes) {
  std::memcpy(block, &bytes, sizeof bytes);
  std::memcpy(block + bytes - sizeof bytes, &bytes, sizeof bytes);
}
void expect_whole(const char* block) {
  usize bytes, again;
  std::memcpy(&bytes, block, sizeof bytes);
  std::memcpy(&again, block + bytes - sizeof bytes, sizeof bytes);
  if (bytes != again) wrong.add_relaxed(1);
}

// Any thread frees what any thread allocated.
void* work(void* seed) {
  u64 random = address_of(seed);
  for (unsigned round = 0; round < kRounds; ++round) {
    random = mix_bits(random + 1);
    const usize bytes = sizeof(usize) * 2 + (random >> 32) % (usize{1} << (4 + random % 17));
    auto* block = static_cast<char*>(random % 64 == 0 ? serve_calloc(bytes) : serve_malloc(bytes));
    if (random % 64 == 0 && block[bytes / 2] != 0) wrong.add_relaxed(1);
    put(block, bytes);
    if (random % 32 == 1) {
      block = static_cast<char*>(serve_realloc(block, 2 * bytes));
      expect_whole(block);
    }
    auto* old = reinterpret_cast<char*>(places[random >> 8 & (kPlaces - 1)].block.exchange_seq(address_of(block)));
    if (old == nullptr) continue;
    expect_whole(old);
    serve_free(old);
  }
  return nullptr;
}

// A child frees a block twice, with another free between.
bool finds_double_free() {
  const pid_t child = fork();
  if (child == 0) {
    void* const one = serve_malloc(100);
    void* const other = serve_malloc(100);
    serve_free(one);
    serve_free(other);
    serve_free(one);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace
}  // namespace freestone

int main() {
  pthread_t team[freestone::kThreads];
  for (freestone::usize t = 0; t < freestone::kThreads; ++t)
    pthread_create(&team[t], nullptr, freestone::work, reinterpret_cast<void*>(t + 1));
  for (const pthread_t thread : team) pthread_join(thread, nullptr);
  if (freestone::wrong.load_relaxed() != 0) return std::puts("blocks were changed"), 1;
  if (!freestone::trim(0)) return std::puts("nothing went back"), 1;
  if (!freestone::finds_double_free()) return std::puts("a double free went unseen"), 1;
  return 0;
}
