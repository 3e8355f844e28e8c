// Room 8, cache: see transfer.h.

#include "cache/transfer.h"

#include <cstring>

#include "base/check.h"
#include "base/places.h"
#include "config/build_config.h"
#include "config/heuristics.h"
#include "platform/child.h"

namespace freestone {

namespace {

constexpr unsigned kBinBlocks = 126;
constexpr SizeClass kBins = kLastSmallClass + 1;

struct alignas(64) Bin {
  Atomic<usize> entered;  // own_thread() of the thread in the bin, which alone reads and writes the rest; 0: none
  Atomic<u32> count;      // read by others as a hint
  u32 low = 0;            // the least count since the last drain
  void* blocks[kBinBlocks] = {};

  bool enter() {
    settle_child();
    usize free = 0;
    return entered.load_relaxed() == 0 && entered.replace_acquire(free, own_thread());
  }
  void leave() {
    FREESTONE_CHECK("TRANSFER-1", entered.load_relaxed() == own_thread());
    entered.store_release(0);
  }
};

struct Shard {
  alignas(64) Atomic<u32> used;  // 1 from the first block on: pages of a shard that never held a block stay untouched
  Bin bins[kBins];
};

FREESTONE_FAR constinit Shard shards[kShardsMax];

unsigned bin_capacity(const ClassInfo& info) {
  return static_cast<unsigned>(min_of<usize>(kBinBlocks, block_number(info, kTransferBytesPerBin)));
}

FREESTONE_INLINE void copy_blocks(void** to, void* const* from, u32 count) {
  for (; count != 0; --count) {
    *to++ = *from++;
    asm("" : "+r"(to));  // mostly few: no call of memcpy
  }
}

unsigned take_from_bin(Bin& bin, unsigned room, void** out) {
  if (bin.count.load_relaxed() == 0 || !bin.enter()) return 0;
  const u32 have = bin.count.load_relaxed();
  const u32 got = min_of<u32>(have, room);
  const u32 left = have - got;
  copy_blocks(out, bin.blocks + left, got);
  bin.count.store_relaxed(left);
  bin.low = min_of(bin.low, left);
  bin.leave();
  return got;
}

// Moves the oldest blocks of a bin to the slabs: all, or those that were not needed.
void drain_bin(Bin& bin, SizeClass c, SlabUser& user, bool all) {
  if (bin.count.load_relaxed() == 0 || !bin.enter()) return;
  const u32 have = bin.count.load_relaxed();
  const u32 going = all ? have : bin.low;
  return_blocks(c, user, bin.blocks, going);
  std::memmove(bin.blocks, bin.blocks + going, (have - going) * sizeof(void*));
  bin.count.store_relaxed(have - going);
  bin.low = have - going;
  bin.leave();
}

}  // namespace

unsigned give_to_transfer(SizeClass c, unsigned shard, void* const* blocks, unsigned count) {
  Bin& bin = shards[shard].bins[c];
  const unsigned capacity = bin_capacity(class_info(c));
  if (bin.count.load_relaxed() >= capacity || !bin.enter()) return 0;
  const u32 have = bin.count.load_relaxed();
  const u32 given = min_of<u32>(count, capacity - min_of(capacity, have));
  copy_blocks(bin.blocks + have, blocks, given);
  bin.count.store_relaxed(have + given);
  FREESTONE_CHECK("TRANSFER-3", have + given <= capacity);
  bin.leave();
  if (shards[shard].used.load_relaxed() == 0) shards[shard].used.store_relaxed(1);
  return given;
}

unsigned take_from_transfer(SizeClass c, unsigned shard, unsigned room, void** out) {
  const unsigned used = shards_to_search();
  for (unsigned k = 0; k < used; ++k) {
    if (const unsigned got = take_from_bin(shards[(shard + k) & (used - 1)].bins[c], room, out); got != 0) return got;
  }
  return 0;
}

void drain_transfer(SlabUser& user, bool all) {
  for (unsigned k = 0; k < shards_to_search(); ++k) {
    Shard& shard = shards[k];
    if (shard.used.load_relaxed() == 0) continue;
    for (SizeClass c = 1; c < kBins; ++c) drain_bin(shard.bins[c], c, user, all);
  }
}

void count_transfer(usize (&blocks)[kClassEnd]) {
  for (const Shard& shard : shards) {
    if (shard.used.load_relaxed() == 0) continue;
    for (SizeClass c = 1; c < kBins; ++c) blocks[c] += shard.bins[c].count.load_relaxed();
  }
}

usize copy_transfer_blocks(void** out, usize room) {
  usize copied = 0;
  for (Shard& shard : shards) {
    if (shard.used.load_relaxed() == 0) continue;
    for (Bin& bin : shard.bins) {
      if (bin.count.load_relaxed() == 0 || !bin.enter()) continue;
      for (u32 i = 0; i < bin.count.load_relaxed() && copied < room; ++i) out[copied++] = bin.blocks[i];
      bin.leave();
    }
  }
  return copied;
}

FREESTONE_SLOW void repair_transfer_in_child(Cut cut) {
  for (Shard& shard : shards) {
    if (shard.used.load_relaxed() == 0) continue;
    for (Bin& bin : shard.bins) {
      // The interrupted code of the calling thread goes on in its bin.
      const usize by = bin.entered.load_relaxed();
      if (by == 0 || (by == own_thread()) != (cut == Cut::cancellation)) continue;
      bin.count.store_relaxed(0);
      bin.entered.store_release(0);
    }
  }
}

constinit Places transfer_places = {
    &shards[0].used, &shards[1].used, &shards[0].bins[0].count, &shards[0].bins[1].count};

}  // namespace freestone
