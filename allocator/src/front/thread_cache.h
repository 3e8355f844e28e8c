// Room 9, front: the calling thread's cache. lifecycle.cc makes it and ends it.
//
// TLS holds its offset from `no_cache`, a cache without blocks. Zeroed TLS thus means "no cache yet", before TLS is set
// up and in a thread that has not allocated, and the fast path needs no test.
#pragma once

#include "cache/cache.h"
#include "config/heuristics.h"
#include "platform/leaving.h"

namespace freestone {

struct ThreadState {
  usize cache_offset = 0;  // of the thread's cache from no_cache
  bool no_more = false;    // the thread's destructor ran, or its cache is being made: no new cache
  u8 frees = 0;            // without a cache, up to kFreesAlone
  u16 arena = 0;           // that the thread named by mallctl
  bool came_back = false;  // LEAVING-2: from a watcher
  usize aside_offset = 0;  // of the cache, while it is put aside
  u64 random = 0;          // of the mitigations, while the thread has no cache
};

extern FREESTONE_HIDDEN Cache no_cache;
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL ThreadState this_thread;

FREESTONE_INLINE Cache& thread_cache() {
  auto* cache = reinterpret_cast<Cache*>(address_of(&no_cache) + this_thread.cache_offset);
  // Keeps the address in one register. Otherwise the compiler adds the index first, which takes two more instructions.
  asm("" : "+r"(cache));
  return *cache;
}

// Without a cache, a thread's cache is `no_cache`, which has no room and no block.
inline bool has_cache() { return this_thread.cache_offset != 0; }
inline Cache* cache_if_any() { return FREESTONE_LIKELY(has_cache()) ? &thread_cache() : nullptr; }

// Also while it is put aside.
inline Cache* own_cache() {
  const usize offset = has_cache() ? this_thread.cache_offset : this_thread.aside_offset;
  return offset != 0 ? reinterpret_cast<Cache*>(address_of(&no_cache) + offset) : nullptr;
}

// The calling thread's cache, made if need be; null if the thread has ended or memory is out.
Cache* make_cache();
inline Cache* ensure_cache() { return FREESTONE_LIKELY(has_cache()) ? &thread_cache() : make_cache(); }
// The same for a free. A thread's first frees need no cache: libc frees a detached thread's tables in that thread,
// after the destructors, and a cache made then would stay for ever.
inline Cache* cache_for_free() {
  if (FREESTONE_LIKELY(has_cache())) return &thread_cache();
  if (this_thread.frees == kFreesAlone || os::keeping.watches) return make_cache();
  ++this_thread.frees;
  return nullptr;
}

}  // namespace freestone
