// Room 7, slab: looks at slabs from outside: walks, counts, checks, and what the child of a fork repairs.

#include "platform/os.h"
#include "slab/holding.h"

namespace freestone {

void* block_start(SizeClass size_class, const void* pointer) {
  const ClassInfo& info = class_info(size_class);
  const UnitIndex start = slab_start(info, unit_of(pointer));
  char* slab = unit_address(start);
  const u32 number = block_number(info, address_of(pointer) - address_of(slab));
  return number < info.blocks ? slab + usize{number} * info.bytes : nullptr;
}

FREESTONE_SLOW bool is_slab_held(SizeClass size_class, const void* block) {
  return (record_of(slab_start(class_info(size_class), unit_of(block))).summary.load_seq() & kBusy) != 0;
}

FREESTONE_SLOW void repair_trees_in_child() {
  for (unsigned shard = 0; shard < shards_to_search(); ++shard) {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) RoomTree(shard, c).repair_hint();
  }
}

FREESTONE_SLOW void repair_slab_in_child(UnitIndex unit) {
  if (unit == kNoUnit) return;
  for (unsigned shard = 0; shard < shards_to_search(); ++shard) {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) RoomTree(shard, c).repair(unit / kGroupUnits);
  }
  const u8 tag = tag_of(unit);
  if (tag == kTagNone || tag > kLastSmallClass || slab_start(class_info(tag), unit) != unit) return;
  Record& record = record_of(unit);
  const ClassInfo& info = class_info(tag);
  u64 words[kSlabWordsMax];
  const u64 nonempty = load_words(info, record, words);
  for (u32 n = 0; kMitigations.trailer && n < info.blocks; ++n) {  // STATE-1
    if (!all_set(words, n, n)) set_taken(unit_address(unit) + usize{n} * info.bytes, info.bytes);
  }
  // The blocks that the thread had just taken are lost: they and their pages count as touched (SLAB-5).
  if (info.blocks <= 64) record.zero_blocks.and_seq(words[0]);
  const u64 empty = record.empty_pages.load_relaxed();
  const u64 lost = empty & ~free_pages(info, words, os::page_bytes());
  record.empty_pages.store_relaxed(empty & ~lost);
  empty_bytes[tag].sub_relaxed(count_bits(lost) * os::page_bytes());
  end_holding(record, tag, unit, nonempty);
}

FREESTONE_SLOW void visit_slabs(SlabUser& user, bool all, UnitIndex first, UnitIndex end,
                                void (*visit)(void* context, UnitIndex first, SizeClass size_class), void* context) {
  const auto visit_one = [&](UnitIndex unit, SizeClass size_class) {
    Record& record = record_of(unit);
    if (all) {
      visit(context, unit, size_class);
    } else if (tree_of(record, size_class).claim(unit, user.token)) {
      begin_holding(record);
      visit(context, unit, size_class);
      u64 words = 0;
      for (unsigned w = 0; w < slab_words(class_info(size_class)); ++w) {
        if (record.words[w].load_seq() != 0) words |= bit(w);
      }
      end_holding(record, size_class, unit, words);
    }
  };
  for_each_slab(visit_one, first, end);
  user.token.store_relaxed(kNoUnit);
}

void count_slabs(SlabCounts (&counts)[kClassEnd]) {
  for (SlabCounts& c : counts) c = {};
  for_each_slab([&](UnitIndex unit, SizeClass size_class) {
    SlabCounts& c = counts[size_class];
    const ClassInfo& info = class_info(size_class);
    ++c.slabs;
    c.blocks += info.blocks;
    for (unsigned w = 0; w < slab_words(info); ++w)
      c.free_blocks += count_bits(record_of(unit).words[w].load_relaxed());
  });
}

FREESTONE_SLOW bool slabs_are_valid() {
  bool valid = true;
  for_each_slab([&](UnitIndex unit, SizeClass size_class) {
    const ClassInfo& info = class_info(size_class);
    Record& record = record_of(unit);
    const u64 summary = record.summary.load_seq();
    if ((summary & kBusy) != 0) valid = false;
    bool any = false;
    for (unsigned w = 0; w < slab_words(info); ++w) {
      const u64 word = record.words[w].load_seq();
      if ((word & ~full_word(info, w)) != 0) valid = false;
      if (word != 0 && (summary & bit(w)) == 0) valid = false;
      any = any || word != 0;
    }
    u64 words[kSlabWordsMax];
    load_words(info, record, words);
    if ((record.empty_pages.load_relaxed() & ~free_pages(info, words, os::page_bytes())) != 0) valid = false;
    if (any && !tree_of(record, size_class).finds(unit)) valid = false;
  });
  return valid;
}

}  // namespace freestone
