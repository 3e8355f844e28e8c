// Room 9, front: what the front asks of the hardened room, which lies above it. In the fast build it asks nothing.
#pragma once

#include "base/units.h"

namespace freestone {

struct HardeningHooks {
  void (*draw_secrets)();
  // Called before a fork, in the forking thread; and in the child, which learns late that it is one if no handler ran.
  void (*note_fork)();
  void (*note_child)(bool handlers_ran);
  // Checks a part of the blocks, each time the next one.
  void (*check_next_part)();
};
extern const HardeningHooks hardening_hooks;

}  // namespace freestone
