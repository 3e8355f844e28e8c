// Room 7, slab: see slab.h for the protocol and its invariants.

#include "slab/slab.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "platform/message.h"
#include "platform/os.h"
#include "policy/policy.h"
#include "slab/ground.h"
#include "slab/holding.h"
#include "span/dedicated.h"
#include "span/frames.h"
#include "span/free_memory.h"
#include "span/purge.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

Atomic<u32> slab_units_in_use[kLastSmallClass + 1];
Atomic<usize> empty_bytes[kLastSmallClass + 1];
FREESTONE_EDGE constinit ShardRow shard_rows[kShardsMax];

namespace {

// What size_class.h says of its table. It is proved here rather than in each file that includes it.
constexpr bool classes_are_sound() {
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    const ClassInfo& info = class_info(c);
    const SizeClass plain = c > kLastSmallClass ? c : plain_class(c);
    const bool first = plain == kFirstClass, has_blocks = plain >= kFirstClass;
    if (has_blocks && (class_of(info.bytes) != plain || (!first && class_of(class_bytes(c - 1) + 1) != plain)))
      return false;
    if (info.bytes % kGranule != 0 || slab_words(info) > kSlabWordsMax) return false;
    if (is_slab_class(c) && !is_power_of_two(info.units)) return false;
    for (u32 n = 0; n < info.blocks; ++n) {
      const usize start = usize{n} * info.bytes;
      if (block_number(info, start) != n || block_number(info, start + info.bytes - 1) != n) return false;
      // Below the point, only a block's start leaves less than one inverse; return_blocks relies on it.
      if (((start * info.inverse) & low_mask(kInverseShift)) >= info.inverse) return false;
      if ((((start + 1) * info.inverse) & low_mask(kInverseShift)) < info.inverse) return false;
      if ((((start + info.bytes - 1) * info.inverse) & low_mask(kInverseShift)) < info.inverse) return false;
    }
  }
  return true;
}
static_assert(classes_are_sound());

Atomic<u32> shards_in_use{1};
Atomic<u32> shards_used{1};  // a power of two above every shard that a thread ever had: others have no slabs

// A guarded slab is followed by as much address space that faults: it costs no memory.
usize slab_guard(const ClassInfo& info) { return guards_spans() ? info.units : 0; }

// A class whose blocks fill many slabs will soon touch its next one too: populate its pages in one call, without a
// fault for each. This wastes at most one slab of a class, provided that a used block touches every page it lies in.
// Blocks above 4 KiB may not: a program that writes to a small part of each would pay for all of them. False: it has
// none now.
bool populate_if_growing(SizeClass size_class, UnitIndex first) {
  constexpr usize kBytesMax = 4 * kKiB;
  const ClassInfo& info = class_info(size_class);
  if (info.bytes > kBytesMax || blocks_outside(size_class) < kManySlabs * info.blocks) return false;
  return fill_around(first, info.units);
}

// The last word of each block says whether it is live: 0 is free.
[[maybe_unused]] void clear_trailers(UnitIndex first, const ClassInfo& info) {
  char* const start = unit_address(first);
  for (u32 n = 1; n <= info.blocks; ++n) std::memset(start + usize{n} * info.bytes - kHeldBackBytes, 0, kHeldBackBytes);
}

// No page of a new slab has memory (SLAB-5), unless a huge page brings it. Those behind the last block do not count.
void note_empty(Record& record, SizeClass size_class, UnitIndex first) {
  const ClassInfo& info = class_info(size_class);
  const usize page = os::page_bytes();
  if (units_to_bytes(info.units) % page != 0 || !has_plain_pages(first)) return;
  const auto pages = static_cast<unsigned>((usize{info.blocks} * info.bytes + page - 1) / page);
  record.is_fresh = 1;
  record.empty_pages.store_relaxed(low_mask(pages));
  empty_bytes[size_class].add_relaxed(pages * page);
}

// All blocks are free, and the caller has the token.
void begin_slab(SizeClass size_class, SlabUser& user, const Span& span) {
  const ClassInfo& info = class_info(size_class);
  const bool populated = span.is_empty && populate_if_growing(size_class, span.first);
  if (kMitigations.trailer && !kMitigations.zero_on_free && !span.zeroed) clear_trailers(span.first, info);
  slab_units_in_use[size_class].add_relaxed(info.units);
  Record& record = record_of(span.first);
  // Relaxed stores: the slab is ours alone until end_holding publishes it.
  for (unsigned w = 0; w < slab_words(info); ++w) record.words[w].store_relaxed(full_word(info, w));
  record.zero_blocks.store_relaxed(span.zeroed && info.blocks <= 64 ? full_word(info, 0) : 0);
  record.shard.store_relaxed(static_cast<u8>(user.shard));
  record.size_class = static_cast<u8>(size_class);
  record.is_fresh = 0;
  if (span.is_empty && !populated) note_empty(record, size_class, span.first);
  const u64 generation = generation_of(record.summary.load_relaxed());
  record.summary.store_seq((generation << kGenerationShift) | low_mask(slab_words(info)));
  FREESTONE_CHECK("REGION-1", all_tagged(span.first, info.units, kTagNone));
  set_tags(span.first, info.units, static_cast<u8>(size_class));
  user.token.store_relaxed(span.first);
}

UnitIndex carve_slab(SizeClass size_class, SlabUser& user) {
  const ClassInfo& info = class_info(size_class);
  Span span;
  if constexpr (kKeepsClassRuns) span.first = take_stored_run(user.shard, info.units, info.units);
  if (span.first != kNoUnit) {
    set_tags(span.first, info.units, kTagNone);  // a run's waited there
  } else {
    span = dedicates_slabs() ? take_slab_units(size_class)
                             : take_guarded_span(info.units, info.units + slab_guard(info), slab_guard(info));
  }
  if (span.first != kNoUnit) begin_slab(size_class, user, span);
  return span.first;
}

FREESTONE_APART UnitIndex claim_of_other_shard(SizeClass size_class, SlabUser& user) {
  const unsigned shards = shards_used.load_relaxed();
  for (unsigned k = 1; k < shards; ++k) {
    const UnitIndex unit = RoomTree((user.shard + k) % shards, size_class).claim_lowest(user.token);
    if (unit != kNoUnit) {
      // Ours from here on: the thread that frees into it offers it to this shard.
      record_of(unit).shard.store_relaxed(static_cast<u8>(user.shard));
      return unit;
    }
  }
  return kNoUnit;
}

// The token of a slab with room; kNoUnit when there is none.
FREESTONE_INLINE UnitIndex claim_with_room(SizeClass size_class, SlabUser& user) {
  const UnitIndex unit = RoomTree(user.shard, size_class).claim_lowest(user.token);
  FREESTONE_CHECK("SLAB-4",
                  unit == kNoUnit || all_tagged(unit, class_info(size_class).units, static_cast<u8>(size_class)));
  return unit != kNoUnit || shards_used.load_relaxed() == 1 ? unit : claim_of_other_shard(size_class, user);
}

// The token of the slab to take blocks from. kNoUnit when memory is out.
UnitIndex claim_slab(SizeClass size_class, SlabUser& user) {
  const UnitIndex unit = claim_with_room(size_class, user);
  return unit != kNoUnit ? unit : carve_slab(size_class, user);
}

// Of more than a unit only the first: many would fill all ground, and searches of their bitmaps are long.
bool suits_ground(SizeClass size_class) {
  const ClassInfo& info = class_info(size_class);
  return info.bytes <= kUnitBytes || blocks_outside(size_class) < info.blocks;
}

// How many blocks are in random order. A processor fetches ahead of a program that walks its blocks in the order in
// which it took them, while these neighbours lie within half a KiB and one group of them is above the other.
[[maybe_unused]] unsigned neighbours_of(const ClassInfo& info) {
  return info.bytes <= 32 || info.blocks <= kNeighboursMost ? kNeighboursMost : kNeighboursMost / 2;
}

// Takes blocks of a word: of the lowest free ones, as many as are neighbours, in random order, then of the next ones.
// Those that it takes leave `left` for the places below `top`. A slab begins at random neighbours; a turn in each
// word would cost the program that walks its blocks. One number serves eight draws; the small bias helps no attacker.
[[maybe_unused]] void** take_at_random(const ClassInfo& info, SlabUser& user, bool begins, char* first, u64& left,
                                       void** bottom, void** top) {
  const unsigned neighbours = neighbours_of(info);
  unsigned turn =
      begins ? static_cast<unsigned>(round_down(next_random(user) % min_of(info.blocks, 64U), neighbours)) : 0;
  while (left != 0 && top != bottom) {
    if (left >> turn == 0) turn = 0;
    u8 near[kNeighboursMost];
    unsigned count = 0;
    for (u64 rest = left >> turn << turn; rest != 0 && count < neighbours; rest &= rest - 1)
      near[count++] = static_cast<u8>(lowest_bit(rest));
    u64 random = next_random(user);
    for (; count != 0 && top != bottom; random = count % 8 == 0 ? next_random(user) : random >> 8) {
      u8& drawn = near[((random & 0xff) * count) >> 8];
      left &= ~bit(drawn);
      *--top = first + usize{drawn} * info.bytes;
      drawn = near[--count];
    }
  }
  return top;
}

// Notes that `blocks` of a word are handed out, so that their pages will have memory (SLAB-5).
FREESTONE_APART void touch_pages(Record& record, SizeClass size_class, unsigned word, u64 blocks) {
  const ClassInfo& info = class_info(size_class);
  const usize page = os::page_bytes();
  const unsigned shift = lowest_bit(page);
  const u64 empty = record.empty_pages.load_relaxed();
  u64 touched = 0;
  while (blocks != 0 && (empty & ~touched) != 0) {  // neighbours, one by one
    const unsigned from = lowest_bit(blocks), count = trailing_ones(blocks >> from);
    const usize start = usize{word * 64 + from} * info.bytes;
    const usize last = (start + usize{count} * info.bytes - 1) >> shift;
    touched |= low_mask(static_cast<unsigned>(last + 1)) & ~low_mask(static_cast<unsigned>(start >> shift));
    blocks &= ~(low_mask(count) << from);
  }
  touched &= empty;
  if (touched == 0) return;
  record.empty_pages.store_relaxed(empty & ~touched);
  empty_bytes[size_class].sub_relaxed(count_bits(touched) * page);
  if (record.is_fresh != 0) return;
  note_came(Came::again, count_bits(touched) * page);
}

// Gives back the units of a released slab. A unit with only empty pages goes back as clean.
void return_slab_units(SizeClass size_class, SlabUser& user, UnitIndex unit, u64 empty_pages, bool dirty) {
  const ClassInfo& info = class_info(size_class);
  if (kKeepsClassRuns && empty_pages == 0 && dirty && store_run(user.shard, unit, info.units)) return;
  if (empty_pages == 0) return return_guarded_span(unit, info.units, slab_guard(info), dirty);
  const usize page = os::page_bytes();
  empty_bytes[size_class].sub_relaxed(count_bits(empty_pages) * page);
  const auto pages_per_unit = static_cast<unsigned>(max_of<usize>(kUnitBytes / page, 1));
  const auto is_empty = [&](u32 k) {
    return page <= kUnitBytes &&
           (empty_pages >> (k * pages_per_unit) & low_mask(pages_per_unit)) == low_mask(pages_per_unit);
  };
  for (u32 from = 0; from < info.units;) {
    u32 to = from + 1;
    while (to < info.units && is_empty(to) == is_empty(from)) ++to;
    const bool last = to == info.units;
    return_guarded_span(unit + from, to - from, last ? slab_guard(info) : 0, dirty && !is_empty(from));
    from = to;
  }
}

// Takes blocks from a slab whose token the caller holds, and gives the token up. Fills the places below `top`, down to
// `bottom` at most. The lowest address lies in the highest place, which `malloc` pops first. Returns the lowest place.
void** take_from_slab(SizeClass size_class, SlabUser& user, UnitIndex unit, void** bottom, void** top) {
  const ClassInfo& info = class_info(size_class);
  Record& record = record_of(unit);
  u64 words = begin_holding(record);
  [[maybe_unused]] void** const old_top = top;
  while (words != 0 && top != bottom) {
    const unsigned w = lowest_bit(words);
    char* const first = unit_address(unit) + usize{w} * 64 * info.bytes;
    const u64 all = record.words[w].exchange_seq(0);
    u64 left = all;
    if constexpr (kMitigations.random_order)
      top = take_at_random(info, user, w == 0 && all == full_word(info, 0), first, left, bottom, top);
    while (left != 0 && top != bottom) {  // neighbours, one by one
      const unsigned start = lowest_bit(left);
      const unsigned run = min_of(trailing_ones(left >> start), static_cast<unsigned>(top - bottom));
      char* block = first + usize{start} * info.bytes;
      top -= run;
      for (usize k = run; k-- != 0; block += info.bytes) top[k] = block;
      left &= ~(low_mask(run) << start);
    }
    if (left != 0) {
      record.words[w].or_seq(left);
    } else {
      words &= words - 1;
    }
    if (info.blocks <= 64 && record.zero_blocks.load_relaxed() != 0) record.zero_blocks.and_seq(~(all ^ left));
    if (FREESTONE_UNLIKELY(record.empty_pages.load_relaxed() != 0)) touch_pages(record, size_class, w, all ^ left);
  }
  if constexpr (kMitigations.trailer) {  // STATE-1: before the token goes
    for (void** taken = top; taken != old_top; ++taken) set_taken(*taken, info.bytes);
  }
  end_holding(record, size_class, unit, words);
  return top;
}

}  // namespace

void Retiring::add(SizeClass size_class, UnitIndex unit) {
  const usize place = place_units(size_class);
  const bool fits = slabs_ != 0 && size_class == size_class_ && has_place(size_class, unit) &&
                    has_place(size_class, first_) && units_to_bytes(slabs_ * place) < kPurgeBytesPerCall;
  if (fits && unit == first_ + slabs_ * place) {
    ++slabs_;
  } else if (fits && unit + place == first_) {
    first_ = unit;
    ++slabs_;
  } else {
    finish();
    size_class_ = size_class;
    first_ = unit;
    slabs_ = 1;
  }
}

void Retiring::finish() {
  if (!kMitigations.quarantine || slabs_ == 0) return;
  const usize slabs = std::exchange(slabs_, 0);
  const usize at_once = slabs == 1 || have_places(size_class_, first_, slabs) ? slabs : 1;
  const auto slab_at = [&](usize k) { return first_ + static_cast<UnitIndex>(k) * place_units(size_class_); };
  for (usize k = 0; k < slabs; ++k) {
    if (k % at_once == 0 && retire_slab_units(size_class_, slab_at(k), at_once, why_)) {
      k += at_once - 1;
      continue;
    }
    const Span span{.first = slab_at(k), .zeroed = kMitigations.zero_on_free};
    begin_slab(size_class_, user_, span);
    end_holding(record_of(span.first), size_class_, span.first, 0);
  }
  user_.token.store_relaxed(kNoUnit);
}

usize try_release(SizeClass size_class, UnitIndex unit, SlabUser& user, Retiring& retiring) {
  const ClassInfo& info = class_info(size_class);
  Record& record = record_of(unit);
  while (looks_wholly_free(info, record) && tree_of(record, size_class).claim(unit, user.token)) {
    begin_holding(record);
    u64 left[kSlabWordsMax];
    bool all_free = true;
    for (unsigned w = 0; w < slab_words(info); ++w) {
      left[w] = record.words[w].exchange_seq(0);
      all_free = all_free && left[w] == full_word(info, w);
    }
    if (all_free) {
      expect_blocks_clear(unit, info, left, SlabPages::untouched(record), true);
      FREESTONE_CHECK("SLAB-2", (record.summary.load_relaxed() & kBusy) != 0);
      FREESTONE_CHECK("REGION-1", all_tagged(unit, info.units, static_cast<u8>(size_class)));
      set_tags(unit, info.units, kTagNone);
      record.summary.store_seq((generation_of(record.summary.load_relaxed()) + 1) << kGenerationShift);  // SLAB-2
      slab_units_in_use[size_class].sub_relaxed(info.units);
      const u64 empty_pages = record.empty_pages.load_relaxed();
      record.empty_pages.store_relaxed(0);
      if (dedicates_slabs()) {
        empty_bytes[size_class].sub_relaxed(count_bits(empty_pages) * os::page_bytes());
        retiring.add(size_class, unit);
        return units_to_bytes(info.units);
      }
      const bool dirty = info.blocks > 64 || record.zero_blocks.load_relaxed() != full_word(info, 0);
      return_slab_units(size_class, user, unit, empty_pages, dirty);
      return 0;
    }
    u64 words = 0;
    for (unsigned w = 0; w < slab_words(info); ++w) {
      if (left[w] == 0) continue;
      record.words[w].or_seq(left[w]);
      words |= bit(w);
    }
    end_holding(record, size_class, unit, words);
  }
  return 0;
}

void set_shard_count(unsigned count) { shards_in_use.store_relaxed(count); }
void begin_shard(unsigned shard) {
  const u32 used = u32{1} << highest_bit(2 * shard + 1);
  if (used > shards_used.load_relaxed()) shards_used.store_relaxed(used);
}
unsigned shards_to_search() { return shards_used.load_relaxed(); }
unsigned shard_count() { return shards_in_use.load_relaxed(); }

unsigned take_blocks(SizeClass size_class, SlabUser& user, unsigned want, unsigned room, void** out, BlockPlace place) {
  const ClassInfo& info = class_info(size_class);
  void **end = out + room, **top = end;
  while (end - top < static_cast<std::ptrdiff_t>(want)) {
    UnitIndex unit = claim_with_room(size_class, user);
    if (unit == kNoUnit && kSharesGround && place == BlockPlace::anywhere && suits_ground(size_class)) {
      void** const before = top;
      top = take_from_ground(size_class, user, end - want, top);
      if (top != before) continue;
    }
    const u32 has = unit == kNoUnit ? info.blocks : 0;  // that we know of
    if (unit == kNoUnit) unit = carve_slab(size_class, user);
    if (unit == kNoUnit) break;
    if (top == end && has >= want) top = end = out + min_of(room, has);  // so no block moves down
    top = take_from_slab(size_class, user, unit, out, top);
  }
  user.token.store_relaxed(kNoUnit);
  const auto count = static_cast<unsigned>(end - top);
  shard_rows[user.shard].blocks_out[size_class].add_relaxed(count);
  if (top != out) std::memmove(out, top, count * sizeof(void*));
  return count;
}

void* take_zeroed_block(SizeClass size_class, SlabUser& user) {
  const UnitIndex unit = claim_slab(size_class, user);
  if (unit == kNoUnit) return nullptr;
  Record& record = record_of(unit);
  void* block = nullptr;
  u64 words = begin_holding(record);
  if (const u64 zero = record.zero_blocks.load_relaxed(); zero != 0) {
    u64 free_blocks = record.words[0].exchange_seq(0);
    if (const u64 candidates = free_blocks & zero; candidates != 0) {
      const unsigned number = lowest_bit(candidates);
      record.zero_blocks.and_seq(~bit(number));
      if (record.empty_pages.load_relaxed() != 0) touch_pages(record, size_class, 0, bit(number));
      free_blocks &= ~bit(number);
      block = unit_address(unit) + usize{number} * class_info(size_class).bytes;
      if constexpr (kMitigations.trailer) set_taken(block, class_info(size_class).bytes);
    }
    if (free_blocks != 0) record.words[0].or_seq(free_blocks);
    words = free_blocks != 0 ? 1 : 0;
  }
  end_holding(record, size_class, unit, words);
  user.token.store_relaxed(kNoUnit);
  if (block != nullptr) shard_rows[user.shard].blocks_out[size_class].add_relaxed(1);
  return block;
}

usize blocks_outside(SizeClass size_class) {
  u64 sum = 0;  // modulo 2^64: a block may return through another shard
  for (unsigned shard = 0; shard < shards_used.load_relaxed(); ++shard)
    sum += shard_rows[shard].blocks_out[size_class].load_relaxed();
  return sum;
}

}  // namespace freestone
