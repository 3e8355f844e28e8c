// Room 11, heaps: heap objects, bounded heaps of their own inside the process.
//
// A heap object takes spans and cuts the small ones into blocks, with the classes and bitmaps of the slab room. Its
// purpose is to bound memory and to free everything at once, not to run many threads at full speed. Its units carry the
// tag kTagHeapObject and the heap's address, so another heap, and free(), refuse its blocks. It has one lock.
//
// OBJECT-1  A span is in exactly one list: `partial` of its class while it has a free block, else `full`, which also
//           holds large spans.
// OBJECT-2  heap.live is the number of clear bits among a slab's blocks; for a large span it is 1.
// OBJECT-3  span_bytes, the object's own record included, never exceeds limit_bytes.
//
// Any thread. Lock order: heap_object_lock, the heap's lock, the span lock.
#pragma once

#include "platform/mutex.h"
#include "slab/slab.h"

namespace freestone {

extern Mutex heap_object_lock;

class HeapObject {
 public:
  // Null if memory is out, or if the limit is below the size of the heap object itself. An arena is heaps/arena.h's.
  static HeapObject* create(usize limit_bytes, bool is_arena = false);
  // Gives all spans back. Returns how many blocks were live.
  static usize destroy(HeapObject* heap);
  // Frees all blocks. Returns how many were live.
  usize reset() FREESTONE_EXCLUDES(lock_);
  // The heap object that holds a unit with the tag kTagHeapObject.
  static HeapObject& holder_of(UnitIndex unit) { return *reinterpret_cast<HeapObject*>(record_of(unit).heap.object); }
  bool is_arena() const { return is_arena_; }

  // Null at the limit, or if the process is out of memory. `alignment` is a power of two up to 2 MiB.
  void* allocate(usize bytes, usize alignment);
  // Each of these aborts with one line, which names the call, if the block is not a live block of this heap.
  void deallocate(void* block, const char* call = "invalid heap free");
  // If it returns null, the block is as it was.
  void* reallocate(void* block, usize bytes, const char* call = "invalid heap realloc");
  usize usable_bytes(const void* block, const char* call = "invalid heap usable size");
  // What usable_bytes would say of a block of so many bytes.
  static usize good_size(usize bytes, usize alignment);

  struct Counts {
    usize limit_bytes;
    usize span_bytes;
    usize peak_bytes;
    usize live_bytes;
    usize live_blocks;
    usize failed_allocations;
  };
  Counts counts();
  bool is_valid();
  // Calls visit for each live block until it returns false, under the heap's lock. Returns the number visited.
  using Visit = bool (*)(void* context, void* block, usize bytes);
  usize walk(Visit visit, void* context);

 private:
  friend struct HeapObjects;
  HeapObject(usize limit_bytes, bool is_arena) : limit_bytes_(limit_bytes), is_arena_(is_arena) {
    span_bytes_.store_relaxed(sizeof(HeapObject));
    peak_bytes_ = sizeof(HeapObject);
  }

  struct Place {
    UnitIndex first;
    u32 number;
    SizeClass size_class;  // 0: a large span
  };

  bool take_bytes(usize bytes) FREESTONE_REQUIRES(lock_);
  void release(UnitIndex first) FREESTONE_REQUIRES(lock_);
  UnitIndex new_span(usize units, usize alignment_units, SizeClass size_class) FREESTONE_REQUIRES(lock_);
  UnitIndex new_slab(SizeClass size_class) FREESTONE_REQUIRES(lock_);
  usize release_empty_slabs() FREESTONE_REQUIRES(lock_);
  void count_anew() FREESTONE_REQUIRES(lock_);
  void push(UnitIndex& list, UnitIndex first);
  void remove(UnitIndex& list, UnitIndex first);
  void* allocate_small(SizeClass size_class) FREESTONE_REQUIRES(lock_);
  void* allocate_large(usize bytes, usize alignment) FREESTONE_REQUIRES(lock_);
  void deallocate_at(const Place& place) FREESTONE_REQUIRES(lock_);
  Place place_of(const char* call, const void* block) FREESTONE_REQUIRES(lock_);
  usize bytes_at(const Place& place) const;
  void note_live(usize bytes) FREESTONE_REQUIRES(lock_);
  void note_dead(usize bytes) FREESTONE_REQUIRES(lock_);
  template <typename Function>
  void for_each_span(Function function) FREESTONE_REQUIRES(lock_);

  Mutex lock_{LockName::heap_object};
  HeapObject* next_ FREESTONE_GUARDED_BY(heap_object_lock) = nullptr;
  HeapObject* previous_ FREESTONE_GUARDED_BY(heap_object_lock) = nullptr;
  const usize limit_bytes_;
  const bool is_arena_;
  // Written under lock_. Statistics read it without the lock.
  Atomic<usize> span_bytes_;
  Atomic<usize> live_bytes_;
  Atomic<usize> live_blocks_;
  usize peak_bytes_ FREESTONE_GUARDED_BY(lock_) = 0;
  usize failed_allocations_ FREESTONE_GUARDED_BY(lock_) = 0;
  UnitIndex full_ FREESTONE_GUARDED_BY(lock_) = kNoUnit;
  UnitIndex partial_[kLastSmallClass + 1] FREESTONE_GUARDED_BY(lock_) = {};
};

struct HeapObjectCounts {
  usize heaps;
  usize span_bytes;  // taken from the region; the heap objects themselves are metadata
  usize live_bytes;
  usize live_blocks;
};
HeapObjectCounts heap_object_counts();
bool heap_objects_are_valid();
// Visits the live blocks of all heap objects.
usize walk_heap_objects(HeapObject::Visit visit, void* context);

}  // namespace freestone
