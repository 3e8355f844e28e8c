// Room 5, region: memory for the allocator's own small structures: thread caches and their arrays.
//
// It comes from mappings of its own, so an overflow of a program's block cannot reach it. Sizes are powers of two from
// 64 bytes. Each size has a list of freed pieces for the next taker. Any thread; takes the metadata lock, which ranks
// last (its holder takes no other lock).
#pragma once

#include "base/units.h"
#include "platform/mutex.h"

namespace freestone {

extern Mutex metadata_lock;

inline constexpr usize kMetadataPieceMin = 64;
inline constexpr usize kMetadataPieceMax = 64 * kKiB;

// Zeroed memory of at least `bytes` (rounded up to a power of two), aligned to that power up to a page. Null when the
// kernel refuses.
void* take_metadata(usize bytes);
// Gives back what take_metadata(bytes) returned.
void return_metadata(void* piece, usize bytes);

// Bytes mapped for this purpose.
usize metadata_mapped_bytes();
// How many of them were ever given out, so that there may be memory behind them.
usize metadata_touched_bytes();

// Where all this lies. Caches keep addresses of blocks there, and a search for pointers must not count those as uses.
// Returns how many ranges there are.
struct MetadataRange {
  usize start;
  usize end;
};
usize metadata_ranges(MetadataRange* out, usize room);

// In the child of a fork, by the thread that settles it. Drops the chunk that another thread was carving, if any.
void repair_metadata_in_child(Cut cut = Cut::fork);

}  // namespace freestone
