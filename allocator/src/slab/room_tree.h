// Room 7, slab: which slabs of a class have room, per shard. Lock-free; a search finds the lowest address.
//
// Three levels: a bit per unit in the group, a bit per group in the super, and per (shard, class) the lowest super that
// may hold something. An offer sets the levels from below; a search clears a group's bit when its word is empty and
// looks again, so a bit above an empty word is possible, a missing one above an occupied word is not (SLAB-4).
//
// TREE-1  The lowest-super hint may be too low, never too high: a search that raises it looks again at what it passed;
//         an offer, and a search that puts a group's bit back, set their bits before they read the hint. All
//         sequentially consistent, so one of the two sees the other.
#pragma once

#include "base/bits.h"
#include "config/size_class.h"
#include "region/region.h"

namespace freestone {

// What a shard knows of each class. All of it lies together: a program with one thread uses only the first row.
struct alignas(64) ShardRow {
  Atomic<u32> lowest_super[kLastSmallClass + 1];  // TREE-1
  Atomic<u64> blocks_out[kLastSmallClass + 1];    // blocks taken less blocks returned, by threads of the shard
};
extern ShardRow shard_rows[kShardsMax];

class RoomTree {
 public:
  RoomTree(unsigned shard, SizeClass size_class)
      : shard_(kPartitions > 1 && size_class > kPlainClasses ? 0 : shard), class_(size_class) {}

  // Puts the token of the slab that starts at `unit` into the tree.
  void offer(UnitIndex unit);
  // Takes the token of the lowest slab. kNoUnit if there is none. For the child of a fork, `watch` names the slab from
  // before its token is taken, and the group whose bit is being cleared.
  UnitIndex claim_lowest(Atomic<UnitIndex>& watch) {
    const usize lowest = usize{hint().load_seq()} * kGroupUnits * kSuperGroups;
    return lowest < region.frontier.load_acquire() ? search(watch) : kNoUnit;
  }
  // Takes the token of this slab if it lies in the tree.
  bool claim(UnitIndex unit, Atomic<UnitIndex>& watch);
  // In the child of a fork: SLAB-4 of a group, and TREE-1, after a search that was cut short.
  void repair(usize group) const;
  void repair_hint() const;
  // Calls visit(unit) for each slab in the tree. Other threads may claim and offer slabs meanwhile.
  template <typename Visit>
  void for_each(Visit visit) const {
    const UnitIndex frontier = region.frontier.load_acquire();
    if (frontier == region.heap_start) return;  // no metadata yet
    const auto first = static_cast<u32>(region.heap_start / kGroupUnits / kSuperGroups);
    const auto last = static_cast<u32>((frontier - 1) / kGroupUnits / kSuperGroups);
    for (u32 super = max_of(hint().load_seq(), first); super <= last; ++super) {
      for (u64 occupied = groups(super).load_seq(); occupied != 0; occupied &= occupied - 1) {
        const usize group = usize{super} * kSuperGroups + lowest_bit(occupied);
        for (u64 word = slabs(group).load_seq(); word != 0; word &= word - 1)
          visit(static_cast<UnitIndex>(group * kGroupUnits + lowest_bit(word)));
      }
    }
  }
  // Debug: whether a search would find this slab (SLAB-4, TREE-1), while no other thread runs.
  bool finds(UnitIndex unit) const;

 private:
  Atomic<u64>& slabs(usize group) const { return slabs_with_room(group, shard_, class_); }
  Atomic<u64>& groups(usize super) const { return super_at(super).groups_with_room[tree_number(shard_, class_)]; }
  Atomic<u32>& hint() const { return shard_rows[shard_].lowest_super[class_]; }
  UnitIndex search(Atomic<UnitIndex>& watch);
  void lower_hint(u32 super) const;
  void raise_hint(u32 from, u32 to) const;

  unsigned shard_;
  SizeClass class_;
};

}  // namespace freestone
