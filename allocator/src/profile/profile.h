// Room 13, profile: what is done with the samples: they are kept with their stacks, and written as a file in one of
// three formats. Which allocations are sampled is decided above, in the sampling room.
//
// Lock: profile_store.lock, taken while nothing else is held. Signals: a handler that finds it taken leaves the work to
// the holder.
#pragma once

#include "base/atomic.h"
#include "profile/profile_store.h"
#include "stacks/unwind.h"

namespace freestone {

// Writes the profile to `path`, or where the option prof_file says when it is null. 0 or an errno value. Any thread;
// not in a signal handler, which has the option prof_signal.
int dump_profile(const char* path);
// The handler of prof_signal: writes the profile now, or leaves it to the thread that holds the lock.
void dump_profile_in_signal(int);

// The mean bytes between two samples; 1 when every block is one. Relaxed: only reports read it.
extern FREESTONE_HIDDEN Atomic<u64> profile_sample_bytes;

// Notes a sample that stands for `weight` allocations, with the caller's stack; null when memory is out. A tracked one
// is found again by its address. Takes the lock.
LiveSample* add_sample(void* block, usize bytes, double weight, bool tracked);
// The block is freed. Null does nothing.
void remove_sample(LiveSample* sample);
// Does nothing when the block is not tracked.
void remove_tracked_sample(void* block);

// Writes the stack that allocated the block to standard error, if it is a sample that lives. Waits for no lock.
void print_sample_stack(const void* block);

// Forgets the sums so far, the peak and the lifetimes. What is live stays, as far as its free would have been seen.
void restart_profile();

void profile_before_fork();
void profile_after_fork_in_parent();
void profile_after_fork_in_child();

// The stack of the caller of malloc by the option prof_unwind. Returns its depth.
unsigned capture_profile_stack(usize* frames);

// os::expand_path with the number of the dump for %n.
usize expand_profile_path(const char* pattern, char* path, usize capacity);

// Holds the store's lock. When a signal asked for a dump meanwhile, its destructor writes it.
class FREESTONE_SCOPED_CAPABILITY ProfileLock {
 public:
  ProfileLock() FREESTONE_ACQUIRES(profile_store.lock);
  ~ProfileLock() FREESTONE_RELEASES();
  ProfileLock(const ProfileLock&) = delete;
  ProfileLock& operator=(const ProfileLock&) = delete;
};

}  // namespace freestone
