// Room 4, platform: stands in for src/platform/child.h. The explored threads do not fork.
#pragma once

#include "base/units.h"

namespace freestone {

inline usize own_thread() { return 16; }
inline void settle_child() {}
inline u32 process_generation() { return 0; }

}  // namespace freestone
