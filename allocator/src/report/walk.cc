// Room 18, report: see walk.h.

#include "report/walk.h"

#include <algorithm>

#include "cache/cache.h"
#include "cache/lifetime.h"
#include "front/sampled.h"
#include "front/thread_cache.h"
#include "hardened/checked.h"
#include "hardened/large.h"
#include "heaps/heap_object.h"
#include "platform/os.h"
#include "report/statistics.h"
#include "slab/ground.h"
#include "span/mapping.h"
#include "span/run.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

// An array of fixed capacity in its own mapping. It is outside the account, because it lives only as long as the walk.
template <typename T>
class Scratch {
 public:
  explicit Scratch(usize capacity) : bytes_(round_up(max_of<usize>(capacity, 1) * sizeof(T), os::page_bytes())) {
    data_ = static_cast<T*>(os::map(bytes_));
  }
  ~Scratch() {
    if (data_ != nullptr) os::unmap(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  bool exists() const { return data_ != nullptr; }
  void add(const T& item) {
    if (count_ < bytes_ / sizeof(T)) data_[count_++] = item;
  }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  usize capacity() const { return bytes_ / sizeof(T); }
  usize& count() { return count_; }

 private:
  usize bytes_;
  T* data_;
  usize count_ = 0;
};

struct Mapping {
  void* block;
  usize bytes;
};

// Steps through the units and the sorted list of cached blocks together, in address order.
class Walker {
 public:
  Walker(void* const* cached, void* const* cached_end, bool (*visit)(void*, void*, usize), void* context)
      : cached_(cached), cached_end_(cached_end), visit_(visit), context_(context) {}

  bool see(void* block, usize bytes) {
    while (cached_ != cached_end_ && *cached_ < block) ++cached_;
    if (cached_ != cached_end_ && *cached_ == block) return true;
    return visit_(context_, block, bytes);
  }
  bool see_slab(UnitIndex unit, SizeClass c) {
    const ClassInfo& info = class_info(c);
    const Record& record = record_of(unit);
    for (u32 n = 0; n < info.blocks; ++n) {
      const bool free = (record.words[n / 64].load_relaxed() & bit(n % 64)) != 0;
      if (!free && !see(unit_address(unit) + usize{n} * info.bytes, info.bytes)) return false;
    }
    return true;
  }
  bool see_ground(UnitIndex unit) {
    return for_each_on_ground(unit, [this](void* block, usize bytes) { return see(block, bytes); });
  }
  // Returns how many units to step forward; 0 to stop.
  usize see_unit(UnitIndex unit) {
    const u8 tag = tag_of(unit);
    if (is_nothing(tag)) return 1;
    if (const SizeClass c = class_at(unit); c != 0) {
      const bool on = is_slab_class(c) ? see_slab(unit, c) : see(unit_address(unit), class_info(c).bytes);
      return on ? class_info(c).units : 0;
    }
    if (tag == kTagGround) return see_ground(unit) ? ground_units_at(unit) : 0;
    if (tag == kTagRun) {
      const usize units = run_units(unit);  // 0: in the run cache
      return units == 0 || see(unit_address(unit), units_to_bytes(units)) ? max_of<usize>(units, 1) : 0;
    }
    if (tag == kTagSampled && sampled_first_unit(unit_address(unit)) == unit && sampled_block(unit) != nullptr) {
      return see(sampled_block(unit), sampled_bytes(unit)) ? SampledRecord(unit).units() : 0;
    }
    return 1;
  }

 private:
  void* const* cached_;
  void* const* cached_end_;
  bool (*visit_)(void*, void*, usize);
  void* context_;
};

// In the child of a fork: what the caches of other threads hold goes back.
void drain_orphans() {
  if (Cache* cache = ensure_cache(); cache != nullptr) freestone::drain_orphans(*cache);
}

struct Forward {
  bool (*visit)(void*, void*, usize);
  void* context;
  bool go_on;
};

bool forward(void* context, void* block, usize bytes) {
  auto& f = *static_cast<Forward*>(context);
  f.go_on = f.go_on && f.visit(f.context, block, bytes);
  return f.go_on;
}

}  // namespace

bool walk_live_blocks(bool (*visit)(void* context, void* block, usize bytes), void* context) {
  drain_orphans();
  flush_stored_runs();  // they are free, but their tags may not say so while they wait
  usize counts[kClassEnd];
  count_cached(counts);
  usize cached_count = 64;  // spare room, because other threads may push meanwhile
  for (const usize n : counts) cached_count += n;
  Scratch<void*> cached(cached_count);
  Scratch<Mapping> mappings(mapping_counts().blocks + 64);
  if (!cached.exists() || !mappings.exists()) return false;
  cached.count() = copy_cached_blocks(cached.begin(), cached.capacity());
  std::sort(cached.begin(), cached.end());
  for_each_mapping(
      [](void* list, void* block, usize bytes) { static_cast<Scratch<Mapping>*>(list)->add({block, bytes}); },
      &mappings);

  Walker walker(cached.begin(), cached.end(), visit, context);
  const UnitIndex end = region.frontier.load_acquire();
  for (usize unit = region.heap_start; unit < end;) {
    const usize step = walker.see_unit(static_cast<UnitIndex>(unit));
    if (step == 0) return true;
    unit += step;
  }
  for (const Mapping& m : mappings) {
    if (!visit(context, m.block, m.bytes)) return true;
  }
  Forward f{visit, context, true};
  walk_heap_objects(forward, &f);
  return true;
}

const char* find_damage() {
  if (region.frontier.load_acquire() == kNoUnit) return nullptr;
  drain_orphans();
  if (!spans_are_valid()) return "the bitmaps of free spans contradict their counters";
  if (!slabs_are_valid()) return "a slab's bitmap contradicts its summary";
  if (!ground_is_valid()) return "ground's bitmaps contradict each other";
  if (!caches_are_valid()) return "a thread cache is out of order";
  if (!heap_objects_are_valid()) return "a heap object's lists contradict its counters";
  HeapFigures s;
  collect_figures(s, ProcessFigures::left_out);
  if (s.charged_bytes != s.committed_bytes + s.mapped_bytes + s.metadata_bytes - s.clean_bytes)
    return "the account differs from what is in use";
  return nullptr;
}

}  // namespace freestone
