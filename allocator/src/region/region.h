// Room 5, region: the window's range of addresses, the tag of each of its units, and the place of their records.
//
//   metadata                                     window
//   [ Super | 8 Octets | Super | 8 Octets | ... ][ tag table | nothing | heap units ........................ ]
//     grows with the heap                          1 byte/unit           mapped up to the frontier
//
// The window lies far from the kernel's usual places. Nothing in it is reserved. As the frontier moves up, all three
// parts are mapped in pieces at fixed places. A piece of the heap with a foreign mapping is skipped: its units get the
// tag kTagForeign and are never handed out. At a piece of a table with a foreign mapping the window ends. If no fixed
// place is free at all, a smaller range is reserved as a whole, inaccessible.
//
// `free` needs one subtraction and one compare to know that an address lies below the frontier (which rejects null,
// foreign and wild addresses together) and one byte load for the tag of its unit.
//
// REGION-1  A unit's tag is a size class exactly while the unit belongs to a slab of that class or, in the hardened
//           build, is the first of a run of that class. In the fast build such a run has the tag kTagClassRun and its
//           class in its record.
// REGION-2  Tags and metadata exist for every unit below the frontier before the frontier moves. It never moves back. A
//           thread that holds a block has seen the frontier beyond it, through whatever gave it the address. For a wild
//           address an older frontier, which refuses it, is as good as a newer one, whose tags were mapped before it
//           was stored.
//
// The span room maps under its growth lock; any thread reads everything else here.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"
#include "config/build_config.h"
#include "config/options.h"
#include "config/size_class.h"
#include "platform/mutex.h"
#include "policy/policy.h"

namespace freestone {

// What a unit is. Values below kTagClassEnd are size classes; 0: nothing that can be freed.
inline constexpr unsigned kTagClassEnd = kClassEnd;
inline constexpr u8 kTagNone = 0;
inline constexpr u8 kTagRun = kTagClassEnd;             // the first unit of a run above kCachedBytesMax
inline constexpr u8 kTagInside = kTagClassEnd + 1;      // a later unit of a run
inline constexpr u8 kTagSampled = kTagClassEnd + 2;     // a unit of a sampled block
inline constexpr u8 kTagHeapObject = kTagClassEnd + 3;  // a unit that a heap object holds
// The first unit of a class run, in the fast build: no entry of a cache, so that each free is checked.
inline constexpr u8 kTagClassRun = kTagClassEnd + 4;
inline constexpr u8 kTagGuard = kTagClassEnd + 5;    // free or behind a span, and it faults
inline constexpr u8 kTagForeign = kTagClassEnd + 6;  // skipped: somebody else may have mapped something there
inline constexpr u8 kTagGround = kTagClassEnd + 7;   // a unit of ground (slab/ground.h)
inline constexpr unsigned kTagCount = kTagClassEnd + 8;

constexpr bool is_nothing(u8 tag) { return tag == kTagNone || tag == kTagGuard || tag == kTagForeign; }

inline constexpr unsigned kGroupUnits = 64;   // 1 MiB: one bitmap word
inline constexpr unsigned kOctetGroups = 8;   // 8 MiB: one cache line of bitmap words
inline constexpr unsigned kSuperGroups = 64;  // 64 MiB: one bitmap word of groups
inline constexpr unsigned kDirtySets = 3;     // of free units with memory: younger, older, refused (span/span_map.h)

// What a run's memory holds, where freed memory is zero (HARD-2).
enum class RunState : u8 {
  used,     // handed out, or its contents may be the program's
  fresh,    // taken, and not handed out yet
  cleared,  // freed
};
// What a record says about a span that a heap object holds.
struct HeapObjectSpan {
  u64 object;       // its address, in every unit
  UnitIndex first;  // the span's first unit, in every unit
  UnitIndex next;   // first unit: the list that the span is in
  UnitIndex previous;
  u32 live;  // first unit: blocks in use
};
// What a record says about a unit of ground. The bitmaps lie in the metadata room.
struct GroundUnit {
  Atomic<u64>* starts;  // in every unit: of the whole ground; `lasts` lie behind them
  UnitIndex first;      // in every unit
  UnitIndex next;       // first unit: the list that the ground is in
  UnitIndex previous;
  u16 hole;     // first unit: the length of a hole, in granules; 0: none is known
  u16 hole_at;  // beyond the ground: it is in no list
};
// The record of a slab or run, kept for its first unit; the slab room defines what the fields mean. The memory always
// is a record. `summary`, `shard` and `empty_pages` are only a slab's, so a thread that comes late to a slab finds
// there an old or a new slab's. A sampled block (SampledRecord in front/sampled.h) uses `words` for its own, and a span
// of a heap object `words` and `heap`: whoever comes late may read these, and then gets no token.
struct alignas(64) Record {
  Atomic<u64> summary;      // slab: generation | busy | nonempty words
  Atomic<u8> shard;         // slab: the shard whose tree offers it
  u8 size_class;            // slab, class run: fixed while it exists
  u8 is_fresh;              // slab: 1 while its empty pages never had memory
  RunState run_state;       // run, hardened
  u32 run_units;            // run, unit of ground: its length; slab, hardened: with its guard
  Atomic<u64> zero_blocks;  // slab of up to 64 blocks: blocks whose memory is still zero
  union {
    u64 request_bytes;  // run: the bytes asked for (hardened) or sampled
    u64 last_look;      // slab: see look_of (slab_purge.cc)
  };
  Atomic<u64> empty_pages;  // slab: pages without memory behind them (SLAB-5)
  Atomic<u64> words[16];    // slab, also a heap object's: a set bit is a free block
  union {
    HeapObjectSpan heap;     // unit of a heap object
    GroundUnit ground;       // unit of ground
    UnitIndex next_retired;  // retired slab or run: see span/retired.h
  };
};
static_assert(sizeof(Record) == 192);

// A tree of slabs with room for each shard and class; the classes of the second partition, which few programs use, have
// one for all shards.
inline constexpr unsigned kTrees = kShardsMax * (kPlainClasses + 1) + kPartedClasses;
constexpr unsigned tree_number(unsigned shard, SizeClass size_class) {
  if (kPartitions > 1 && size_class > kPlainClasses) return kTrees - kPartedClasses - kPlainClasses - 1 + size_class;
  return shard * (kPlainClasses + 1) + size_class;
}

// For each shard and class one line holds the words of neighbouring groups, so a heap with few classes touches few of
// these pages.
struct alignas(4096) Octet {
  Record records[kOctetGroups * kGroupUnits];
  Atomic<u64> slabs_with_room[kTrees][kOctetGroups];
};

// What is free in a piece of the heap, in units (span/free_tree.h).
struct FreeSummary {
  u32 first = 0;    // at its start
  u32 longest = 0;  // in its longest stretch
  u32 last = 0;     // at its end
  u32 order = 0;    // 1 + the binary logarithm of the largest aligned power of two that is free, up to a group; 0: none

  bool operator==(const FreeSummary&) const = default;
};

// The span lock guards the bitmaps of the units. It is held for a search and a few words, never across a system call.
// The thread that enlarges the heap holds the growth lock across the kernel's work. It is taken before the span lock.
extern Mutex span_lock;
extern Mutex growth_lock;

struct alignas(4096) Super {
  // span/span_map.h says what they mean.
  u64 free_units[kSuperGroups] FREESTONE_GUARDED_BY(span_lock);
  u64 dirty_units[kDirtySets][kSuperGroups] FREESTONE_GUARDED_BY(span_lock);
  u64 dirty_groups[kDirtySets] FREESTONE_GUARDED_BY(span_lock);
  FreeSummary free_in_group[kSuperGroups] FREESTONE_GUARDED_BY(span_lock);
  FreeSummary free_in_octet[kSuperGroups / kOctetGroups] FREESTONE_GUARDED_BY(span_lock);
  FreeSummary free_in_super FREESTONE_GUARDED_BY(span_lock);
  Atomic<u64> groups_with_room[kTrees];
};

// How memory is made to fault: not at all; by withdrawing access, which costs mappings (guarding.h); by the kernel's
// guard regions.
enum class Guarding : u8 { none, protection, advice };

inline constexpr usize kNowhere = usize{1} << 63;  // further below every address than a window is long
struct alignas(64) Region {
  usize base = kNowhere;  // hot: read by every free
  // Hot: from base to the frontier; 0 until there is a window. A thread that sees one of the two of before the start
  // and the other of after it refuses every address, in whatever order it reads them.
  Atomic<usize> frontier_bytes;
  usize metadata = 0;  // address of Super 0 (biased: the supers below the heap do not exist)
  UnitIndex heap_start = 0;
  UnitIndex window_end FREESTONE_GUARDED_BY(growth_lock) = 0;  // the frontier goes no further
  // Units below it are mapped or skipped. Written under the growth lock, like `skipped` and `frontier_bytes`.
  Atomic<UnitIndex> frontier;
  Atomic<UnitIndex> skipped;  // units below the frontier that are not ours
  bool reserved = false;      // the window is reserved as a whole
  // An address behind the window, where one more structure can grow undisturbed; 0 if the window is reserved.
  usize behind = 0;
};
extern FREESTONE_HIDDEN Region region;

inline constexpr usize kWindowUnitsMax = kWindowBytes >> kUnitShift;
inline constexpr usize kSuperStride = sizeof(Super) + kSuperGroups / kOctetGroups * sizeof(Octet);

inline Super& super_at(usize index) { return *reinterpret_cast<Super*>(region.metadata + index * kSuperStride); }
inline Octet& octet_of_group(usize group) {
  return *reinterpret_cast<Octet*>(region.metadata + group / kSuperGroups * sizeof(Super) +
                                   group / kOctetGroups * sizeof(Octet) + sizeof(Super));
}
// Of its octet's `records`, in fewer steps than through the octet.
inline Record& record_of(usize unit) {
  constexpr usize kBehindRecords = sizeof(Octet) - sizeof(Octet::records);
  return reinterpret_cast<Record*>(region.metadata + unit / (kSuperGroups * kGroupUnits) * sizeof(Super) +
                                   unit / (kOctetGroups * kGroupUnits) * kBehindRecords + sizeof(Super))[unit];
}
inline Atomic<u64>& slabs_with_room(usize group, unsigned shard, unsigned size_class) {
  return octet_of_group(group).slabs_with_room[tree_number(shard, size_class)][group % kOctetGroups];
}

inline u8* tag_table() { return reinterpret_cast<u8*>(region.base); }
inline Atomic<u8>& tag_place(UnitIndex unit) { return reinterpret_cast<Atomic<u8>*>(region.base)[unit]; }
inline u8 tag_of(UnitIndex unit) { return tag_place(unit).load_relaxed(); }
// The tag by an offset from the region's base, for the fast paths.
FREESTONE_INLINE u8 tag_at(usize base, usize offset) {
  return reinterpret_cast<const Atomic<u8>*>(base)[offset >> kUnitShift].load_operand();
}
// Relaxed: a thread that may free the block got its address from this one, by something that orders memory.
inline void set_tag(UnitIndex unit, u8 tag) { tag_place(unit).store_relaxed(tag); }
inline void set_tags(UnitIndex first, usize units, u8 tag) {
  const u64 eight = u64{0x0101010101010101} * tag;
  Atomic<u8>* at = &tag_place(first);
  Atomic<u8>* const end = at + units;
  while (at != end) {
    if (address_of(at) % sizeof eight == 0 && end - at >= static_cast<std::ptrdiff_t>(sizeof eight)) {
      __atomic_store_n(reinterpret_cast<u64*>(at), eight, __ATOMIC_RELAXED);
      at += sizeof eight;
    } else {
      at++->store_relaxed(tag);
    }
  }
}

inline bool all_tagged(UnitIndex first, usize units, u8 tag) {
  for (usize k = 0; k < units; ++k) {
    if (tag_of(first + static_cast<UnitIndex>(k)) != tag) return false;
  }
  return true;
}

// The class of the slab that the unit belongs to, or of the class run that it starts; 0 for none.
inline u8 class_at(UnitIndex unit) {
  const u8 tag = tag_of(unit);
  if (tag < kTagClassEnd) return tag;
  return tag == kTagClassRun ? record_of(unit).size_class : kTagNone;
}
inline void set_class_run(UnitIndex first, u8 size_class) {
  record_of(first).size_class = size_class;
  set_tag(first, kChecksEveryCall ? size_class : kTagClassRun);
}

inline UnitIndex unit_of(const void* pointer) {
  return static_cast<UnitIndex>((address_of(pointer) - region.base) >> kUnitShift);
}
// Whether the address lies in memory of the heap; its unit then has a tag and a record.
inline bool in_window(const void* pointer) {
  return address_of(pointer) - region.base < region.frontier_bytes.load_relaxed() &&
         tag_of(unit_of(pointer)) != kTagForeign;
}
inline char* unit_address(UnitIndex unit) { return reinterpret_cast<char*>(region.base + units_to_bytes(unit)); }

// Whether inaccessible units follow slabs and runs. They cost address space and count as data, so there are none if the
// process started with a limit on either below kGuardedFromBytes, unless it runs with more rights than its caller, and
// none with pages larger than a unit.
inline Guarding guarding() { return static_cast<Guarding>(sealed_page.guarding); }
inline bool guards_spans() { return kMitigations.guards && guarding() != Guarding::none; }

// A number that nobody can guess, below `end`: without a system call once the window has its place. In the child of a
// fork others are drawn.
usize span_random(usize end);
void renew_span_random();
// The lower one of the limits on address space and data at the start.
usize system_limit_bytes();
// In the hardened build: a random place of so many bytes at a multiple of `alignment`, between windows and where the
// kernel puts programs. What lies there alone faults on both sides, nobody knows how far other things are, and the
// address does not come back. 0: too long, or no hardened build. It may be taken.
usize place_apart(usize bytes, usize alignment);

// Finds a place for the window; called once. False when there is none.
bool place_region();
// Maps units beyond the frontier and moves it behind them, at least `units` from a multiple of `alignment` (a power of
// two) on. The new units are zero and lie together; mappings in the way are skipped. They end on a group border, unless
// the kernel had no room for so many. If the kernel or the limit refuses, or the window is full, it returns no units
// and changes nothing.
struct Grown {
  UnitIndex first = kNoUnit;
  usize units = 0;
};
Grown commit_units(usize units, usize alignment) FREESTONE_REQUIRES(growth_lock);
// FORK-5: the units that the frontier has passed or is about to pass, and the span room has not added to its map yet.
// The span room clears it.
extern Grown unadded FREESTONE_GUARDED_BY(growth_lock);
// In the child of a fork, if another thread was making the heap larger: undoes that, unless the frontier has moved.
void repair_growth_in_child() FREESTONE_REQUIRES(growth_lock);
// Of the heap's units below the frontier, those in the span room's map. Exact if nobody is changing either.
usize added_units();
// Whether a page of this unit has memory only once it was touched: no huge page brings it.
bool has_plain_pages(UnitIndex unit);
// Whether fill_frame may be used: with thp:auto, where the system gives huge pages on request, and without a limit.
bool fills_frames();
// Asks the system; at start, because the program may have sandboxed itself by the time when the heap is large.
void ask_about_frames();
// Fills a frame with memory at once, as one huge page if the kernel has one. Then it advises plain pages again, so that
// the kernel does not bring back memory that we give back in parts.
bool fill_frame(UnitIndex first);
// The heap's units below the frontier. Exact if the caller holds the growth lock.
inline usize committed_units() {
  return region.frontier.load_relaxed() - region.heap_start - region.skipped.load_relaxed();
}

// Calls visit(first, end) for each stretch of the heap between skipped pieces. If the kernel had no room for a whole
// group, and somebody else took the rest of it, that rest counts to the stretch.
template <typename Visit>
void for_each_heap_piece(Visit visit) {
  const UnitIndex frontier = region.frontier.load_acquire();
  const auto border = [frontier](UnitIndex from, bool foreign) {
    while (from < frontier && (tag_of(from) == kTagForeign) == foreign) from += kGroupUnits;
    return from;
  };
  for (UnitIndex first = border(region.heap_start, true); first < frontier;) {
    const UnitIndex end = border(first, false);
    visit(first, end);
    first = border(end, true);
  }
}

// The mapped parts of the tables.
struct TableRange {
  usize start;
  usize bytes;
};
TableRange mapped_tags() FREESTONE_REQUIRES(growth_lock);
TableRange mapped_metadata() FREESTONE_REQUIRES(growth_lock);
// The mapped bytes of both tables, and how many of them are in memory: all, where the kernel does not say.
usize metadata_committed_bytes() FREESTONE_REQUIRES(growth_lock);
usize metadata_resident_bytes() FREESTONE_REQUIRES(growth_lock);

}  // namespace freestone
