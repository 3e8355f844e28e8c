// What the slab room asks of ground, where no slab becomes any.
#include "slab/ground.h"

namespace freestone {

void** take_from_ground(SizeClass, SlabUser&, void**, void** top) { return top; }
void return_to_ground(SizeClass, void* const*, unsigned) {}
void collect_from_words(UnitIndex) {}
SlabPlace place_on_ground(SizeClass, const void*) { return SlabPlace::no_block; }
usize blocks_on_ground(SizeClass) { return 0; }
GroundUse ground_use() { return {}; }
usize purge_ground(UnitIndex, WentBack) { return 0; }

}  // namespace freestone
