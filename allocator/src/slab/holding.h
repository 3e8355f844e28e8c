// Room 7, slab: what a thread may do with a slab whose token it holds (slab.h), for the files of this room.
#pragma once

#include "base/bits.h"
#include "base/check.h"
#include "slab/room_tree.h"
#include "slab/slab.h"
#include "slab/state_word.h"
#include "span/free_memory.h"

namespace freestone {

inline constexpr u64 kWordsMask = low_mask(kSlabWordsMax);
inline constexpr u64 kBusy = bit(kSlabWordsMax);
inline constexpr unsigned kGenerationShift = 32;

extern Atomic<u32> slab_units_in_use[kLastSmallClass + 1];  // relaxed, as the next: statistics
extern Atomic<usize>
    empty_bytes[kLastSmallClass + 1];  // of slabs in use: what has no memory behind it (SLAB-5)

inline u64 generation_of(u64 summary) { return summary >> kGenerationShift; }

// All blocks of word `index` free.
inline u64 full_word(const ClassInfo& info, unsigned index) { return low_mask(min_of(64U, info.blocks - index * 64)); }

inline RoomTree tree_of(const Record& record, SizeClass size_class) {
  return {record.shard.load_relaxed(), size_class};
}

// Sets busy for the holder of the token; returns which words may have bits.
inline u64 begin_holding(Record& record) {
  u64 summary = record.summary.load_seq();
  while (!record.summary.replace_seq(summary, (summary & ~kWordsMask) | kBusy)) {
  }
  FREESTONE_CHECK("SLAB-1", (summary & kBusy) == 0);
  return summary & kWordsMask;
}

// Gives the holder's token up: into the tree if any word has bits, out of existence otherwise. `words`: those in which
// it left bits.
inline void end_holding(Record& record, SizeClass size_class, UnitIndex unit, u64 words) {
  u64 summary = record.summary.load_seq();
  while (!record.summary.replace_seq(summary, (summary & ~kBusy) | words)) {
  }
  if (((summary | words) & kWordsMask) != 0) tree_of(record, size_class).offer(unit);
}

// Every block is free. Scans from the highest word: blocks are handed out from the lowest, so a used slab fails soon.
inline bool looks_wholly_free(const ClassInfo& info, const Record& record) {
  for (unsigned w = slab_words(info); w-- > 0;) {
    if (record.words[w].load_seq() != full_word(info, w)) return false;
  }
  return true;
}

// Fails unless the free blocks that `words` names, which the caller holds, are zero. Skips blocks that were never
// handed out, and those that lie on the `skipped` pages. If the slab is being released, none keeps a free word.
inline void expect_blocks_clear(UnitIndex unit, const ClassInfo& info, const u64* words, const SlabPages& skipped,
                                bool is_released) {
  if constexpr (!kMitigations.zero_on_free) return;
  const u64 untouched = info.blocks <= 64 ? record_of(unit).zero_blocks.load_relaxed() : 0;
  for (unsigned w = 0; w < slab_words(info); ++w) {
    for (u64 left = words[w] & ~untouched; left != 0; left &= left - 1) {
      const usize offset = usize{w * 64 + lowest_bit(left)} * info.bytes;
      if (skipped.hold(offset, info.bytes)) continue;
      char* const block = unit_address(unit) + offset;
      expect_free_block(block, info.bytes);
      u64* const state = state_of(block, info.bytes);
      if (is_released && *state != 0) *state = 0;
    }
  }
}

// Where addresses serve one class (span/dedicated.h): released slabs that go to the kernel together, in one call for
// those side by side. Until then they are no slabs and nobody's.
class Retiring {
 public:
  Retiring(SlabUser& user, WentBack why) : user_(user), why_(why) {}
  ~Retiring() { finish(); }
  Retiring(const Retiring&) = delete;
  Retiring& operator=(const Retiring&) = delete;

  void add(SizeClass size_class, UnitIndex unit);
  // What the kernel refuses becomes a slab without blocks again.
  void finish();

 private:
  SlabUser& user_;
  WentBack why_;
  SizeClass size_class_ = 0;
  UnitIndex first_ = kNoUnit;
  usize slabs_ = 0;
};

// Releases a slab whose blocks all seemed free a moment ago. If another thread holds the token, nothing happens:
// whoever next sees all blocks free tries again. Returns the bytes that join `retiring`.
usize try_release(SizeClass size_class, UnitIndex unit, SlabUser& user, Retiring& retiring);

// Whether the blocks `first` to `last` are free in `words`.
inline bool all_set(const u64* words, u32 first, u32 last) {
  const unsigned end = last / 64;
  u64 mask = ~u64{0} << (first % 64);
  for (unsigned w = first / 64; w < end; ++w, mask = ~u64{0}) {
    if ((words[w] & mask) != mask) return false;
  }
  mask &= low_mask(last % 64 + 1);
  return (words[end] & mask) == mask;
}

// The pages of a slab on which every block is free in `words`, as bits. Pages behind the last block do not count.
inline u64 free_pages(const ClassInfo& info, const u64* words, usize page) {
  u64 pages = 0;
  unsigned number = 0;
  for (usize offset = 0; offset < usize{info.blocks} * info.bytes; offset += page, ++number) {
    const u32 last = min_of(block_number(info, offset + page - 1), info.blocks - 1);
    if (all_set(words, block_number(info, offset), last)) pages |= bit(number);
  }
  return pages;
}

// Reads the words of a slab; returns which of them have bits.
inline u64 load_words(const ClassInfo& info, const Record& record, u64* words) {
  u64 nonempty = 0;
  for (unsigned w = 0; w < slab_words(info); ++w) {
    words[w] = record.words[w].load_seq();
    if (words[w] != 0) nonempty |= bit(w);
  }
  return nonempty;
}

// Calls visit(unit, size_class) for the first unit of every slab from `unit`, which is not inside of one, to `end`.
template <typename Visit>
void for_each_slab(Visit visit, UnitIndex unit = region.heap_start, UnitIndex end = region.frontier.load_acquire()) {
  while (unit < end) {
    const u8 tag = tag_of(unit);
    const bool slab = tag != kTagNone && tag <= kLastSmallClass;
    if (slab) visit(unit, SizeClass{tag});
    unit += slab ? class_info(tag).units : 1;
  }
}

}  // namespace freestone
