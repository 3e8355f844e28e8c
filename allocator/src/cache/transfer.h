// Room 8, cache: where blocks wait between the threads that free them and the threads that allocate them.
//
// One bin per shard and slab class, a stack of block addresses. A thread whose cache overflows pushes there, one whose
// cache is empty pops: both copy addresses inside one short step in place of a locked instruction per block. What a bin
// does not take goes to the slabs, where neighbours come together again.
//
// TRANSFER-1  A bin is entered by one compare-exchange that may fail; then the caller goes to the slabs. No thread
//             waits for a bin.
// TRANSFER-2  The blocks of a bin are live nowhere else. Statistics count them with the thread caches.
// TRANSFER-3  A bin holds at most kTransferBytesPerBin, and what lay there unused is drained now and then by threads of
//             its shard.
#pragma once

#include "slab/slab.h"

namespace freestone {

// Takes over the first blocks; returns how many.
unsigned give_to_transfer(SizeClass size_class, unsigned shard, void* const* blocks, unsigned count);
// Moves up to `room` blocks into `out`, from the shard's own bin if it has any; returns how many.
unsigned take_from_transfer(SizeClass size_class, unsigned shard, unsigned room, void** out);
// Gives to the slabs what lay in the user's shard since the last call.
void drain_unused_transfer(SlabUser& user);
// Gives to the slabs what lies in any shard.
void drain_transfer(SlabUser& user);

// For statistics and walks; other threads may go on.
void count_transfer(usize (&blocks)[kClassEnd]);
usize copy_transfer_blocks(void** out, usize room);

// In the child of a fork: a bin that another thread was in is emptied, its blocks are nobody's.
void repair_transfer_in_child();

}  // namespace freestone
