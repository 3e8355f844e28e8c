// Room 7, slab: see room_tree.h.

#include "slab/room_tree.h"

#include "platform/child.h"

namespace freestone {

void RoomTree::lower_hint(u32 super) const {
  u32 current = hint().load_seq();
  while (super < current && !hint().replace_seq(current, super)) {
  }
}

void RoomTree::raise_hint(u32 from, u32 to) const {
  u32 expected = from;
  if (!hint().replace_seq(expected, to)) return;
  const u32 first = static_cast<u32>(region.heap_start / kGroupUnits / kSuperGroups);
  for (u32 super = max_of(from, first); super < to; ++super) {
    if (groups(super).load_seq() != 0) return lower_hint(super);
  }
}

void RoomTree::offer(UnitIndex unit) {
  const usize group = unit / kGroupUnits;
  const auto super = static_cast<u32>(group / kSuperGroups);
  const u64 group_bit = bit(group % kSuperGroups);
  slabs(group).or_seq(bit(unit % kGroupUnits));
  if ((groups(super).load_seq() & group_bit) == 0) groups(super).or_seq(group_bit);
  if (super < hint().load_seq()) lower_hint(super);
}

// `word` has the slab's bit.
static FREESTONE_INLINE bool claim_in(Atomic<u64>& word, UnitIndex unit, Atomic<UnitIndex>& watch) {
  const u64 unit_bit = bit(unit % kGroupUnits);
  watch.store_relaxed(unit);  // read only by the repair of a child
  return (word.fetch_and_seq(~unit_bit) & unit_bit) != 0;
}

bool RoomTree::claim(UnitIndex unit, Atomic<UnitIndex>& watch) {
  Atomic<u64>& word = slabs(unit / kGroupUnits);
  if ((word.load_seq() & bit(unit % kGroupUnits)) == 0) return false;
  settle_child();
  return claim_in(word, unit, watch);
}

void RoomTree::repair(usize group) const {
  if (slabs(group).load_seq() != 0) groups(group / kSuperGroups).or_seq(bit(group % kSuperGroups));
}

void RoomTree::repair_hint() const { lower_hint(static_cast<u32>(region.heap_start / kGroupUnits / kSuperGroups)); }

bool RoomTree::finds(UnitIndex unit) const {
  const usize group = unit / kGroupUnits;
  return (slabs(group).load_seq() & bit(unit % kGroupUnits)) != 0 &&
         (groups(group / kSuperGroups).load_seq() & bit(group % kSuperGroups)) != 0 &&
         hint().load_seq() <= group / kSuperGroups;
}

UnitIndex RoomTree::search(Atomic<UnitIndex>& watch) {
  settle_child();  // before `watch` names a group: taken for a token of this thread, it keeps another from its repair
  const UnitIndex frontier = region.frontier.load_acquire();
  if (frontier == region.heap_start) return kNoUnit;  // no metadata yet
  const u32 start = hint().load_seq();
  const auto end = static_cast<u32>((frontier / kGroupUnits + kSuperGroups - 1) / kSuperGroups);
  const auto first = static_cast<u32>(region.heap_start / kGroupUnits / kSuperGroups);
  for (u32 super = max_of(start, first); super < end; ++super) {
    u64 occupied = groups(super).load_seq();
    while (occupied != 0) {
      const unsigned position = lowest_bit(occupied);
      const usize group = usize{super} * kSuperGroups + position;
      watch.store_relaxed(static_cast<UnitIndex>(group * kGroupUnits));  // for the bit of the group, which is cleared
      Atomic<u64>& word = slabs(group);
      while (const u64 seen = word.load_seq()) {
        const auto unit = static_cast<UnitIndex>(group * kGroupUnits + lowest_bit(seen));
        if (claim_in(word, unit, watch)) {
          if (super > start) raise_hint(start, super);
          return unit;
        }
      }
      groups(super).and_seq(~bit(position));
      if (word.load_seq() != 0) {
        groups(super).or_seq(bit(position));
        lower_hint(super);  // the offer of that slab may have read the hint before another search raised it
      }
      occupied &= occupied - 1;
    }
  }
  if (end > start) raise_hint(start, end);
  return kNoUnit;
}

}  // namespace freestone
