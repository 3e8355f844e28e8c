// A change of sampling beside a thread that answers an older one: at rest the thread counts as it now should, or its
// next allocation takes the slow path and finds out.
#include "cache/counting.h"

#include <gtest/gtest.h>

#include "explore/world.h"
#include "front/sampled.h"
#include "region/account.h"
#include "region/metadata.h"

namespace explore {
namespace {

using namespace freestone;

constinit Cache cache;
Counting counting;
bool is_registry_locked;  // by a third thread: recall_caches does nothing

// One entry stands for the table.
bool is_recalled() {
  return cache.class_of_granules[0].load_relaxed() == kCountedEntry && cache.recalled.load_relaxed() != 0;
}

Outcome search(Sampling before, Sampling after) {
  Scenario scenario;
  scenario.prepare = [before] {
    sampling.store_relaxed(before);
    sampling_epoch.store_relaxed(0);
    sample_observer.begin();
    cache.counting = nullptr;
    cache.recalled.store_relaxed(1);
    for (Atomic<u8>& entry : cache.class_of_granules) entry.store_relaxed(kCountedEntry);
  };
  scenario.threads = {[after] { set_sampling(after); }, [] { renew_counting(cache); }};
  scenario.judge = [after]() -> std::string {
    const bool counts = cache.counting != nullptr;
    if (counts && cache.counting->epoch == sampling_epoch.load_relaxed() &&
        cache.counting->hold_all != (after == Sampling::every_block))
      return "the thread counts by an older mode and cannot know";
    const bool is_current = counts ? cache.counting->epoch == sampling_epoch.load_relaxed() : after == Sampling::off;
    return is_current || is_registry_locked || is_recalled() ? "" : "the recall was overwritten";
  };
  return explore_and_print(scenario, bounds(1, 1));
}

constexpr const char* kNothing = "";

TEST(Counting, BeginsAlthoughAnOlderRecallIsAnswered) {
  EXPECT_EQ(search(Sampling::off, Sampling::some).problem, kNothing);
}

TEST(Counting, TakesTheModeOfItsEpochWithoutARecall) {
  is_registry_locked = true;
  EXPECT_EQ(search(Sampling::some, Sampling::every_block).problem, kNothing);
  is_registry_locked = false;
}

}  // namespace
}  // namespace explore

namespace freestone {

static u64 far_allocations(usize) { return 1000; }
static i64 far_bytes() { return 1000; }
static constexpr SampleObserver kObserver = {{far_allocations, far_bytes}, {}, {}, {}, {}, {}, {}, {}};
const SampleObserver* const sample_functions = &kObserver;

void recall_caches() {  // as cache/registry.cc does it
  if (explore::is_registry_locked) return;
  for (Atomic<u8>& entry : explore::cache.class_of_granules) entry.store_relaxed(kCountedEntry);
  explore::cache.recalled.store_release(1);
}
// Never called or looked at.
constinit Cache no_cache;
FREESTONE_THREAD_LOCAL ThreadState this_thread;
constinit const AttentionHook attention_hook = nullptr;
void return_used_span(UnitIndex, usize, usize) {}

void* take_metadata(usize) { return &explore::counting; }
void return_metadata(void*, usize) {}

}  // namespace freestone
