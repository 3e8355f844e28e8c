// Room 7, slab: blocks come back (SLAB-3, the giver's side).

#include "base/bits.h"
#include "policy/policy.h"
#include "region/account.h"
#include "slab/ground.h"
#include "slab/holding.h"
#include "span/dedicated.h"

namespace freestone {

namespace {

// Sets `blocks` free in one word of a slab.
void return_to_word(SizeClass size_class, SlabUser& user, UnitIndex unit, unsigned w, u64 blocks) {
  Record& record = record_of(unit);
  // While these blocks are not free the slab cannot be released, so this is the generation they belong to.
  const u64 generation = generation_of(record.summary.load_relaxed());
  if (const u64 twice = record.words[w].load_relaxed() & blocks; FREESTONE_UNLIKELY(twice != 0)) {
    const ClassInfo& info = class_info(size_class);
    fail_block("double free", unit_address(unit) + usize{w * 64 + lowest_bit(twice)} * info.bytes, info.bytes);
  }
  user.token.store_relaxed(unit);  // before the bits: a child that finds them finds what to repair, too
  record.words[w].or_seq(blocks);
  u64 summary = record.summary.load_seq();
  while ((summary & bit(w)) == 0) {
    if (generation_of(summary) != generation) return;  // released by a thread that saw our bits
    const u64 before = summary;
    if (record.summary.replace_seq(summary, summary | bit(w))) {
      if ((before & (kWordsMask | kBusy)) == 0) tree_of(record, size_class).offer(unit);
      break;
    }
  }
  if (kSharesGround && FREESTONE_UNLIKELY(tag_of(unit) == kTagGround)) return collect_from_words(unit);  // GROUND-2
  const ClassInfo& info = class_info(size_class);
  // What only its class can use may stay there, until a look at free pages meets it (slab_purge.cc).
  if (dedicates_slabs() && !is_limited()) return;
  if (record.words[w].load_seq() == full_word(info, w) && looks_wholly_free(info, record)) {
    Retiring retiring(user, WentBack::shortage);
    try_release(size_class, unit, user, retiring);
  }
}

// The number of the block that starts at this offset of its slab. Aborts when none does.
class BlockNumbers {
 public:
  explicit BlockNumbers(SizeClass size_class)
      : size_class_(size_class),
        inverse_(class_info(size_class).inverse),
        last_offset_(usize{class_info(size_class).blocks - 1} * class_info(size_class).bytes) {}
  bool may_start_at(usize offset) const { return offset <= last_offset_; }
  FREESTONE_INLINE unsigned at(usize offset, const void* block) const {
    // Above the point stands the block's number. Below it, only a block's start leaves less than one inverse.
    const u64 scaled = offset * inverse_;
    if (FREESTONE_UNLIKELY((scaled & low_mask(kInverseShift)) >= inverse_ || !may_start_at(offset))) {
      fail_block("invalid free", block, facts_inside(size_class_, block));
    }
    return static_cast<unsigned>(scaled >> kInverseShift);
  }

 private:
  SizeClass size_class_;
  u64 inverse_;
  usize last_offset_;
};

// Blocks that lie side by side are often freed one after the other, upward or downward.
struct Neighbours {
  unsigned first;  // the position of the lowest in its word
  unsigned count;
};
// How many blocks from `next` on, whose number this is, are neighbours in one word.
Neighbours neighbours(const ClassInfo& info, void* const* next, void* const* end, unsigned number) {
  const usize bytes = info.bytes;
  const unsigned position = number % 64;
  const auto most = static_cast<usize>(end - next);
  if (most == 1) return {position, 1};
  const usize step = address_of(next[1]) - address_of(next[0]);
  const bool down = step == 0 - bytes;
  if (!down && step != bytes) return {position, 1};
  usize expected = address_of(next[0]);
  const auto limit = next + min_of<usize>(most, down ? position + 1 : min_of(64 - position, info.blocks - number));
  void* const* at = next;
  do {
    ++at;
    expected += step;
  } while (at != limit && address_of(*at) == expected);
  const auto count = static_cast<unsigned>(at - next);
  return {down ? position + 1 - count : position, count};
}

// Follows the blocks as they come, from one word to the next.
void return_in_turn(SizeClass size_class, SlabUser& user, void* const* blocks, unsigned count) {
  const ClassInfo& info = class_info(size_class);
  const BlockNumbers numbers(size_class);
  const usize bytes = info.bytes;
  for (void* const *next = blocks, *const *const end = blocks + count; next != end;) {
    if (is_on_ground(*next)) {
      next += return_to_ground(size_class, next, static_cast<unsigned>(end - next));
      continue;
    }
    const UnitIndex unit = slab_start(info, unit_of(*next));
    const usize slab = address_of(unit_address(unit));
    usize offset = address_of(*next) - slab;
    unsigned number = numbers.at(offset, *next);
    bool same_slab = true;
    while (same_slab) {
      const unsigned word = number / 64;
      u64 gathered = 0;
      do {
        const Neighbours side = neighbours(info, next, end, number);
        const u64 mask = low_mask(side.count) << side.first;
        if (const u64 twice = gathered & mask; FREESTONE_UNLIKELY(twice != 0)) {
          fail_block("double free", unit_address(unit) + (word * 64 + lowest_bit(twice)) * bytes, bytes);
        }
        gathered |= mask;
        next += side.count;
        if (next == end) break;
        offset = address_of(*next) - slab;
        same_slab = numbers.may_start_at(offset);
        if (same_slab) number = numbers.at(offset, *next);
      } while (same_slab && number / 64 == word);
      return_to_word(size_class, user, unit, word, gathered);
      same_slab = same_slab && next != end;
    }
  }
}

// Blocks of one word that wait until the others are found.
struct Gathered {
  usize word;  // the slab's offset from the region's base, which leaves its lowest bits to the number of the word
  u64 blocks;
};
static_assert(kSlabWordsMax <= kUnitBytes);

// For blocks in random order: first sorts them into words, so that each word is entered about once. A word's place
// follows from its number; another word that needs the place sends it off.
void return_sorted(SizeClass size_class, SlabUser& user, void* const* blocks, unsigned count) {
  constexpr unsigned kPlacesLog = 5;
  constexpr u64 kMultiplier = 0x9e37'79b9'7f4a'7c15;
  const usize slab_mask = units_to_bytes(class_info(size_class).units) - 1;
  const usize bytes = class_info(size_class).bytes;
  const BlockNumbers numbers(size_class);
  const unsigned log = max_of(1U, min_of(kPlacesLog, highest_bit(count)));
  Gathered places[1U << kPlacesLog];
  for (unsigned k = 0; k < 1U << log; ++k) places[k] = {};
  const auto send_off = [&](Gathered& place) {
    const usize slab = round_down(place.word, kUnitBytes);
    return_to_word(size_class, user, static_cast<UnitIndex>(slab >> kUnitShift),
                   static_cast<unsigned>(place.word - slab), place.blocks);
  };
  for (unsigned k = 0; k < count; ++k) {
    const usize from_base = address_of(blocks[k]) - region.base;
    const usize offset = from_base & slab_mask;
    const unsigned number = numbers.at(offset, blocks[k]);
    expect_free_block(blocks[k], bytes);
    const usize word = from_base - offset + number / 64;
    Gathered& place = places[word * kMultiplier >> (64 - log)];
    if (place.word != word) {
      if (place.blocks != 0) send_off(place);
      place = {word, 0};
    }
    const u64 block = bit(number % 64);
    if (FREESTONE_UNLIKELY((place.blocks & block) != 0)) fail_block("double free", blocks[k], bytes);
    place.blocks |= block;
  }
  for (unsigned k = 0; k < 1U << log; ++k) {
    if (places[k].blocks != 0) send_off(places[k]);
  }
}

}  // namespace

void return_blocks(SizeClass size_class, SlabUser& user, void* const* blocks, unsigned count) {
  (kSortsReturns ? return_sorted : return_in_turn)(size_class, user, blocks, count);
  user.token.store_relaxed(kNoUnit);
  shard_rows[user.shard].blocks_out[size_class].sub_relaxed(count);
}

}  // namespace freestone
