// Room 8, cache: a slow path at work on one class of a cache.
#pragma once

#include "base/check.h"
#include "cache/cache.h"
#include "cache/counting.h"

namespace freestone {

// CACHE-1 of a class that is closed.
inline bool is_ordered(const Cache& cache, SizeClass c) {
  return cache.base[c] <= cache.low[c] && cache.low[c] <= cache.top[c] && cache.top[c] <= cache.high[c] &&
         cache.high[c] <= cache.base[c] + cache.capacity(c);
}

// While it exists, the child of a fork leaves the class alone.
class Marking {
 public:
  Marking(Cache& cache, SizeClass size_class) : changing_(cache.changing), before_(changing_.load_relaxed()) {
    FREESTONE_CHECK("CACHE-2", before_ != size_class);  // it would open the class too soon
    changing_.store_relaxed(static_cast<u8>(size_class));
    // A fork copies what this thread has done so far, so only the compiler must keep the order.
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
  ~Marking() {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    changing_.store_relaxed(before_);
  }
  Marking(const Marking&) = delete;
  Marking& operator=(const Marking&) = delete;

 private:
  Atomic<u8>& changing_;
  u8 before_;
};

// While it exists the class is closed (counting.h) and marked.
class Changing {
 public:
  Changing(Cache& cache, SizeClass size_class) : cache_(cache), size_class_(size_class), marking_(cache, size_class) {
    if (FREESTONE_UNLIKELY(cache.counting != nullptr)) close_counted(cache, size_class);
    FREESTONE_CHECK("CACHE-1", is_ordered(cache, size_class));
  }
  ~Changing() {
    FREESTONE_CHECK("CACHE-1", is_ordered(cache_, size_class_));
    FREESTONE_CHECK("CACHE-4", cache_.capacity(size_class_) <= class_info(size_class_).cap_max);
    if (FREESTONE_UNLIKELY(cache_.counting != nullptr)) open_counted(cache_, size_class_);
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  Cache& cache_;
  SizeClass size_class_;
  Marking marking_;
};

}  // namespace freestone
