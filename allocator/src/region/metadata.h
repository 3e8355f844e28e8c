// Room 5, region: memory for the allocator's own small structures: thread caches and their arrays.
//
// It comes from mappings that hold nothing else, so that no overflow in the program reaches it from a neighbouring
// block. Sizes are powers of two from 64 bytes; freed pieces wait in a list per size for the next taker of that size.
// Any thread; takes the metadata lock, which ranks last (nothing is locked while it is held).
#pragma once

#include "base/units.h"
#include "platform/mutex.h"

namespace freestone {

inline constexpr usize kMetadataPieceMin = 64;
inline constexpr usize kMetadataPieceMax = 64 * kKiB;

// Zeroed memory of at least `bytes` (rounded up to a power of two), aligned to that power up to a page. Null when the
// kernel refuses.
void* take_metadata(usize bytes);
// Gives back what take_metadata(bytes) returned.
void return_metadata(void* piece, usize bytes);

// Bytes mapped for this purpose.
usize metadata_mapped_bytes();
// Those that were given out at some time, so that there may be memory behind them.
usize metadata_touched_bytes();

// Where all this lies: caches keep addresses of blocks there, which a search for pointers must not take for uses.
// Returns how many.
struct MetadataRange {
  usize start;
  usize end;
};
usize metadata_ranges(MetadataRange* out, usize room);

// In the child of a fork, by its only thread: if another thread was inside, drops the chunk that it was carving.
void repair_metadata_in_child();

}  // namespace freestone
