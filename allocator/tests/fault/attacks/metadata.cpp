// Metadata attacks in the style of how2heap: words of freed blocks, headers beside blocks and headers at aligned
// addresses are overwritten with what misleads list-based heaps (glibc's lists, links XORed with the page number, sizes
// with flag bits). What is attacked is general: does a later malloc return an address of the attacker's choice or a
// block that overlaps a live one, or does the allocator write where the attacker points? Twins write to live memory.
#include <malloc.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "harness.h"

namespace attack {
namespace {

enum Link { kRaw, kProtected, kSwapped };  // how a link is encoded: as it is, XORed with its page number, byte-swapped
enum Aim { kTarget, kLiveBlock, kUnlinkPair };   // what it points to

std::uint64_t encode(const Byte* place, std::uint64_t link, int how) {
  switch (how) {
    case kProtected: return link ^ (address_of(place) >> 12);
    case kSwapped: return __builtin_bswap64(link);
    default: return link;
  }
}

std::uint64_t header_of(std::size_t bytes) {
  const std::uint64_t size = (bytes + 8 + 15) & ~std::uint64_t{15};
  return (size < 32 ? 32 : size) | 1;
}

// The target looks like a free block: a plausible header before it and after it.
void dress_target(World& w) {
  Byte* const target = w.target();
  for (std::size_t i = 0; i < 4096; i += 16) {
    poke(target + i, 0);
    poke(target + i + 8, 0x21);
  }
  poke(target - 8, header_of(w.size()));
  poke(target, address_of(target));
  poke(target + 8, address_of(target));
  w.seal_target();
}

// Overwrites the word `index` of a freed block; a negative index counts from its end. `distance`: index, `how`: Link,
// `count`: Aim.
void overwrite_link(World& w, const Params& params) {
  Byte* const live = w.populate();
  dress_target(w);
  Byte* const a = w.take();
  Byte* const b = w.take();
  Byte* const place = params.distance >= 0 ? b + 8 * params.distance : b + w.size() + 8 * params.distance;
  const std::uint64_t aim =
      params.count == kLiveBlock ? address_of(live) : address_of(w.target()) - (params.count == kUnlinkPair ? 16 : 0);
  if (w.misuse()) {
    w.give(a);
    w.give(b);
    w.fault();
    poke(place, encode(place, aim, params.how));
    w.past();
  } else {
    w.disregard(b);
    w.fault();
    poke(place, encode(place, aim, params.how));
    w.past();
    w.give(a);
    w.give(b);
  }
  w.aftermath();
}

// Both words, as in a doubly linked list whose entry is taken out.
void overwrite_pair(World& w, const Params& params) {
  w.populate();
  dress_target(w);
  Byte* const a = w.take();
  Byte* const wall = w.take();
  auto write = [&] {
    poke(a, address_of(w.target()) - (params.how == 0 ? 24 : 0));
    poke(a + 8, address_of(w.target()) - (params.how == 0 ? 16 : 0));
  };
  if (w.misuse()) {
    w.give(a);
    if (params.distance != 0) w.flush_class();
    w.fault();
    write();
    w.past();
  } else {
    w.disregard(a);
    w.fault();
    write();
    w.past();
    w.give(a);
  }
  w.take(2 * w.size() + 64);  // sorts a list of freed blocks, where there is one
  w.give(wall);
  w.aftermath();
}

// The lowest bytes only: the link then points elsewhere in the same page or region, without knowing an address.
void overwrite_partly(World& w, const Params& params) {
  w.populate();
  Byte* const a = w.take();
  Byte* const b = w.take();
  auto write = [&] { flip(b, static_cast<std::size_t>(params.distance), w.random()); };
  if (w.misuse()) {
    w.give(a);
    w.give(b);
    w.fault();
    write();
    w.past();
  } else {
    w.disregard(b);
    w.fault();
    write();
    w.past();
    w.give(a);
    w.give(b);
  }
  w.aftermath();
}

// Freed twice by way of the list, then the copy that is handed out is used to plant a link.
void duplicate_then_link(World& w, const Params& params) {
  w.populate();
  dress_target(w);
  Byte* fillers[7];
  const std::size_t count = params.distance != 0 && w.size_class() != kLarge ? 7 : 0;
  for (std::size_t i = 0; i < count; i++) fillers[i] = w.take();
  Byte* const a = w.take();
  Byte* const b = w.take();
  for (std::size_t i = 0; i < count; i++) w.give(fillers[i]);
  w.give(a);
  w.give(b);
  w.fault();
  if (w.misuse()) ::free(opaque(a));
  w.past();
  for (std::size_t i = 0; i < count; i++) w.take();
  Byte* const copy = w.take();
  if (w.misuse() && copy == a) {
    poke(copy, encode(copy, address_of(w.target()), params.how));
    w.disregard(copy);
  }
  w.aftermath();
}

// A false block in the attacker's memory is freed; `distance` shifts the flags of its header.
void spirit(World& w, const Params& params) {
  w.populate();
  dress_target(w);
  poke(w.target() - 8, header_of(w.size()) | static_cast<std::uint64_t>(params.distance));
  w.seal_target();
  w.fault();
  if (w.misuse()) ::free(opaque(w.target()));
  w.past();
  w.aftermath();
}

// The words between a block and its upper neighbour are overwritten with a false size for that neighbour, which is then
// freed: a heap with headers takes it for larger or smaller than it is.
void neighbour_size(World& w, const Params& params) {
  Byte* const block = w.populate();
  w.disregard(block);
  Byte* next = w.neighbour_above(block);
  if (next == nullptr || next - block > static_cast<long>(w.size() + 64)) next = nullptr;
  Byte* const border = next != nullptr ? next - 8 : block + ((w.size() + 7) & ~std::size_t{7});
  w.fault();
  if (w.misuse()) {
    for (Byte* gap = block + w.size(); gap < border; gap++) *opaque(gap) = 0x41;  // the overflow passes over these
    switch (params.how) {
      case 0: poke(border, header_of(2 * w.size() + 16)); break;
      case 1: poke(border, header_of(w.size() / 2)); break;
      case 2: poke(border, header_of(w.size()) & ~std::uint64_t{1}); break;
      default: poke(border, ~std::uint64_t{0}); break;
    }
  }
  w.give(next);
  w.past();
  for (int i = 0; i < 4; i++) w.take(2 * w.size() + 16);
  for (int i = 0; i < 4; i++) w.take(w.size() / 2);
  w.give(block);
  w.aftermath();
}

// The words before a block are overwritten with a false size, then the block is freed.
void own_header(World& w, const Params& params) {
  Byte* const block = w.populate();
  w.fault();
  if (w.misuse()) {
    const std::uint64_t flags = w.size_class() == kLarge ? 2 : 1;
    const std::uint64_t size = params.how == 0 ? 2 * w.size() : params.how == 1 ? w.size() / 2 : 0;
    poke(at<Byte>(address_of(block) - 16), 0);
    poke(at<Byte>(address_of(block) - 8),
         params.how == 2 ? ~std::uint64_t{0} : ((size + 0xfff) & ~std::uint64_t{0xf}) | flags);
  }
  w.give(block);
  w.past();
  for (int i = 0; i < 4; i++) w.take(2 * w.size());
  w.aftermath();
}

// The words after the highest block, where a heap may keep the size of what is left; then a request that would wrap.
void top_size(World& w, const Params&) {
  w.populate();
  Byte* const last = w.highest();
  w.disregard(last);
  Byte* const border = last + ((w.size() + 7) & ~std::size_t{7});
  w.fault();
  if (w.misuse()) {
    poke(border, ~std::uint64_t{0});
    poke(border + 8, ~std::uint64_t{0});
  }
  w.give(last);
  w.past();
  if (w.misuse()) {
    void* const skipped = ::malloc(address_of(w.target()) - address_of(border) - 64);
    if (skipped != nullptr) w.effect("a request larger than the address space was answered");
  }
  w.aftermath();
}

// A false free block inside a live one, linked to a pointer to itself; the neighbour is freed and merges with it.
void unlink_inside(World& w, const Params&) {
  Byte* const block = w.populate();
  w.disregard(block);
  Byte* const next = w.neighbour_above(block);
  poke(w.target(), address_of(block));
  w.seal_target();
  w.fault();
  if (w.misuse() && next != nullptr && next - block <= static_cast<long>(w.size() + 32) && w.size() >= 64) {
    const std::uint64_t inner = static_cast<std::uint64_t>(next - 16 - block);
    poke(block + 8, inner | 1);
    poke(block + 16, address_of(w.target()) - 24);
    poke(block + 24, address_of(w.target()) - 16);
    poke(next - 16, inner);
    poke(next - 8, (peek(next - 8) & ~std::uint64_t{1}));
  } else if (w.misuse()) {
    poke(block + ((w.size() + 7) & ~std::size_t{7}), address_of(w.target()));
  }
  w.give(next);
  w.past();
  w.give(block);
  w.aftermath();
}

// Two freed blocks of unequal size; the larger one's further links are overwritten while it is in a sorted list.
void sorted_list(World& w, const Params& params) {
  dress_target(w);
  Byte* const larger = w.take(0x428);
  w.take(24);
  Byte* const smaller = w.take(0x418);
  w.take(24);
  w.disregard(larger);
  if (w.misuse()) w.give(larger);
  w.take(0x600);  // too large for it: the freed block moves to a sorted list, where there is one
  w.fault();
  poke(larger + 8 * params.distance, address_of(w.target()) - 0x20);
  w.past();
  if (!w.misuse()) w.give(larger);
  w.give(smaller);
  w.take(0x600);
  w.verify();
  w.aftermath();
}

// Headers that an allocator may keep at the start of an aligned run around the block. Where a live block or nothing at
// all lies there, no metadata does, and nothing is written.
void aligned_header(World& w, const Params& params) {
  Byte* const block = w.populate();
  const std::uintptr_t alignment = static_cast<std::uintptr_t>(params.distance);
  Byte* const start = at<Byte>(address_of(block) & ~(alignment - 1));
  const bool live = w.meets_live(start, 256);
  unsigned char resident = 0;
  const bool mapped = ::mincore(start, kPage, &resident) == 0;
  w.fault();
  if (w.misuse() && !live && mapped)
    for (std::size_t i = 0; i < 256; i += 8) poke(start + i, params.how == 0 ? 0 : address_of(w.target()));
  w.past();
  w.aftermath();
}

constexpr long kKiB = 1024;

const Case kCases[] = {
    {"freed_link_raw",
     kAll,
     "the first word of a freed block: the target's address",
     overwrite_link,
     {0, kRaw, kTarget}},
    {"freed_link_protected", kAll, "the same, XORed with the page number", overwrite_link, {0, kProtected, kTarget}},
    {"freed_link_swapped", kAll, "the same, byte-swapped", overwrite_link, {0, kSwapped, kTarget}},
    {"freed_link_live",
     kAll,
     "the first word of a freed block: a live block's address",
     overwrite_link,
     {0, kRaw, kLiveBlock}},
    {"freed_link_live_protected",
     kAll,
     "the same, XORed with the page number",
     overwrite_link,
     {0, kProtected, kLiveBlock}},
    {"freed_second_word",
     kAll,
     "the second word of a freed block: the target's address",
     overwrite_link,
     {1, kRaw, kTarget}},
    {"freed_second_word_back",
     kAll,
     "the second word: 16 bytes before the target",
     overwrite_link,
     {1, kRaw, kUnlinkPair}},
    {"freed_last_word",
     kAll,
     "the last word of a freed block: the target's address",
     overwrite_link,
     {-1, kRaw, kTarget}},
    {"freed_last_word_live",
     kAll,
     "the last word of a freed block: a live block's address",
     overwrite_link,
     {-1, kRaw, kLiveBlock}},
    {"freed_pair_unlink", kAll, "both words as an entry of a list that is taken out", overwrite_pair},
    {"freed_pair_target", kAll, "both words: the target", overwrite_pair, {0, 1}},
    {"freed_pair_flushed", kAll, "both words, after the block left the cache", overwrite_pair, {1, 0}},
    {"freed_link_low_byte", kAll, "the lowest byte of the first word", overwrite_partly, {1}},
    {"freed_link_low_bytes", kAll, "the two lowest bytes of the first word", overwrite_partly, {2}},
    {"duplicate_in_cache", kAll, "a, b, a; the copy plants a link", duplicate_then_link, {0, kProtected}},
    {"duplicate_behind_cache",
     kAll,
     "a, b, a behind 7 frees; the copy plants a link",
     duplicate_then_link,
     {1, kProtected}},
    {"duplicate_behind_cache_raw", kAll, "the same with a plain link", duplicate_then_link, {1, kRaw}},
    {"false_block_freed", kAll, "a false block in static memory is freed", spirit},
    {"false_block_mapped_flag", kAll, "the same, marked as a mapping of its own", spirit, {2}},
    {"false_block_arena_flag", kAll, "the same, marked as another arena's", spirit, {4}},
    {"neighbour_header_grown", kAll, "the next block's header says twice the size", neighbour_size},
    {"neighbour_header_shrunk", kAll, "the next block's header says half the size", neighbour_size, {0, 1}},
    {"neighbour_header_flag", kAll, "the next block's header says that this one is free", neighbour_size, {0, 2}},
    {"neighbour_header_ones", kAll, "the next block's header is all ones", neighbour_size, {0, 3}},
    {"own_header_grown", kAll, "the words before a block say twice the size", own_header},
    {"own_header_shrunk", kAll, "the words before a block say half the size", own_header, {0, 1}},
    {"own_header_ones", kAll, "the words before a block are all ones", own_header, {0, 2}},
    {"top_size_ones", kAll, "the words after the highest block are all ones, then a huge request", top_size},
    {"unlink_inside_block", kAll, "a false free block inside a live one", unlink_inside},
    {"sorted_list_forward", kAny, "the third word of a freed 1 KiB block in a sorted list", sorted_list, {2}},
    {"sorted_list_backward", kAny, "the fourth word of a freed 1 KiB block in a sorted list", sorted_list, {3}},
    {"aligned_header_64k_zeros", kAll, "zeros at the start of the block's 64 KiB", aligned_header, {64 * kKiB}},
    {"aligned_header_64k_target",
     kAll,
     "the target's address at the start of the block's 64 KiB",
     aligned_header,
     {64 * kKiB, 1}},
    {"aligned_header_4m_zeros", kAll, "zeros at the start of the block's 4 MiB", aligned_header, {4096 * kKiB}},
    {"aligned_header_4m_target",
     kAll,
     "the target's address at the start of the block's 4 MiB",
     aligned_header,
     {4096 * kKiB, 1}},
    {"aligned_header_32m_target",
     kAll,
     "the target's address at the start of the block's 32 MiB",
     aligned_header,
     {32768 * kKiB, 1}},
};

}  // namespace

const Family kMetadata = {
    "metadata", "no target address and no overlapping block is handed out, and nothing is written to the target",
    kCases, sizeof kCases / sizeof kCases[0]};

}  // namespace attack
