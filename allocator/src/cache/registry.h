// Room 8, cache: all caches of the process, by the thread that works on each, and the seats of threads that have none.
// The registry's lock is held to look at another thread's cache; the owners go on meanwhile.
#pragma once

#include <cstddef>

#include "cache/cache.h"

namespace freestone {

extern Mutex cache_registry_lock;

// The caller holds the lock.
void enter_registry(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock);
// Nothing happens if it is not there.
void leave_registry(Cache& cache) FREESTONE_REQUIRES(cache_registry_lock);
// Says who works on the cache from now on; 0: it is parked.
void set_worker(Cache& cache, usize worker) FREESTONE_REQUIRES(cache_registry_lock);
// In the child of a fork, every cache made before the fork but one has no owner (lifetime.h).
inline bool is_orphan(const Cache& cache) { return cache.generation != process_generation(); }
// Any orphan, or null.
Cache* find_orphan() FREESTONE_REQUIRES(cache_registry_lock);
// Another thread's cache at the caller's address, for a caller without a cache: that thread is dead.
Cache* find_left_behind();

// Threads without a cache take a seat while they use a slab: the child of a fork repairs what they hold, too.
class Seated {
 public:
  Seated();
  ~Seated();
  Seated(const Seated&) = delete;
  Seated& operator=(const Seated&) = delete;
  SlabUser& user();

 private:
  unsigned seat_;
};

// Counts the blocks in all caches, per class. The owners may go on.
void count_cached(usize (&blocks)[kClassEnd]);
usize cache_count();
// Calls visit(context, cache, cached bytes) for each thread's cache, under the registry's lock. The owners may go on.
void for_each_cache(void (*visit)(void* context, const Cache& cache, usize cached_bytes), void* context);
// Sends each thread's next allocation of up to kGranuleTableBytes to the slow path; a thread that its cache always
// serves would never go there. For that, all entries of its table of classes name the second entry of class 0, which is
// always empty. Any thread may call it, also in a signal handler; it does nothing while another thread has the
// registry's lock.
void recall_caches();
// By this, another process that asks something (upkeep/request.h) does the same without the lock.
struct CachePlaces {
  Cache* const* chains;  // of `next`
  u64 chain_count;
  u64 next_at = offsetof(Cache, next);
  u64 table_at = offsetof(Cache, class_of_granules);
  u64 table_bytes = sizeof kClassOfGranules.of;
  u64 table_entry = kCountedEntry;
  u64 recalled_at = offsetof(Cache, recalled);  // written last
};
extern "C" FREESTONE_EXPORT const CachePlaces freestone_caches;
// The runs that threads keep.
RunCounts held_runs();
// Copies the addresses of at most `room` cached blocks; returns how many. Complete if the owners are at rest.
usize copy_cached_blocks(void** out, usize room);
bool caches_are_valid();

// In the child of a fork: repairs what other threads were changing at the fork, but not the calling thread's cache.
void repair_registry_in_child(const Cache* own);
void settle_struck_registry();  // CANCEL-1

}  // namespace freestone
