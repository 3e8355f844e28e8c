// Room 11, limits: limits, and what is done before the kernel would do something worse.
//
// The hard limit is kept by the account (region/account.h): a span, mapping or record that would exceed it is refused
// before it is taken.
// This file says what the limits are, and acts when the soft one is crossed or the control group runs short.
#pragma once

#include "platform/mutex.h"

namespace freestone {

// In bytes; 0 is none. EINVAL when the soft limit is above the hard one. Gives back at once what a lowered limit asks
// for; a heap that holds more than the hard limit keeps it, and grows no further.
int set_limits(usize soft_bytes, usize hard_bytes);
// From limit_soft and limit_hard. False when they contradict each other: then nothing is changed.
bool apply_limit_options();

// Held by the one thread that acts on what slow paths were told (room 18).
extern Mutex attention_lock;

// Called on slow paths when the soft limit was crossed, and at most every 100 ms when the option pressure is on.
void react_to_soft_limit() FREESTONE_REQUIRES(attention_lock);
void look_at_pressure() FREESTONE_REQUIRES(attention_lock);
u64 pressure_reactions();

// What the control group may use: the least limit of it and of the groups around it; the machine's memory when there is
// none.
usize container_limit_bytes();

}  // namespace freestone
