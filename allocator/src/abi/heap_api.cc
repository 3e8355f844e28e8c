// Room 20, abi: limits, callbacks, walking, heap objects, the profiler and the search for leaks of freestone.h. It
// checks arguments and decides nothing.

#include <cerrno>
#include <cstring>

#include "abi/locks.h"
#include "base/compiler.h"
#include "cache/quarantine.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "front/reclaim.h"
#include "heaps/heap_object.h"
#include "leaks/leak.h"
#include "limits/limits.h"
#include "platform/leaving.h"
#include "platform/message.h"
#include "platform/seal.h"
#include "profile/profile.h"
#include "region/account.h"
#include "report/walk.h"
#include "sampling/sampling.h"

using namespace freestone;

namespace {

// The program's callbacks. There are two places, so a thread that reads the old ones while new ones are set still reads
// whole pointers.
struct Callbacks {
  struct freestone_callbacks given;
  OutOfMemoryHandler handler;
};
static_assert(2 * sizeof(Callbacks) <= sizeof sealed_page.callbacks.room);
Callbacks& callbacks(unsigned place) { return reinterpret_cast<Callbacks*>(sealed_page.callbacks.room)[place]; }
unsigned current_callbacks FREESTONE_GUARDED_BY(callbacks_lock) = 0;
Atomic<u32> told_callbacks;  // which of them learn of corruption; published by the observer

bool ask_program(void* context, usize bytes, unsigned attempt) {
  const auto* given = static_cast<const struct freestone_callbacks*>(context);
  return given->out_of_memory(given->context, bytes, attempt) != 0;
}

void tell_program(const char* kind, const void* block, const char* detail) {
  const auto& given = callbacks(told_callbacks.load_acquire() % 2).given;
  given.corruption(given.context, kind, block, detail);
}

// A C visitor that returns int, called through one that returns bool.
struct Visitor {
  freestone_visitor visit;
  void* context;
};
bool call_visitor(void* context, void* block, usize bytes) {
  const auto* visitor = static_cast<const Visitor*>(context);
  return visitor->visit(visitor->context, block, bytes) != 0;
}

HeapObject* object(freestone_heap* heap) { return reinterpret_cast<HeapObject*>(heap); }

}  // namespace

extern "C" {

FREESTONE_EXPORT int freestone_set_limits(const struct freestone_limits* limits) {
  if (limits == nullptr || limits->version != FREESTONE_LIMITS_VERSION) return EINVAL;
  if (ensure_started() != Mode::active) return ENOTSUP;
  return set_limits(limits->soft_bytes, limits->hard_bytes);
}

FREESTONE_EXPORT int freestone_get_limits(struct freestone_limits* limits) {
  if (limits == nullptr || limits->version != FREESTONE_LIMITS_VERSION) return EINVAL;
  const usize soft = account.soft.load_relaxed();
  const usize hard = account.hard.load_relaxed();
  limits->reserved = 0;
  limits->soft_bytes = soft == kNoLimit ? 0 : soft;
  limits->hard_bytes = hard == kNoLimit ? 0 : hard;
  return 0;
}

FREESTONE_EXPORT int freestone_set_callbacks(const struct freestone_callbacks* wanted) {
  if (wanted != nullptr && wanted->version != FREESTONE_CALLBACKS_VERSION) return EINVAL;
  LockGuard guard(callbacks_lock);
  const OpenedSeal seal;
  if (!seal.is_open()) return EPERM;
  GivenCallbacks& in_force = sealed_page.callbacks;
  in_force.out_of_memory.store_release(nullptr);
  in_force.corruption.store_release(nullptr);
  if (wanted == nullptr) return 0;
  Callbacks& place = callbacks(current_callbacks ^= 1);
  place.given = *wanted;
  place.handler = {ask_program, &place.given};
  told_callbacks.store_release(current_callbacks);
  if (wanted->out_of_memory != nullptr) in_force.out_of_memory.store_release(&place.handler);
  if (wanted->corruption != nullptr) in_force.corruption.store_release(reinterpret_cast<const void*>(tell_program));
  return 0;
}

FREESTONE_EXPORT int freestone_on_pages_leaving(void (*tell)(void*, void*, size_t), void* context) {
  LockGuard guard(callbacks_lock);
  const OpenedSeal seal;
  if (!seal.is_open()) return EPERM;
  GivenCallbacks& in_force = sealed_page.callbacks;
  static unsigned last FREESTONE_GUARDED_BY(callbacks_lock);
  if (tell != nullptr) in_force.watchers[last ^= 1] = {tell, context};
  in_force.watcher.store_release(tell != nullptr ? &in_force.watchers[last] : nullptr);
  return 0;
}

FREESTONE_EXPORT void freestone_thread_never_purges(int never) { os::set_never_purges(never != 0); }

FREESTONE_EXPORT void freestone_flush_thread() {
  if (mode() == Mode::active && this_thread.cache_offset != 0) flush_all(thread_cache());
}

FREESTONE_EXPORT int freestone_walk(freestone_visitor visit, void* context) {
  if (visit == nullptr) return EINVAL;
  if (ensure_started() != Mode::active) return ENOTSUP;
  Visitor visitor{visit, context};
  return walk_live_blocks(call_visitor, &visitor) ? 0 : ENOMEM;
}

FREESTONE_EXPORT int freestone_validate(const char** damage) {
  const char* found = ensure_started() == Mode::active ? find_damage() : nullptr;
  if (damage != nullptr) *damage = found;
  return found == nullptr ? 0 : EFAULT;
}

FREESTONE_EXPORT freestone_heap* freestone_heap_create(size_t limit_bytes) {
  if (ensure_started() != Mode::active) return nullptr;
  return reinterpret_cast<freestone_heap*>(HeapObject::create(limit_bytes == 0 ? ~usize{0} : limit_bytes));
}

FREESTONE_EXPORT size_t freestone_heap_destroy(freestone_heap* heap) {
  return heap == nullptr ? 0 : HeapObject::destroy(object(heap));
}
FREESTONE_EXPORT void* freestone_heap_allocate(freestone_heap* heap, size_t bytes) {
  return object(heap)->allocate(bytes, kGranule);
}

FREESTONE_EXPORT void* freestone_heap_allocate_zeroed(freestone_heap* heap, size_t bytes) {
  void* block = object(heap)->allocate(bytes, kGranule);
  if (block != nullptr) std::memset(block, 0, bytes);
  return block;
}

FREESTONE_EXPORT void* freestone_heap_allocate_aligned(freestone_heap* heap, size_t bytes, size_t alignment) {
  return is_power_of_two(alignment) ? object(heap)->allocate(bytes, alignment) : nullptr;
}

FREESTONE_EXPORT void* freestone_heap_reallocate(freestone_heap* heap, void* block, size_t bytes) {
  return object(heap)->reallocate(block, bytes);
}
FREESTONE_EXPORT void freestone_heap_deallocate(freestone_heap* heap, void* block) { object(heap)->deallocate(block); }
FREESTONE_EXPORT size_t freestone_heap_usable_size(freestone_heap* heap, const void* block) {
  return object(heap)->usable_bytes(block);
}

FREESTONE_EXPORT int freestone_heap_get_stats(freestone_heap* heap, struct freestone_heap_stats* stats) {
  if (heap == nullptr || stats == nullptr || stats->version != FREESTONE_HEAP_STATS_VERSION) return EINVAL;
  const HeapObject::Counts c = object(heap)->counts();
  const usize limit = c.limit_bytes == ~usize{0} ? 0 : c.limit_bytes;
  *stats = {FREESTONE_HEAP_STATS_VERSION, 0, limit, c.span_bytes, c.peak_bytes, c.live_bytes, c.live_blocks,
            c.failed_allocations};
  return 0;
}

FREESTONE_EXPORT int freestone_heap_validate(freestone_heap* heap) { return object(heap)->is_valid() ? 0 : EFAULT; }

FREESTONE_EXPORT size_t freestone_heap_walk(freestone_heap* heap, freestone_visitor visit, void* context) {
  Visitor visitor{visit, context};
  return object(heap)->walk(call_visitor, &visitor);
}

FREESTONE_EXPORT void freestone_prof_start() {
  if (ensure_started() == Mode::active) start_profile();
}
FREESTONE_EXPORT void freestone_prof_stop() {
  if (ensure_started() == Mode::active) stop_profile();
}
FREESTONE_EXPORT int freestone_prof_is_active() {
  return ensure_started() == Mode::active && profile_is_active() ? 1 : 0;
}
FREESTONE_EXPORT int freestone_prof_dump(const char* path) {
  return ensure_started() == Mode::active ? dump_profile(path) : 0;
}
FREESTONE_EXPORT size_t freestone_leak_check() {
  return ensure_started() == Mode::active ? static_cast<size_t>(report_leaks().lost_samples) : 0;
}

}  // extern "C"
