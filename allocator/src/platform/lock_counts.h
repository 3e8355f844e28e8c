// Room 4, platform: how often each lock is taken, how often that means waiting, and how long it is held; by name.
//
// Only in a build that counts (FREESTONE_COUNT_LOCKS); what counts is empty elsewhere and leaves no instruction.
// Looking at the clock is part of the times.
#pragma once

#include "base/atomic.h"
#include "config/build_config.h"
#include "platform/os.h"

namespace freestone {

// In the order of their rooms. Locks of one name are counted together.
enum class LockName : u8 {
  metadata,
  growth,
  span,
  mapping,
  slab_purge,
  cache_registry,
  orphans,
  start,
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
inline constexpr const char* kLockNameTexts[] = {"metadata",       "growth",   "span",   "mapping",      "slab_purge",
                                                 "cache_registry", "orphans",  "start",  "heap_objects", "heap_object",
                                                 "profile",        "guard",    "report", "upkeep",       "option",
                                                 "snapshot",       "callbacks"};
static_assert(sizeof kLockNameTexts / sizeof *kLockNameTexts == kLockNames);

// All relaxed: statistics.
struct LockCount {
  Atomic<u64> taken;
  Atomic<u64> waited;  // of these, the lock was another thread's at first
  Atomic<u64> held_ns;
};
inline LockCount lock_counts[kLockNames];
inline LockCount& count_of(LockName name) { return lock_counts[static_cast<unsigned>(name)]; }

// Part of each lock. Called by its holder.
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
