// Room 4, platform: a stack of our own for the work of signal handlers. A program may have its signals delivered on an
// alternate stack of 8 KiB, of which the kernel's frame takes up to half.
#pragma once

#include "base/units.h"

namespace freestone::os {

// Calls work() there. False, without a call, while another thread is there. The caller has all signals blocked: the
// kernel would begin the next handler at the top of the alternate stack, over the frames that wait for this call.
bool run_on_own_stack(void (*work)());

// Makes that the handler of the signal which the option names; it may use the stack. False, after a line that says why
// but for 0, if the signal cannot be caught or has a handler: the program's or another option's.
bool catch_signal(const char* option, u64 number, void (*handler)(int));

}  // namespace freestone::os
