// Room 8, cache: see early.h.

#include "cache/early.h"

#include <utility>

#include "base/check.h"
#include "platform/message.h"
#include "region/metadata.h"

namespace freestone::early {

constinit Atomic<Cache*> watched;

namespace {

Atomic<u8> begun;  // 1: no other cache will be watched
u16 left = kAllocations;

// The address of the block, its state in the low bits, which are zero in an address, and above kUnusedShift how many of
// its bytes are unused. 0: no block.
using Entry = u64;
constexpr u64 kLive = 1;
constexpr u64 kClearEnd = 2;
constexpr u64 kClearStart = 4;
constexpr u64 kFree = kClearEnd | kClearStart;
constexpr unsigned kUnusedShift = 48;
constexpr unsigned kPlacesLog = 8;
constexpr usize kTableBytes = sizeof(Entry) << kPlacesLog;
Entry* table = nullptr;

// What the 16 bytes behind the program's hold or, if fewer are unused, the last 16 of the block. The row of a block
// begins at the number of its unused bytes.
struct Zone {
  u8 bytes[2 * kZoneBytes] = {};
  u8 mask[2 * kZoneBytes] = {};
  constexpr Zone() {
    for (usize k = kZoneBytes; k < 2 * kZoneBytes; ++k) mask[k] = 0xff;
    for (usize k = kZoneBytes + 1; k < 2 * kZoneBytes; ++k) bytes[k] = 0xc5;
  }
};
constexpr Zone kZone;
FREESTONE_INLINE usize row_of(usize unused) { return min_of(unused, kZoneBytes); }
FREESTONE_INLINE char* zone_of(char* end, usize unused) { return end - max_of(unused, kZoneBytes); }

FREESTONE_INLINE usize address_in(Entry entry) { return entry & low_mask(kUnusedShift) & ~u64{kGranule - 1}; }
FREESTONE_INLINE bool is_of(Entry entry, const void* block) {
  return ((entry ^ address_of(block)) & low_mask(kUnusedShift) & ~u64{kGranule - 1}) == 0;
}
FREESTONE_INLINE Entry& place_of(const void* block) {
  constexpr u64 kMultiplier = 0x9e37'79b9'7f4a'7c15;
  return table[(address_of(block) * kMultiplier) >> (64 - kPlacesLog)];
}

FREESTONE_INLINE bool is_whole(Entry entry, char* block, usize bytes) {
  if ((entry & kLive) != 0) {
    const usize unused = entry >> kUnusedShift;
    const usize row = row_of(unused);
    const Chunk now = load_chunk(zone_of(block + bytes, unused)) & load_chunk(kZone.mask + row);
    return is_zero(now ^ load_chunk(kZone.bytes + row));
  }
  const usize ends = min_of(bytes, kEndBytes);
  if (!is_clear(block + bytes - ends, ends)) return false;
  return bytes == ends || (entry & kClearStart) == 0 || is_clear(block, ends);
}

// The heap is sound: with on_error:report the program goes on.
FREESTONE_SLOW void tell_damaged(Entry entry, const char* block, usize bytes) {
  if ((entry & kLive) == 0) return misuse("write after free", block, bytes);
  misuse("heap overflow", block, BlockFacts{.block_bytes = bytes, .asked_bytes = bytes - (entry >> kUnusedShift)});
}
FREESTONE_INLINE void check(Entry entry, char* block, usize bytes) {
  if (FREESTONE_UNLIKELY(!is_whole(entry, block, bytes))) tell_damaged(entry, block, bytes);
}
FREESTONE_APART void check_any(Entry entry) {
  auto* const block = reinterpret_cast<char*>(address_in(entry));
  check(entry, block, class_info(tag_of(unit_of(block))).bytes);
}

// Empties the place of a block. Returns its entry; checks that of another block.
FREESTONE_INLINE Entry forget(Entry& place, const void* block) {
  const Entry entry = place;
  if (entry == 0) return 0;
  place = 0;
  if (FREESTONE_LIKELY(is_of(entry, block))) return entry;
  check_any(entry);
  return 0;
}

void clear(char* at, usize bytes) {
  for (char* const end = at + bytes; at != end; at += kChunkBytes) clear_chunk(at);
}

FREESTONE_INLINE void remember_live(Entry& place, char* block, usize block_bytes, usize bytes) {
  const usize unused = block_bytes - bytes;
  const usize row = row_of(unused);
  char* const end = block + block_bytes;
  char* const zone = zone_of(end, unused);
  if (unused >= kZoneBytes) {
    store_chunk(zone, load_chunk(kZone.bytes + row));
  } else if (unused != 0) {
    *const_cast<volatile char*>(end - 1) = 0;  // a fresh page that is read before it is written faults twice
    store_chunk(zone, (load_chunk(zone) & ~load_chunk(kZone.mask + row)) | load_chunk(kZone.bytes + row));
  }
  place = address_of(block) | kLive | u64{unused} << kUnusedShift;
}

FREESTONE_SLOW void end_here(Cache& cache) {
  end();
  cache.looks = min_of<u16>(cache.looks, kLooks - kCloseLooks / 2);  // as after so many frees
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) cache.low[c] = cache.base[c];
}

}  // namespace

void begin(Cache& cache) {
  if (begun.load_relaxed() != 0) return;
  begun.store_relaxed(1);
  table = static_cast<Entry*>(take_metadata(kTableBytes));
  if (table == nullptr) return;
  watched.store_relaxed(&cache);
}

void end() {
  if (watched.load_relaxed() != nullptr) watched.store_relaxed(nullptr);
}

void pass_first(Cache& cache, SizeClass size_class) {
  constexpr usize kPage = 4 * kKiB;
  void** const top = cache.top[size_class];
  auto* const first = static_cast<char*>(top[-1]);
  if (FREESTONE_LIKELY(address_of(first) % kUnitBytes != 0) || cache.count(size_class) < 2) return;
  const ClassInfo& info = class_info(size_class);
  if (slab_start(info, unit_of(first)) != unit_of(first)) return;
  std::swap(top[-1], top[-2]);
  // Only where the second block begins in the page in which the first one ends.
  if ((address_of(first) + info.bytes) % kPage < kEndBytes) return;
  const usize ends = min_of<usize>(info.bytes, kEndBytes);
  Entry& place = place_of(first);
  if (const Entry entry = forget(place, first); entry != 0) check(entry, first, info.bytes);
  clear(first + info.bytes - ends, ends);
  place = address_of(first) | kClearEnd;
}

void* take_cached(Cache& cache, SizeClass size_class, usize bytes) {
  FREESTONE_CHECK("EARLY-1", cache.low[size_class] == cache.top[size_class] &&
                                 cache.high[size_class] == cache.top[size_class]);
  if (cache.top[size_class] == cache.base[size_class]) return nullptr;
  pass_first(cache, size_class);
  void* const block = *--cache.top[size_class];
  close(cache, size_class);
  note_taken(cache, size_class, block, bytes);
  return block;
}

void note_taken(Cache& cache, SizeClass size_class, void* block, usize bytes) {
  note_resized(size_class, block, bytes);
  if (--left == 0) end_here(cache);
}

bool note_freed(SizeClass size_class, void* block) {
  const usize bytes = class_info(size_class).bytes;
  auto* const start = static_cast<char*>(block);
  Entry& place = place_of(block);
  const Entry entry = forget(place, block);
  if (FREESTONE_UNLIKELY((entry & kFree) != 0)) fail_block("double free", block, bytes);
  if (entry != 0) check(entry, start, bytes);
  if (const Entry before = place_of(start - bytes); before != 0 && is_of(before, start - bytes)) check_any(before);
  if (bytes <= kClearedMax) {
    const usize ends = min_of(bytes, kEndBytes);
    clear(start, ends);
    if (bytes > ends) clear(start + bytes - ends, ends);
    place = address_of(block) | kFree;
  }
  return entry != 0;
}

void note_resized(SizeClass size_class, void* block, usize bytes) {
  const usize block_bytes = class_info(size_class).bytes;
  Entry& place = place_of(block);
  if (const Entry entry = forget(place, block); entry != 0) check(entry, static_cast<char*>(block), block_bytes);
  remember_live(place, static_cast<char*>(block), block_bytes, bytes);
}

void note_leaving(void* const* blocks, unsigned count) {
  for (unsigned k = 0; k < count; ++k) {
    Entry& place = place_of(blocks[k]);
    if (place == 0 || !is_of(place, blocks[k])) continue;
    check_any(place);
    place = 0;
  }
}

void check_all() {
  if (watched.load_relaxed() == nullptr) return;
  for (usize k = 0; k < kTableBytes / sizeof(Entry); ++k) {
    if (table[k] != 0) check_any(table[k]);
  }
}

}  // namespace freestone::early
