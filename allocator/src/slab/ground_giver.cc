// Room 7, slab: see ground_giver.h.

#include "slab/ground_giver.h"

#include "config/heuristics.h"
#include "slab/holding.h"

namespace freestone {

namespace {

// Of the classes with much room in their slabs, but for this one, that with most; 0 if there is none.
SizeClass find_class(SizeClass taker) {
  SizeClass found = 0;
  usize most = kSmallBytesMax;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    if (slab_units_in_use[c].load_relaxed() == 0 || c == taker) continue;
    const usize free = slab_use(c).free_bytes;
    if (free > most) found = c, most = free;
  }
  return found;
}

unsigned count_free(const ClassInfo& info, const Record& record) {
  unsigned count = 0;
  for (unsigned w = 0; w < slab_words(info); ++w) count += count_bits(record.words[w].load_relaxed());
  return count;
}

// Whether so many neighbouring blocks are free, in one word.
bool has_row(const ClassInfo& info, const Record& record, unsigned wanted) {
  for (unsigned w = 0; w < slab_words(info); ++w) {
    u64 begins = record.words[w].load_relaxed();  // a bit that is left begins so many free blocks
    for (unsigned more = wanted - 1, step = 1; more != 0; more -= min_of(more, step), step *= 2)
      begins &= begins >> min_of(more, step);
    if (begins != 0) return true;
  }
  return false;
}

// The emptiest of some slabs of the class, at least half free and with a hole of so many bytes; kNoUnit if there is
// none.
UnitIndex find_sparse(SizeClass size_class, usize bytes) {
  const ClassInfo& info = class_info(size_class);
  const auto row = static_cast<unsigned>(min_of<usize>((bytes + info.bytes - 1) / info.bytes, 64));
  UnitIndex sparsest = kNoUnit;
  unsigned most = (info.blocks + 1) / 2 - 1;
  unsigned tried = 0;
  for (unsigned shard = 0; shard < shards_to_search() && tried < kSlabsTried; ++shard) {
    RoomTree(shard, size_class).for_each([&](UnitIndex unit) {
      if (tried == kSlabsTried) return;
      ++tried;
      const Record& record = record_of(unit);
      const unsigned free = count_free(info, record);
      if (free > most && free < info.blocks && has_row(info, record, row)) most = free, sparsest = unit;
    });
  }
  return sparsest;
}

}  // namespace

Giver find_giver(SizeClass taker) {
  const SizeClass c = find_class(taker);
  return c != 0 ? Giver{c, find_sparse(c, class_info(taker).bytes)} : Giver{};
}

}  // namespace freestone
