// Room 17, sampling: which allocations are sampled, for the heap profile, for guards and for the search for leaks.
//
// A size s is sampled with the chance 1 - exp(-s / prof_sample_bytes), as if each byte were hit by a Poisson process.
// Small sampled blocks lie in units of their own, so their free is seen; larger ones are tracked by address. Below
// kTrackBelow bytes between samples, and for leak:exact, every block is tracked and every call takes the slow path.
//
// The rooms below are reached through front/sampled.h: this room defines `start_observers`. Any thread.
#pragma once

#include "base/units.h"

namespace freestone {

// Starts a profile in the whole process with the mean of the option prof_sample_bytes: in the calling thread at once,
// in others from their next refill, or when they call this too. The profile stands alone: no earlier sample counts.
void start_profile();
// Likewise. Samples that were taken stay.
void stop_profile();
// The same for a caller that may be inside the library: it leaves the calling thread's cache alone. Every thread starts
// and stops at its next slow path.
void start_profile_of(u64 mean_bytes);
void end_profile();
bool profile_is_active();
// While it is set, each call takes the slow path, where the operators new and delete lead to another's malloc.
void take_slow_paths(bool always);

}  // namespace freestone
