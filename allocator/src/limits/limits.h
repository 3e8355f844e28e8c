// Room 12, limits: sets the limits of the heap, and acts when the soft one is crossed or the control group runs short.
//
// The account enforces the hard limit (region/account.h): it refuses a span, mapping or record that would exceed it.
#pragma once

#include "platform/mutex.h"

namespace freestone {

// Sets both limits in bytes; 0 is none. EINVAL if the soft limit is above the hard one. If the heap holds more than a
// limit, it gives free memory back at once. Live memory above the hard limit stays, but the heap grows no further.
int set_limits(usize soft_bytes, usize hard_bytes);
// Sets them from limit_soft and limit_hard. False, with nothing changed, if these contradict each other.
bool apply_limit_options();

// The thread that acts on `attention` holds it (room 18).
extern Mutex attention_lock;

// Slow paths call the first when the soft limit was crossed, and the second at most every 100 ms with the option
// pressure.
void react_to_soft_limit() FREESTONE_REQUIRES(attention_lock);
void look_at_pressure() FREESTONE_REQUIRES(attention_lock);
u64 pressure_reactions();

// What the control group may use: the lowest limit of it and the groups around it, or else the machine's memory.
usize container_limit_bytes();
// False if the option cgroup names a folder that says nothing about memory.
bool cgroup_option_is_good();

}  // namespace freestone
