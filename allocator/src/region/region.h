// Room 5, region: the reserved address range, what each unit of it is, and where the records about it lie.
//
//   window   [ tag table | inaccessible | heap units ......................................... ]
//              1 byte/unit  guard         committed up to a frontier, reserved beyond
//   metadata [ Super | 8 Octets | Super | 8 Octets | ... ]   a mapping of its own, committed along with the heap
//
// `free` needs one subtraction and one compare to know that an address lies in the window (which rejects null, foreign
// and wild addresses together) and one byte load to know what its unit is. The table is readable over the whole window.
//
// REGION-1  A unit's tag is a size class exactly while the unit belongs to a slab of that class or, in the hardened build, is the
//           first of a run of that class. In the fast build such a run has the tag kTagClassRun and its class in its record.
// REGION-2  Metadata exists for every unit below the frontier before the frontier moves.
//
// Reserving and committing is done by the span room under its lock; everything else here is read by any thread.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"
#include "config/build_config.h"
#include "policy/policy.h"

namespace freestone {

// What a unit is. Values below kTagClassEnd are size classes (0 = nothing that can be freed).
inline constexpr unsigned kTagClassEnd = 89;
inline constexpr u8 kTagNone = 0;
inline constexpr u8 kTagRun = 89;     // the first unit of a run above kCachedBytesMax
inline constexpr u8 kTagInside = 90;  // a later unit of a run
inline constexpr u8 kTagSampled = 91;  // a unit of a sampled block
inline constexpr u8 kTagHeapObject = 92;  // a unit that a heap object holds
inline constexpr u8 kTagClassRun = 93;  // the first unit of a run of a class, in the fast build: no entry of a cache, so that each free is checked
inline constexpr u8 kTagGuard = 94;  // free or behind a span, and it faults
inline constexpr unsigned kTagCount = 96;

constexpr bool is_nothing(u8 tag) { return tag == kTagNone || tag == kTagGuard; }

inline constexpr unsigned kGroupUnits = 64;   // 1 MiB: one bitmap word
inline constexpr unsigned kOctetGroups = 8;   // 8 MiB: one cache line of bitmap words
inline constexpr unsigned kSuperGroups = 64;  // 64 MiB: one bitmap word of groups

// The record of a slab or run, kept for its first unit. Type-stable: the memory is never used for anything else, so a
// late reader sees an old or a new record but never foreign data. The slab room defines what the fields mean.
struct alignas(64) Record {
  Atomic<u64> summary;     // slab: generation | busy | nonempty words
  Atomic<u8> shard;        // slab: the shard whose tree offers it
  u8 size_class;           // slab, run of a class: fixed while it exists
  u16 reserved;
  u32 run_units;           // run: its length
  Atomic<u64> zero_blocks; // slab of up to 64 blocks: blocks whose memory is still zero
  u64 request_bytes;       // run: the bytes asked for (hardened) or sampled
  Atomic<u64> words[16];   // slab: a set bit is a free block
  u64 heap_object;         // heap object: its address, in every unit that it holds
  UnitIndex heap_first;    // heap object: the first unit of the span, in every unit
  UnitIndex heap_next;     // heap object, first unit: the list that the span is in
  UnitIndex heap_previous;
  u32 heap_live;           // heap object, first unit: blocks in use
  u64 padding[1];
};
static_assert(sizeof(Record) == 192);

// The words of neighbouring groups lie in one line per shard and class, so that a heap of few classes touches few pages of them.
struct alignas(4096) Octet {
  Record records[kOctetGroups * kGroupUnits];
  Atomic<u64> slabs_with_room[kShardsMax][kTagCount][kOctetGroups];
};

struct alignas(4096) Super {
  // Guarded by the span lock, which also says what they mean.
  u64 free_units[kSuperGroups];
  u64 dirty_units[kSuperGroups];
  u64 backed_units[kSuperGroups];
  u64 measured_units[kSuperGroups];
  u8 longest_free[kSuperGroups];
  u8 resident_pages[kSuperGroups][kGroupUnits];
  Atomic<u64> groups_with_room[kShardsMax][kTagCount];
};

struct Region {
  usize base = 0;          // hot: read by every free
  usize window_bytes = 0;  // hot: 0 until reserved, so every address is refused
  usize metadata = 0;      // address of Super 0 (biased: the supers below the heap do not exist)
  UnitIndex heap_start = 0;
  UnitIndex window_end = 0;
  Atomic<UnitIndex> reserved_end;  // written under the span lock
  Atomic<UnitIndex> frontier;      // units below are accessible; written under the span lock
  bool guards = false;             // see guards_spans
};
extern FREESTONE_HIDDEN Region region;

inline constexpr usize kSuperStride = sizeof(Super) + kSuperGroups / kOctetGroups * sizeof(Octet);

inline Super& super_at(usize index) { return *reinterpret_cast<Super*>(region.metadata + index * kSuperStride); }
inline Octet& octet_of_group(usize group) {
  const usize octet = group % kSuperGroups / kOctetGroups;
  return *reinterpret_cast<Octet*>(region.metadata + group / kSuperGroups * kSuperStride + sizeof(Super) + octet * sizeof(Octet));
}
inline Record& record_of(UnitIndex unit) { return octet_of_group(unit / kGroupUnits).records[unit % (kOctetGroups * kGroupUnits)]; }
inline Atomic<u64>& slabs_with_room(usize group, unsigned shard, unsigned size_class) {
  return octet_of_group(group).slabs_with_room[shard][size_class][group % kOctetGroups];
}

inline u8* tag_table() { return reinterpret_cast<u8*>(region.base); }
inline u8 tag_of(UnitIndex unit) { return __atomic_load_n(tag_table() + unit, __ATOMIC_RELAXED); }
// Relaxed: a thread that may free the block received its address from this one, through something that orders.
inline void set_tag(UnitIndex unit, u8 tag) { __atomic_store_n(tag_table() + unit, tag, __ATOMIC_RELAXED); }
inline void set_tags(UnitIndex first, usize units, u8 tag) {
  const u64 eight = u64{0x0101010101010101} * tag;
  u8* at = tag_table() + first;
  u8* const end = at + units;
  while (at != end) {
    if (address_of(at) % sizeof eight == 0 && end - at >= static_cast<std::ptrdiff_t>(sizeof eight)) {
      __atomic_store_n(reinterpret_cast<u64*>(at), eight, __ATOMIC_RELAXED);
      at += sizeof eight;
    } else {
      __atomic_store_n(at++, tag, __ATOMIC_RELAXED);
    }
  }
}

// The class of the slab or run whose unit, the first one of a run, this is; 0 for none.
inline u8 class_at(UnitIndex unit) {
  const u8 tag = tag_of(unit);
  if (tag < kTagClassEnd) return tag;
  return tag == kTagClassRun ? record_of(unit).size_class : kTagNone;
}
inline void set_class_run(UnitIndex first, u8 size_class) {
  record_of(first).size_class = size_class;
  set_tag(first, kMitigations.any() ? size_class : kTagClassRun);
}

inline bool in_window(const void* pointer) { return address_of(pointer) - region.base < region.window_bytes; }
inline UnitIndex unit_of(const void* pointer) { return static_cast<UnitIndex>((address_of(pointer) - region.base) >> kUnitShift); }
inline char* unit_address(UnitIndex unit) { return reinterpret_cast<char*>(region.base + units_to_bytes(unit)); }

// Whether slabs and runs are followed by inaccessible units. They cost addresses and count as data, so not where either was limited when
// the process started; and not on a kernel without them.
inline bool guards_spans() { return kMitigations.guards && region.guards; }

// Reserves the window and its metadata; called once. False when not even the smallest can be had.
bool reserve_region();
// Makes at least `units` more units accessible beyond the frontier and moves it. The new units are zero. Returns how many,
// 0 when the kernel refuses or the window is full.
usize commit_units(usize units);

// Bytes of metadata that are accessible, for statistics.
usize metadata_committed_bytes();
// Of these, what is in memory. The kernel is asked; the caller holds the span lock.
usize metadata_resident_bytes();

}  // namespace freestone
