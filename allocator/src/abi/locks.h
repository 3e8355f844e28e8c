// Room 20, abi: the locks of the calls that change settings, in the order in which they rank.
#pragma once

#include "base/compiler.h"
#include "platform/mutex.h"

namespace freestone {

extern FREESTONE_HIDDEN Mutex option_lock;     // one option at a time: contradicting limits are put back
extern FREESTONE_HIDDEN Mutex snapshot_lock;   // mallctl's statistics
extern FREESTONE_HIDDEN Mutex callbacks_lock;  // the program's callbacks

}  // namespace freestone
