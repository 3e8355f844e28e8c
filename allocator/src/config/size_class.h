// Room 3, config: the size classes.
//
// 16-byte steps up to 128 bytes, then 8 classes per doubling. Up to kSmallBytesMax the blocks of a class lie in slabs;
// above, up to kCachedBytesMax, each block is a run, a stretch of units of its own, that the thread cache keeps by the
// same rules. Every size is a multiple of 16. From 4 to 32 KiB, every class that a page-aligned request can get is a
// multiple of 4 KiB, so page-aligned blocks cost no more than their size. Classes count from 1; the number is the tag
// of the units of the class's slabs (REGION-1 has the tags of runs). Where a build has two partitions (policy.h), the
// slab classes of the second follow those of the first, in the same order; then come the classes of runs.
#pragma once

#include "base/bits.h"
#include "base/units.h"
#include "config/heuristics.h"
#include "policy/policy.h"

namespace freestone {

using SizeClass = u32;

inline constexpr usize kGranule = 16;
inline constexpr usize kFineBytesMax = 128;  // one class per granule up to here
inline constexpr unsigned kStepsPerDoubling = 8;

inline constexpr SizeClass kFirstClass = kBlockBytesMin / kGranule;  // lower numbers have no blocks
inline constexpr SizeClass kFineClasses = kFineBytesMax / kGranule;
inline constexpr unsigned kFineShift = 7;
static_assert(usize{1} << kFineShift == kFineBytesMax);

// The slab classes of one partition.
inline constexpr SizeClass kPlainClasses =
    kFineClasses + (highest_bit(kSmallBytesMax) - kFineShift) * kStepsPerDoubling;
inline constexpr SizeClass kPartedClasses = (kPartitions - 1) * kPlainClasses;  // those of the second partition
// The class of the first partition that has the same size; for runs, the number as if there were one partition.
constexpr SizeClass plain_class(SizeClass size_class) {
  return size_class > kPlainClasses ? size_class - kPartedClasses : size_class;
}

// The class of a size above kFineBytesMax: the position of its highest bit gives the doubling, the three bits below
// give the step.
constexpr SizeClass class_above_fine(usize bytes) {
  const usize last = bytes - 1;
  unsigned doubling = highest_bit(last);
  if (!__builtin_is_constant_evaluated()) asm("" : "+r"(doubling));  // one bit scan; clang takes it apart otherwise
  const auto step = static_cast<unsigned>(last >> (doubling - 3));   // kStepsPerDoubling more than its number
  const SizeClass c = doubling * kStepsPerDoubling + step - ((kFineShift + 1) * kStepsPerDoubling - kFineClasses - 1);
  return kPartedClasses != 0 && c > kPlainClasses ? c + kPartedClasses : c;
}

constexpr SizeClass class_of(usize bytes) {
  if (bytes <= kFineBytesMax)
    return bytes <= kBlockBytesMin ? kFirstClass : static_cast<SizeClass>((bytes + kGranule - 1) / kGranule);
  return class_above_fine(bytes);
}

inline constexpr SizeClass kLastSmallClass = class_of(kSmallBytesMax) + kPartedClasses;
inline constexpr SizeClass kLastClass = class_of(kCachedBytesMax);
inline constexpr SizeClass kClassEnd = kLastClass + 1;
inline constexpr SizeClass kSizeEnd = plain_class(kLastClass) + 1;  // of numbers by plain_class: one for each size

constexpr usize class_bytes(SizeClass any_class) {
  const SizeClass size_class = plain_class(any_class);
  if (size_class <= kFineClasses) return size_class * kGranule;
  const unsigned step = (size_class - kFineClasses - 1) % kStepsPerDoubling + 1;
  const unsigned doubling = (size_class - kFineClasses - 1) / kStepsPerDoubling;
  const usize from = kFineBytesMax << doubling;
  return from + from / kStepsPerDoubling * step;
}

// How much of a block a realloc may leave unused in place: half of one up to 4 KiB.
constexpr usize unused_most(usize block_bytes) { return block_bytes / (block_bytes > 4 * kKiB ? kUnusedDivisor : 2); }
constexpr bool stays_in(usize block_bytes, usize bytes) {
  return bytes <= block_bytes && block_bytes - bytes <= unused_most(block_bytes);
}

constexpr bool is_slab_class(SizeClass size_class) { return size_class <= kLastSmallClass; }

struct ClassInfo {
  u32 bytes = 0;    // of a block
  u32 units = 0;    // of a slab, a power of two; or of the run
  u32 blocks = 0;   // in a slab; 1 for a run
  u16 batch = 0;    // blocks that a refill aims for
  u16 cap_max = 0;  // blocks that a thread cache keeps at most
  u64 inverse = 0;  // ceil(2^40 / bytes): offset * inverse >> 40 is the block's number, exact for offsets below 2^22
};

inline constexpr unsigned kInverseShift = 40;
inline constexpr unsigned kSlabWordsMax = 16;

// Room for kSlabBlocksMin blocks, where kSlabUnitsMax allow: what a slab's class does not use, no other class may. More
// if blocks are handed out in random order: among few places a guess comes true.
inline constexpr u32 kSlabUnitsMax = kMitigations.random_order ? 16 : 4;
inline constexpr usize kSlabBlocksMin = kMitigations.random_order ? 64 : 8;
constexpr u32 slab_units(usize bytes) {
  u32 units = 1;
  while (units < kSlabUnitsMax && units_to_bytes(units) < bytes * kSlabBlocksMin) units *= 2;
  return units;
}

inline constexpr usize kCachedBlocksMax = 1024;  // of one class in a thread cache

struct ClassTable {
  ClassInfo info[kClassEnd];

  constexpr ClassTable() : info() {
    for (SizeClass c = 1; c < kClassEnd; ++c) {
      const usize bytes = class_bytes(c);
      ClassInfo& i = info[c];
      i.bytes = static_cast<u32>(bytes);
      i.units = is_slab_class(c) ? slab_units(bytes) : static_cast<u32>(bytes_to_units(bytes));
      i.blocks = is_slab_class(c) ? static_cast<u32>(units_to_bytes(i.units) / bytes) : 1;
      i.batch = static_cast<u16>(is_slab_class(c) ? max_of<usize>(2, min_of<usize>(64, 32 * kKiB / bytes)) : 1);
      // One less than a power of two leaves room for the capacity before the first (CACHE-4).
      i.cap_max = static_cast<u16>(is_slab_class(c) ? max_of<usize>(8, min_of(kCachedBlocksMax, 128 * kKiB / bytes)) - 1
                                                    : 128 * kKiB / bytes);
      i.inverse = ((u64{1} << kInverseShift) + bytes - 1) / bytes;
    }
  }
};

inline constexpr ClassTable kClasses;

constexpr const ClassInfo& class_info(SizeClass size_class) { return kClasses.info[size_class]; }
constexpr unsigned slab_words(const ClassInfo& info) { return (info.blocks + 63) / 64; }

// The number of the block at `offset` bytes from the start of its slab; for an interior pointer, of the block it points
// into.
constexpr u32 block_number(const ClassInfo& info, usize offset) {
  return static_cast<u32>((offset * info.inverse) >> kInverseShift);
}

// The first class that holds `bytes` at an alignment of up to a unit: slabs start on unit borders, so a block is
// aligned to whatever divides its size. A multiple of the alignment is either the size of a class, or lies where all
// sizes are multiples of it.
constexpr SizeClass class_of_aligned(usize bytes, usize alignment) { return class_of(round_up(bytes, alignment)); }

static_assert(class_bytes(kLastSmallClass) == kSmallBytesMax && class_bytes(kLastClass) == kCachedBytesMax);
static_assert(class_bytes(class_of_aligned(12288, 4096)) == 12288 && class_bytes(class_of_aligned(4097, 4096)) == 8192);

}  // namespace freestone
