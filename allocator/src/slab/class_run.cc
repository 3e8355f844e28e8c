// Room 7, slab: see class_run.h.

#include "slab/class_run.h"

#include "base/places.h"
#include "platform/message.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

alignas(64) Atomic<usize> runs_out[kClassEnd];  // relaxed: statistics

usize guard_units() { return guards_spans() ? 1 : 0; }

void* begin(SizeClass size_class, UnitIndex first) {
  set_class_run(first, static_cast<u8>(size_class));
  set_tags(first + 1, class_info(size_class).units - 1, kTagInside);
  return unit_address(first);
}

UnitIndex end(SizeClass size_class, void* run) {
  const usize units = class_info(size_class).units;
  if (FREESTONE_UNLIKELY(address_of(run) % kUnitBytes != 0))
    fail("invalid free", run, "the address is not the start of a block");
  expect_run_clear(run, units_to_bytes(units));
  set_tags(unit_of(run), units, kTagNone);
  return unit_of(run);
}

}  // namespace

void* take_class_run(SizeClass size_class, unsigned shard, bool& zeroed) {
  const ClassInfo& info = class_info(size_class);
  zeroed = kMitigations.zero_on_free;  // whoever hands a stored one out checks that
  UnitIndex first = take_stored_run(shard, info.units);
  if (first == kNoUnit) {
    const Span span = take_guarded_span(info.units, 1, guard_units());
    if (span.first == kNoUnit) return nullptr;
    first = span.first;
    zeroed = span.zeroed;
    if constexpr (kMitigations.zero_on_free) record_of(first).run_state = RunState::fresh;
  }
  runs_out[size_class].add_relaxed(1);
  return begin(size_class, first);
}

unsigned take_class_runs(SizeClass size_class, unsigned shard, unsigned room, void** out) {
  if constexpr (!kKeepsClassRuns) {
    bool zeroed;
    *out = take_class_run(size_class, shard, zeroed);
    return *out != nullptr ? 1 : 0;
  }
  const usize units = class_info(size_class).units;
  UnitIndex spans[kClassRunsMax];
  spans[0] = take_stored_run(shard, units);
  const unsigned taken = spans[0] != kNoUnit ? 1 : take_spans(units, min_of(room, kClassRunsMax), spans);
  for (unsigned k = 0; k < taken; ++k) out[taken - 1 - k] = begin(size_class, spans[k]);
  runs_out[size_class].add_relaxed(taken);
  return taken;
}

void return_class_runs(SizeClass size_class, unsigned shard, void* const* runs, unsigned count, bool keep) {
  const ClassInfo& info = class_info(size_class);
  runs_out[size_class].sub_relaxed(count);
  if constexpr (!kKeepsClassRuns) {
    for (unsigned k = 0; k < count; ++k) return_guarded_span(end(size_class, runs[k]), info.units, guard_units(), true);
    return;
  }
  UnitIndex spans[kClassRunsMax];
  unsigned leaving = 0;
  for (unsigned k = 0; k < count; ++k) {
    const UnitIndex first = end(size_class, runs[k]);
    if (!keep || !store_run(shard, first, info.units)) spans[leaving++] = first;
  }
  if (leaving > 0) return_spans(info.units, leaving, spans);
}

void return_cleared_class_run(SizeClass size_class, unsigned shard, UnitIndex first) {
  const usize units = class_info(size_class).units;
  runs_out[size_class].sub_relaxed(1);
  if (store_run(shard, first, units)) return;  // with its tags, so a second free is known
  set_tags(first, units, kTagNone);
  return_guarded_span(first, units, guard_units(), true);
}

void seal_class_run(SizeClass size_class, UnitIndex first) {
  runs_out[size_class].sub_relaxed(1);
  return_sealed_run(first, class_info(size_class).units);
}

void note_run_resized(SizeClass from, SizeClass to) {
  runs_out[from].sub_relaxed(1);
  runs_out[to].add_relaxed(1);
}

usize class_runs_outside(SizeClass size_class) { return runs_out[size_class].load_relaxed(); }

constinit Places class_run_places = {runs_out};

}  // namespace freestone
