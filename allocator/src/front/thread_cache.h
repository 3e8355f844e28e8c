// Room 9, front: the calling thread's cache. lifecycle.cc makes it, parks it in a fork and ends it.
//
// It is found as an offset from `no_cache`, a cache without any block: zero-initialised TLS therefore means "no cache
// yet", in a thread that has not allocated as well as before TLS is set up, and needs no test.
#pragma once

#include "cache/cache.h"

namespace freestone {

struct ThreadState {
  usize cache_offset = 0;   // of the thread's cache from no_cache
  Cache* parked = nullptr;  // the thread's cache, from a fork to the child's first slow path
  bool ended = false;       // the thread's destructor ran: no new cache
  u64 random = 0;           // of the mitigations, while the thread has no cache
};

extern FREESTONE_HIDDEN Cache no_cache;
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL ThreadState this_thread;

FREESTONE_INLINE Cache& thread_cache() {
  auto* cache = reinterpret_cast<Cache*>(reinterpret_cast<char*>(&no_cache) + this_thread.cache_offset);
  // Keeps the address in one register. Otherwise the index is added first, at two more instructions.
  asm("" : "+r"(cache));
  return *cache;
}

// As long as it has none, its cache has no room and no block.
inline bool has_cache() { return this_thread.cache_offset != 0; }

// The calling thread's cache, made if need be; null for a thread that has ended or when memory is out.
Cache* make_cache();
inline Cache* ensure_cache() { return FREESTONE_LIKELY(has_cache()) ? &thread_cache() : make_cache(); }

}  // namespace freestone
