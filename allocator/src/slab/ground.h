// Room 7, slab: ground, sparse slabs of classes that went out of fashion, whose holes serve every class. Fast build.
//
// A slab becomes ground when another class needs room and finds no slab with any. Its live blocks stay where they are.
// Its holes, in granules of 16 bytes, serve any class; neighbouring holes merge. Of each ground one hole is known, and
// blocks are taken from it. Ground that is all free goes back as a span.
//
//   slab     | used |      | used |      |      |      | used |      |      of class A
//   ground   | A    |      | A    | C | B       |      | A    | C |  |      starts and lasts say where blocks lie
//
// A cache holds blocks of ground like any others, so the hit paths do not change. Only their free takes the slow path:
// the tag says ground, and two bitmaps say how long the block is.
//
// GROUND-1  Of each block outside, and of no other granule, `starts` has the bit of the first granule and `lasts` the
//           bit of the last. Its length is that of a class. Whoever has the block may read its bits without the lock.
// GROUND-2  The bits are there before the tags. A thread that read the tag before may still give a block to the slab's
//           words. It then reads the tag; who makes ground takes the words after it set the tags. Both change the same
//           word, so whoever is second sees what the first had done before: one of the two brings the block home
//           (collect_from_words).
// GROUND-3  The summary of ground is busy, so that nobody offers it. Its generation rises at its end (SLAB-2).
// GROUND-4  The child of a fork that finds another thread inside takes nothing from ground any more and lets none go.
#pragma once

#include "base/check.h"
#include "slab/ground_map.h"
#include "slab/slab.h"

namespace freestone {

// Takes blocks of a class, at multiples of 16 bytes. Fills the places below `top`, down to `bottom` at most. Returns
// the lowest; `top` if no hole is found, or another thread is at work on ground.
void** take_from_ground(SizeClass size_class, SlabUser& user, void** bottom, void** top);
// Gives the blocks back that are on ground, up to the first that is not; returns how many. Aborts when one is not a
// live block of the class.
unsigned return_to_ground(SizeClass size_class, void* const* blocks, unsigned count);
// A block was given to the words of a slab that had become ground.
void collect_from_words(UnitIndex unit);

// The block on ground whose granules include this address, and its bytes; null if none does.
struct GroundBlock {
  char* start = nullptr;
  usize bytes = 0;
};
GroundBlock find_on_ground(const void* pointer);
// GROUND-2: the reader of a tag sees the bits.
inline void see_ground(UnitIndex unit) {
  [[maybe_unused]] const u8 tag = tag_place(unit).load_acquire();
  FREESTONE_CHECK("GROUND-2", tag == kTagGround);
}
// The class of the block that starts here; 0 if none does.
FREESTONE_INLINE SizeClass class_on_ground(const void* block) {
  const UnitIndex unit = unit_of(block);
  see_ground(unit);
  const Record& record = record_of(unit);
  const usize offset = address_of(block) - address_of(unit_address(record.ground.first));
  const Atomic<u64>* const start = record.ground.starts + offset / kGranule / 64;
  const unsigned at = offset / kGranule % 64;
  if (FREESTONE_UNLIKELY((start->load_relaxed() >> at & 1) == 0 || offset % kGranule != 0)) return 0;
  const Atomic<u64>* const first = start + record.run_units * kWordsPerUnit;
  if (const u64 last = first->load_relaxed() >> at; FREESTONE_LIKELY(last != 0))
    return class_of((lowest_bit(last) + 1) * kGranule);
  const Atomic<u64>* last = first + 1;
  while (last->load_operand() == 0) ++last;
  return class_of((static_cast<usize>(last - first) * 64 - at + lowest_bit(last->load_relaxed()) + 1) * kGranule);
}
inline bool is_on_ground(const void* block) { return kSharesGround && tag_of(unit_of(block)) == kTagGround; }
// What the unit of a block is for its class: its tag, or the class of the block that starts there on ground.
FREESTONE_INLINE u8 tag_of_block(const void* block) {
  const u8 tag = tag_of(unit_of(block));
  if (!kSharesGround || FREESTONE_LIKELY(tag != kTagGround)) return tag;
  const SizeClass size_class = class_on_ground(block);
  return size_class != 0 ? static_cast<u8>(size_class) : tag;
}
// The units of the ground that starts at `unit`, which is one; visit(start, bytes) for its blocks. At rest.
usize ground_units_at(UnitIndex unit);
template <typename Visit>
bool for_each_on_ground(UnitIndex unit, Visit visit) {
  char* const start = unit_address(unit);
  for (usize at = 0; at < units_to_bytes(ground_units_at(unit));) {
    const GroundBlock block = find_on_ground(start + at);
    if (block.start == nullptr) {
      at += kGranule;
      continue;
    }
    if (!visit(block.start, block.bytes)) return false;
    at = static_cast<usize>(block.start - start) + block.bytes;
  }
  return true;
}

// Blocks of a class that lie on ground and are live or in caches.
usize blocks_on_ground(SizeClass size_class);
struct GroundUse {
  usize bytes;       // of all units
  usize used_bytes;  // in blocks that are live or in caches
};
GroundUse ground_use();
// Gives whole free pages of the ground that starts at `unit`, if one does, to the kernel. Returns the bytes given.
usize purge_ground(UnitIndex unit, WentBack why);
// Debug: GROUND-1, at rest.
bool ground_is_valid();
// GROUND-4
void repair_ground_in_child(Cut cut = Cut::fork);

}  // namespace freestone
