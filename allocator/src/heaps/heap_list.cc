// Room 11, heaps: all heap objects of the process, their beginning and end, and what a fork does to them.

#include <cstddef>
#include <new>

#include "base/places.h"
#include "front/fork.h"
#include "heaps/heap_object.h"
#include "region/metadata.h"

namespace freestone {

constinit Mutex heap_object_lock{LockName::heap_objects};

static HeapObject* first_heap FREESTONE_GUARDED_BY(heap_object_lock) = nullptr;

// What the fork handlers need of the class.
struct HeapObjects {
  FREESTONE_AT_START static void before_fork() {
    heap_object_lock.hold_for_fork();
    if (!heap_object_lock.is_mine()) return;  // the list may change
    for (HeapObject* h = first_heap; h != nullptr; h = h->next_) h->lock_.hold_for_fork();
  }
  FREESTONE_AT_START FREESTONE_NO_ANALYSIS static void after_fork_in_parent() {  // held since before_fork
    if (!heap_object_lock.is_mine()) return;
    for (HeapObject* h = first_heap; h != nullptr; h = h->next_) h->lock_.release_after_fork();
    heap_object_lock.release_after_fork();
  }
  FREESTONE_NO_ANALYSIS static void after_fork_in_child() {  // the locks are seized or not
    const bool cut_short = heap_object_lock.seize_in_child();
    HeapObject* previous = nullptr;
    for (HeapObject* h = first_heap; h != nullptr; previous = h, h = h->next_) {
      if (cut_short) h->previous_ = previous;
      if (!h->lock_.seize_in_child()) continue;
      h->count_anew();
      h->lock_.unlock();
    }
    if (cut_short) heap_object_lock.unlock();
  }
  static void link(HeapObject* heap) FREESTONE_REQUIRES(heap_object_lock) {
    heap->next_ = first_heap;
    if (first_heap != nullptr) first_heap->previous_ = heap;
    order_stores();  // FORK-3: the chain of `next_` is whole
    first_heap = heap;
  }
  static void unlink(HeapObject* heap) FREESTONE_REQUIRES(heap_object_lock) {
    if (heap->previous_ != nullptr) heap->previous_->next_ = heap->next_;
    if (heap->next_ != nullptr) heap->next_->previous_ = heap->previous_;
    if (first_heap == heap) first_heap = heap->next_;
  }
  template <typename Function>
  static void for_each(Function function) {
    LockGuard guard(heap_object_lock);
    for (HeapObject* h = first_heap; h != nullptr; h = h->next_) function(*h);
  }
  static void add(HeapObjectCounts& counts, const HeapObject& h) {
    ++counts.heaps;
    counts.span_bytes += h.span_bytes_.load_relaxed() - sizeof(HeapObject);
    counts.live_bytes += h.live_bytes_.load_relaxed();
    counts.live_blocks += h.live_blocks_.load_relaxed();
  }
  static constexpr u32 kLayout[] = {sizeof(HeapObject), offsetof(HeapObject, next_), offsetof(HeapObject, span_bytes_)};
};

constinit const ForkHooks heaps_fork_hooks = {HeapObjects::before_fork, HeapObjects::after_fork_in_parent,
                                              HeapObjects::after_fork_in_child};

HeapObject* HeapObject::create(usize limit_bytes, bool is_arena) {
  if (limit_bytes < sizeof(HeapObject)) return nullptr;
  void* memory = take_metadata(sizeof(HeapObject));
  if (memory == nullptr) return nullptr;
  auto* heap = new (memory) HeapObject(limit_bytes, is_arena);
  LockGuard guard(heap_object_lock);
  HeapObjects::link(heap);
  return heap;
}

usize HeapObject::destroy(HeapObject* heap) {
  {
    LockGuard guard(heap_object_lock);
    HeapObjects::unlink(heap);
  }
  const usize live = heap->reset();
  return_metadata(heap, sizeof(HeapObject));
  return live;
}

HeapObjectCounts heap_object_counts() {
  HeapObjectCounts counts = {};
  HeapObjects::for_each([&](HeapObject& h) { HeapObjects::add(counts, h); });
  return counts;
}

bool heap_objects_are_valid() {
  bool valid = true;
  HeapObjects::for_each([&](HeapObject& h) { valid = valid && h.is_valid(); });
  return valid;
}

usize walk_heap_objects(HeapObject::Visit visit, void* context) {
  usize visited = 0;
  HeapObjects::for_each([&](HeapObject& h) { visited += h.walk(visit, context); });
  return visited;
}

constinit Places heap_places = {&first_heap, HeapObjects::kLayout};

}  // namespace freestone
