// Room 9, front: see sampled.h.

#include "front/sampled.h"

#include "span/span_heap.h"

namespace freestone {

constinit Atomic<const SampleObserver*> sample_observer;

UnitIndex take_sampled_units(usize bytes, usize units, usize alignment_units, usize offset) {
  const Span span = take_span(units, alignment_units);
  if (span.first == kNoUnit) return kNoUnit;
  Record& record = record_of(span.first);
  record.run_units = static_cast<u32>(units);
  record.request_bytes = bytes;
  record.words[0].store_relaxed(address_of(unit_address(span.first)) + offset);
  for (usize k = 0; k < units; ++k) set_tag(span.first + static_cast<UnitIndex>(k), kTagSampled);
  // Every unit finds the first: a guarded block may start in a later one.
  for (usize k = 0; k < units; ++k) record_of(span.first + static_cast<UnitIndex>(k)).words[1].store_relaxed(span.first);
  return span.first;
}

void return_sampled_units(UnitIndex first) {
  const usize units = record_of(first).run_units;
  for (usize k = 0; k < units; ++k) set_tag(first + static_cast<UnitIndex>(k), kTagNone);
  return_span(first, units, true);
}

UnitIndex sampled_first_unit(const void* pointer) {
  if (!in_window(pointer)) return kNoUnit;
  const UnitIndex unit = unit_of(pointer);
  return tag_of(unit) == kTagSampled ? static_cast<UnitIndex>(record_of(unit).words[1].load_relaxed()) : kNoUnit;
}

}  // namespace freestone
