// Room 8, cache: where blocks wait between the threads that free them and the threads that allocate them.
//
// One bin per shard and slab class, a stack of block addresses. A thread whose cache overflows pushes there, and one
// whose cache is empty pops. Both copy addresses in one short step instead of one locked instruction per block. Blocks
// that a bin does not take go to the slabs, where neighbours come together again.
//
// TRANSFER-1  A thread enters a bin with one compare-exchange; if that fails, it goes to the slabs. No thread waits for
//             a bin.
// TRANSFER-2  The blocks of a bin are live nowhere else. Statistics count them with the thread caches.
// TRANSFER-3  A bin holds at most kTransferBytesPerBin. A tick drains what lay there unused.
#pragma once

#include "slab/slab.h"

namespace freestone {

// Takes over the first blocks; returns how many.
unsigned give_to_transfer(SizeClass size_class, unsigned shard, void* const* blocks, unsigned count);
// Moves up to `room` blocks into `out`, from the shard's own bin if it has any; returns how many.
unsigned take_from_transfer(SizeClass size_class, unsigned shard, unsigned room, void** out);
// Gives to the slabs what lies in the bins; without `all`, what lay there since the last call.
void drain_transfer(SlabUser& user, bool all = true);

// For statistics and walks; other threads may go on.
void count_transfer(usize (&blocks)[kClassEnd]);
usize copy_transfer_blocks(void** out, usize room);

// In the child of a fork: empties each bin that another thread was in. The blocks in it are lost.
void repair_transfer_in_child(Cut cut = Cut::fork);

}  // namespace freestone
