// Room 4, platform: for each lock name, how often it is taken, how often a thread waits for it, and how long it is
// held, reading the clock included. Only builds with FREESTONE_COUNT_LOCKS count; others hold no instruction of it.
#pragma once

#include "base/atomic.h"
#include "config/build_config.h"
#include "platform/os.h"

namespace freestone {

// Whose work is repaired: of the threads that a child of a fork lacks, or of the calling one, which was cancelled.
enum class Cut : u8 { fork, cancellation };

// In the order of their rooms. Locks that share a name share a count.
enum class LockName : u8 {
  metadata,
  growth,
  span,
  mapping,
  slab_purge,
  ground,
  cache_registry,
  orphans,
  start,
  seal,
  heap_objects,
  heap_object,
  profile,
  guard,
  report,
  upkeep,
  option,
  snapshot,
  callbacks,
  end
};
inline constexpr unsigned kLockNames = static_cast<unsigned>(LockName::end);
inline constexpr const char* kLockNameTexts[] = {"metadata",       "growth",  "span",    "mapping",   "slab_purge",
                                                 "ground",         "cache_registry", "orphans", "start", "seal",
                                                 "heap_objects",   "heap_object", "profile", "guard", "report",
                                                 "upkeep",         "option",  "snapshot", "callbacks"};
static_assert(sizeof kLockNameTexts / sizeof *kLockNameTexts == kLockNames);

// All relaxed: statistics.
struct LockCount {
  Atomic<u64> taken;
  Atomic<u64> waited;  // how many of these found another thread holding it
  Atomic<u64> held_ns;
};
inline LockCount lock_counts[kLockNames];
inline LockCount& count_of(LockName name) { return lock_counts[static_cast<unsigned>(name)]; }

// A part of each lock. Only the holder calls it.
template <bool Counts>
class LockMeter {
 public:
  constexpr explicit LockMeter(LockName name) : name_(name) {}
  void taken(bool waited) {
    count_of(name_).taken.add_relaxed(1);
    if (waited) count_of(name_).waited.add_relaxed(1);
    since_ns_ = os::nanoseconds();
  }
  void leaving() { count_of(name_).held_ns.add_relaxed(os::nanoseconds() - since_ns_); }

 private:
  LockName name_;
  u64 since_ns_ = 0;
};
template <>
class LockMeter<false> {
 public:
  constexpr explicit LockMeter(LockName) {}
  void taken(bool) {}
  void leaving() {}
};

}  // namespace freestone
