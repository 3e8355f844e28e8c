#include "explore/world.h"

#include <sys/mman.h>

#include "platform/leaving.h"
#include "platform/message.h"
#include "region/metadata.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

Region region;
Atomic<u64> worked_ms;
const FailureWitness failure_witness = nullptr;
const WatchHooks watch_hooks = {[] {}, [] { return false; }};  // nobody watches pages leave

Span take_span(usize, usize) { return {}; }
UnitIndex take_stored_run(unsigned, usize, usize) { return kNoUnit; }
bool store_run(unsigned, UnitIndex, usize) { return false; }
bool fill_around(UnitIndex, usize) { return false; }
bool has_plain_pages(UnitIndex) { return false; }
Span take_guarded_span(usize, usize, usize) {
  const UnitIndex first = explore::next_span;
  explore::next_span = kNoUnit;
  return {first, false};
}
// No slab becomes ground, but for a test that has memory for it.
[[gnu::weak]] void* take_metadata(usize) { return nullptr; }
[[gnu::weak]] void return_metadata(void*, usize) {}
void return_span(UnitIndex, usize, bool) { ++explore::spans_returned; }
void return_guarded_span(UnitIndex, usize, usize, bool) { ++explore::spans_returned; }

}  // namespace freestone

namespace explore {

unsigned spans_returned = 0;
freestone::UnitIndex next_span = freestone::kNoUnit;

void make_world() {
  using namespace freestone;
  if (region.metadata != 0) return;
  const auto map = [](usize bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    return address_of(memory);
  };
  constexpr usize kUnits = kSupers * kSuperGroups * kGroupUnits;
  region.metadata = map(kSupers * kSuperStride);
  region.base = map(units_to_bytes(kUnits));  // tags lie at its start; the blocks behind are never touched
  region.heap_start = kGroupUnits;
  region.window_end = kUnits;
  region.frontier.store_relaxed(kUnits);
  region.frontier_bytes.store_relaxed(units_to_bytes(kUnits));
}

}  // namespace explore
