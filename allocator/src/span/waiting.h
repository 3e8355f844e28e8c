// Room 6, span: addresses of large freed runs wait, in the hardened build.
//
// A freed run above kSealedBytesMax faults at once and has no memory. Its addresses come back in the order in which
// they came here, when others have taken their places. What waits is in no bitmap and neither live nor charged. It is
// bounded in number and in bytes; nothing waits under a limit or where the window is small, and all of it comes back
// when an allocation finds no room.
//
// WAITING-1  A waiting span is in one place of the ring, or in a register of the thread that puts it there or takes it
//            out: by exchange, so nobody else has it. The child of a fork loses what was in a register.
#pragma once

#include "region/region.h"

namespace freestone {

// Whether addresses may wait now.
bool may_wait();
// Units in use that lost their memory become neither live nor charged.
void begin_wait(usize units);
// Units whose tags say that they fault. They come back later, or others do now.
void wait_closed_span(UnitIndex first, usize units);
// Gives all of them to the free spans.
void release_waiting_spans();

}  // namespace freestone
