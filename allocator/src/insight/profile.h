// Room 10, insight: the heap profiler. Which allocations are sampled is decided by front/sampled.h; here is what is done with them.
//
// A size s is sampled with the chance 1 - exp(-s / prof_sample_bytes), as if each byte were hit by a Poisson process; the sample counts
// for the inverse of that. Small blocks that are sampled lie in units of their own, so that their free is seen; larger ones are tracked
// by address. Below kTrackBelow bytes between samples, and for leak:exact, every block is tracked and every call takes the slow path.
//
// Lock: profile_store.lock, taken while nothing else is held. Signals: a handler that finds it taken leaves the work to the holder.
#pragma once

#include "insight/unwind.h"
#include "platform/mutex.h"

namespace freestone {

// Starts or stops sampling in the whole process: in the calling thread at once, in others from their next refill. What was sampled stays.
void start_profile();
void stop_profile();
bool profile_is_active();

// Writes the profile to `path`, or where the option prof_file says when it is null. 0 or an errno value. Any thread; not in a
// signal handler, which has the option prof_signal.
int dump_profile(const char* path);

// The stack of the caller of malloc by the option prof_unwind. Returns its depth.
unsigned capture_profile_stack(usize* frames);

// Copies a path, replacing %p by the process and %n by the number of the dump.
void expand_path(const char* pattern, char* path, usize capacity);

// Holds the store's lock. When a signal asked for a dump meanwhile, its destructor writes it.
class ProfileLock {
 public:
  ProfileLock();
  ~ProfileLock();
  ProfileLock(const ProfileLock&) = delete;
  ProfileLock& operator=(const ProfileLock&) = delete;
};

}  // namespace freestone
