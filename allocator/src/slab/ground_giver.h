// Room 7, slab: which slab becomes ground (ground.h).
#pragma once

#include "slab/slab.h"

namespace freestone {

struct Giver {
  SizeClass size_class = 0;
  UnitIndex unit = kNoUnit;  // kNoUnit: none
};
// A sparse slab with a hole for a block of `taker`, of another class with much room. Any thread; no lock.
Giver find_giver(SizeClass taker);

}  // namespace freestone
