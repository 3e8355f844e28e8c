// Room 9, front: see sampled.h.

#include "front/sampled.h"

#include "base/places.h"
#include "cache/registry.h"
#include "region/account.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

constinit SampleObserverSwitch sample_observer;
constinit Atomic<Sampling> sampling;
constinit Atomic<u32> sampling_epoch;
constinit Atomic<usize> sampled_closed_bytes;

static Atomic<usize> live_blocks;  // relaxed: statistics
static Atomic<usize> live_bytes;

void note_sampled_freed(UnitIndex first) {
  live_blocks.sub_relaxed(1);
  live_bytes.sub_relaxed(sampled_bytes(first));
}

SampledCounts sampled_counts() { return {live_blocks.load_relaxed(), live_bytes.load_relaxed()}; }

void set_sampling(Sampling mode) {
  sampling.store_release(mode);   // publishes sample_observer to renew_counting
  sampling_epoch.add_release(1);  // publishes the mode to renew_counting
  order_all();  // with answer_recall: the thread that answers sees both, or its answer is overwritten
  recall_caches();
}

void renew_counting(Cache& cache) {
  answer_recall(cache);
  stop_counting(cache);
  const u32 epoch = sampling_epoch.load_acquire();  // first: the mode is of this epoch or a later one
  const Sampling wanted = sampling.load_acquire();
  if (wanted != Sampling::off)
    start_counting(cache, sample_observer.load_acquire()->distances, wanted == Sampling::every_block, epoch);
}

void* sample_allocation(Cache& cache, SizeClass size_class, usize bytes, usize alignment, bool* track) {
  const SampleObserver* observer = sample_observer.load_acquire();
  const bool wanted = sampling.load_relaxed() != Sampling::off;
  const bool stale = wanted && cache.counting != nullptr && cache.counting->epoch != sampling_epoch.load_relaxed();
  if (stale || wanted != (cache.counting != nullptr) || cache.recalled.load_relaxed() != 0) renew_counting(cache);
  if (cache.counting == nullptr) return nullptr;
  const bool due = size_class != 0 ? count_class_allocation(cache, size_class, bytes, observer->distances)
                                   : count_bytes(cache, bytes, observer->distances);
  if (!due) return nullptr;
  attend();  // in a program whose caches always hit, a sample is the only slow path
  const bool in_table = size_class != 0 && size_class < kCountedClassEnd;
  return observer->allocate(request_of(bytes), alignment, in_table ? class_info(size_class).bytes : bytes, track);
}

void sample_resized(void* block, usize bytes) {
  const SampleObserver* observer = sample_observer.load_acquire();
  if (FREESTONE_LIKELY(observer == nullptr) || !has_cache()) return;
  Cache& cache = thread_cache();
  if (cache.counting == nullptr || !count_bytes(cache, bytes, observer->distances)) return;
  observer->resized(block, bytes);
}

UnitIndex take_sampled_units(usize bytes, usize units, usize alignment_units, usize offset) {
  const Span span = take_span(units, alignment_units);
  if (span.first == kNoUnit) return kNoUnit;
  const SampledRecord record(span.first);
  record.units() = static_cast<u32>(units);
  record.bytes() = bytes;
  record.block().store_relaxed(address_of(unit_address(span.first)) + offset);
  record.sample().store_relaxed(0);
  record.guard().store_relaxed(0);
  set_tags(span.first, units, kTagSampled);
  live_blocks.add_relaxed(1);
  live_bytes.add_relaxed(bytes);
  // Every unit finds the first: a guarded block may start in a later one.
  for (usize k = 0; k < units; ++k) {
    SampledRecord(span.first + static_cast<UnitIndex>(k)).first_unit().store_relaxed(span.first);
  }
  return span.first;
}

void return_sampled_units(UnitIndex first) {
  const usize units = SampledRecord(first).units();
  set_tags(first, units, kTagNone);
  return_used_span(first, units, 0);
}

UnitIndex sampled_first_unit(const void* pointer) {
  if (!in_window(pointer)) return kNoUnit;
  const UnitIndex unit = unit_of(pointer);
  if (tag_of(unit) != kTagSampled) return kNoUnit;
  return static_cast<UnitIndex>(SampledRecord(unit).first_unit().load_relaxed());
}

constinit Places sampled_places = {&live_blocks, &live_bytes, &sampled_closed_bytes};

}  // namespace freestone
