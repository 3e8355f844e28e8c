// Room 7, slab: blocks of one size class, their bitmaps, and which slabs have room. No slab has an owner, and its
// blocks come and go without a lock; ground (slab/ground.h) has one.
//
// A set bit in Record::words is a free block. Any thread gives a block back by setting its bit; a thread that needs
// blocks takes whole words by exchange. `summary` holds one bit per word that may be nonzero, a busy bit, and a
// generation:
//
//   63        32 31      17 16 15            0
//   [generation][ unused ][busy][ nonempty words ]
//
// The token. For every slab there is at most one *token*, the right to hand out its blocks. It comes into being when
// the summary leaves "no word, not busy", and then lies
//   - with the thread that made that transition, until it sets the slab's bit in its shard's tree (`offer`);
//   - in the tree; the thread that clears the bit gets it (`claim`) and sets busy;
//   - with the claiming thread until it clears busy. Words that are nonempty by then are offered again by it.
// SLAB-1  Only the holder of the token takes bits out of words.
// SLAB-2  Only the holder of the token releases the slab, when every bit is set; it then raises the generation, so that
//         a thread that set one of those bits and comes late to the summary does nothing.
// SLAB-3  A nonzero word's bit is in the summary, except between a giver's two steps. Giver: set the word's bits, then
//         read the summary. Holder: clear the summary, then exchange the word. Both pairs are sequentially consistent,
//         so either the holder takes the new bits or the giver sees that it must set the summary: no free block is
//         lost.
// SLAB-4  Tree bits may say too much (a claim then finds nothing) but, once an offer has returned, never too little.
// SLAB-5  A page in `empty_pages` has no memory behind it, and all its blocks are free. Only the holder of the token
//         changes these bits.
#pragma once

#include "platform/message.h"
#include "region/region.h"
#include "region/traffic.h"

namespace freestone {

// Who asks for blocks or gives them back. `token` is the slab whose token it holds, for the child of a fork, which
// repairs that slab.
struct SlabUser {
  unsigned shard = 0;
  Atomic<UnitIndex> token;
  u64 random = 0;  // of mitigations; seeded when it is first used
};

inline u64 next_random(SlabUser& user) {
  if (FREESTONE_UNLIKELY(user.random == 0)) user.random = os::entropy() | 1;  // a system call: not at every refill
  return next_mixed(user.random);
}

// Takes up to `room` free blocks of a class into `out`, the lowest address last; at least `want`, unless memory runs
// out. `room` >= `want` >= 1. Prefers the shard's slabs, then whole slabs of other shards, then a fresh one. Returns
// how many.
// A block in a slab lies at a multiple of whatever divides its size, one elsewhere at 16 bytes.
enum class BlockPlace : u8 { anywhere, slab };
unsigned take_blocks(SizeClass size_class, SlabUser& user, unsigned want, unsigned room, void** out,
                     BlockPlace place = BlockPlace::anywhere);

// Gives blocks of one class back; slabs that become wholly free return to the span room.
// Aborts when an address is not the start of a block, or is free already.
void return_blocks(SizeClass size_class, SlabUser& user, void* const* blocks, unsigned count);

// One block whose memory is still zero, from the lowest slab with room in the shard; null when that slab has none.
// For classes of at most 64 blocks per slab.
void* take_zeroed_block(SizeClass size_class, SlabUser& user);

// Blocks of a slab class that are live or in thread caches.
usize blocks_outside(SizeClass size_class);

// The number of shards in use, a power of two; set before the second thread starts.
void set_shard_count(unsigned count);
unsigned shard_count();
// A thread joins this shard. One thread at a time may call it.
void begin_shard(unsigned shard);
// The shards in which slabs or blocks may lie: those that threads ever joined. A power of two.
unsigned shards_to_search();

// The slab that a unit inside it belongs to, and the start of the block that `pointer` points into (null behind the
// last block).
inline UnitIndex slab_start(const ClassInfo& info, UnitIndex unit) { return unit & ~(info.units - 1); }
void* block_start(SizeClass size_class, const void* pointer);
// What the bitmap says of an address in a slab. A block in a thread cache counts as in use.
enum class SlabPlace : u8 { used_block, free_block, no_block };
SlabPlace place_on_ground(SizeClass size_class, const void* pointer);
inline SlabPlace place_in_slab(SizeClass size_class, const void* pointer) {
  const UnitIndex unit = unit_of(pointer);
  if (kSharesGround && FREESTONE_UNLIKELY(tag_of(unit) == kTagGround)) return place_on_ground(size_class, pointer);
  const ClassInfo& info = class_info(size_class);
  const UnitIndex start = slab_start(info, unit);
  const usize offset = address_of(pointer) - address_of(unit_address(start));
  const u32 number = block_number(info, offset);
  if (usize{number} * info.bytes != offset || number >= info.blocks) return SlabPlace::no_block;
  const u64 word = record_of(start).words[number / 64].load_seq();
  return (word & bit(number % 64)) != 0 ? SlabPlace::free_block : SlabPlace::used_block;
}
// What to say of an address at which no block starts.
inline BlockFacts facts_inside(SizeClass size_class, const void* pointer) {
  const ClassInfo& info = class_info(size_class);
  const usize offset = address_of(pointer) - address_of(unit_address(slab_start(info, unit_of(pointer))));
  return {.block_bytes = info.bytes, .inside = offset % info.bytes};
}
inline bool is_block_free(SizeClass size_class, const void* block) {
  return place_in_slab(size_class, block) == SlabPlace::free_block;
}

// Some pages of a slab.
class SlabPages {
 public:
  explicit SlabPages(u64 pages) : pages_(pages) {}
  // Those that never had memory (SLAB-5): zeros, unless a write ran over from a neighbour. For who holds the slab's
  // token, or at rest.
  static SlabPages untouched(const Record& record) {
    return SlabPages(record.is_fresh != 0 ? record.empty_pages.load_relaxed() : 0);
  }
  // Whether these bytes of the slab lie on such pages alone.
  bool hold(usize offset, usize bytes) const {
    if (pages_ == 0) return false;
    const unsigned first = static_cast<unsigned>(offset >> shift_);
    const u64 pages = low_mask(static_cast<unsigned>((offset + bytes - 1) >> shift_) - first + 1) << first;
    return (pages_ & pages) == pages;
  }
  usize left_of_page(usize offset) const { return (usize{1} << shift_) - (offset & low_mask(shift_)); }

 private:
  u64 pages_;
  unsigned shift_ = lowest_bit(os::page_bytes());
};

// Whether somebody holds the token of the slab in which this block lies.
bool is_slab_held(SizeClass size_class, const void* block);

// Gives back whole free OS pages inside slabs. Returns the bytes given.
usize purge_slabs(SlabUser& user, WentBack why);
// Does so for surplus memory, as the heap grows and, when `due`, as time passes (slab_purge.cc). Called on slow paths.
// True: few blocks are left outside the slabs, so the caller should give back its own and purge all slabs.
bool purge_cold_pages(SlabUser& user, bool due);
// Of slabs in use, what is in no block outside them, with memory or without.
usize unused_slab_bytes();

// After a fork: a thread that was purging slabs is not in the child.
void forget_slab_purge();
// After a fork, while no thread claims: offers again the slab whose token another thread held, and repairs what
// searches had changed of the tree. `unit` is the thread's SlabUser::token and may be kNoUnit.
void repair_slab_in_child(UnitIndex unit);
void repair_trees_in_child();

// The slabs in use of a class, by bytes. While other threads run, the parts may be those of different instants.
struct SlabUse {
  usize slabs;          // count
  usize bytes;          // of all units
  usize outside_bytes;  // in blocks that are live or in thread caches
  usize empty_bytes;    // in pages without memory (SLAB-5)
  usize free_bytes;     // in free blocks with memory
};
SlabUse slab_use(SizeClass size_class);

struct SlabCounts {
  usize slabs;
  usize blocks;
  usize free_blocks;
};
// Reads the bitmaps of all slabs; other threads may go on.
void count_slabs(SlabCounts (&counts)[kClassEnd]);

// Calls visit(context, first unit, class) for every slab of the groups from `first` to `end`. Without `all` it visits
// only slabs whose token it can hold, so that nobody releases them meanwhile.
void visit_slabs(SlabUser& user, bool all, UnitIndex first, UnitIndex end,
                 void (*visit)(void* context, UnitIndex first, SizeClass size_class), void* context);

// Debug: walks every slab and checks SLAB-3 and SLAB-5 at rest (no other thread may run).
bool slabs_are_valid();

}  // namespace freestone
