// Room 14, profile: keeps the samples with their stacks and writes them to a file in one of three formats. The sampling
// room above decides which allocations become samples.
//
// Lock: profile_store.lock, taken while nothing else is held. Signals: a handler that finds it taken leaves the work to
// the holder.
#pragma once

#include "base/atomic.h"
#include "profile/profile_report.h"
#include "profile/profile_store.h"
#include "stacks/unwind.h"

namespace freestone {

// Writes the profile to `path`, or to the file of the option prof_file if it is null. Returns 0 or an errno value. Any
// thread, but not a signal handler: the option prof_signal serves those.
int dump_profile(const char* path);
// Writes the profile into memory. ENOMEM if that is out.
int write_profile(MemoryText& text, ProfileFormat format);
// The handler of prof_signal: writes the profile now, or leaves it to the thread that holds the lock.
void dump_profile_in_signal(int);

// The mean bytes between two samples; 1 if every block is a sample. Relaxed: only reports read it.
extern FREESTONE_HIDDEN Atomic<u64> profile_sample_bytes;

// Notes a sample that stands for `weight` allocations, with the caller's stack. Null if memory is out. A tracked sample
// can be found again by its address. Takes the lock.
LiveSample* add_sample(void* block, usize bytes, double weight, bool tracked);
// Call it when the block is freed. Null does nothing.
void remove_sample(LiveSample* sample);
// Does nothing if the block is not tracked.
void remove_tracked_sample(void* block);

// Writes the stack that allocated the block to standard error, if the block is a live sample. Writes nothing if the
// lock is taken.
void print_sample_stack(const void* block);

// Begins a profile that stands alone: nothing that was sampled earlier counts in it.
void begin_profile();

void profile_before_fork();
void profile_after_fork_in_parent();
void profile_after_fork_in_child();

// Takes the stack of malloc's caller in the way of the option prof_unwind. Returns its depth.
unsigned capture_profile_stack(usize* frames);

// os::expand_path with the number of the dump for %n.
usize expand_profile_path(const char* pattern, char* path, usize capacity);

// Holds the store's lock. If a signal asked for a dump meanwhile, the destructor writes it.
class FREESTONE_SCOPED_CAPABILITY ProfileLock {
 public:
  ProfileLock() FREESTONE_ACQUIRES(profile_store.lock);
  ~ProfileLock() FREESTONE_RELEASES();
  ProfileLock(const ProfileLock&) = delete;
  ProfileLock& operator=(const ProfileLock&) = delete;
};

}  // namespace freestone
