// Room 8, cache: see early.h.

#include "cache/early.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "platform/message.h"
#include "region/metadata.h"

namespace freestone::early {

constinit Atomic<Cache*> watched;

namespace {

Atomic<u8> begun;  // 1: no other cache will be watched
u16 left = kAllocations;

// The address of the block, its state in the low bits, which are zero in an address, and above kSlackShift its slack:
// how many of its bytes lie behind what glibc lets the program use. 0: no block.
using Entry = u64;
constexpr u64 kLive = 1;
constexpr u64 kFree = 2;
constexpr unsigned kSlackShift = 48;
constexpr unsigned kPlacesLog = 8;
constexpr usize kTableBytes = sizeof(Entry) << kPlacesLog;
Entry* table = nullptr;

constexpr usize kPage = 4 * kKiB;
constexpr u64 kCanary = 0xc5c5'c5c5'c5c5'c500;  // its first byte ends a string

FREESTONE_INLINE usize address_in(Entry entry) { return entry & low_mask(kSlackShift) & ~u64{kGranule - 1}; }
FREESTONE_INLINE bool is_of(Entry entry, const void* block) {
  return entry != 0 && address_in(entry) == address_of(block);
}
FREESTONE_INLINE Entry& place_of(const void* block) {
  constexpr u64 kMultiplier = 0x9e37'79b9'7f4a'7c15;
  return table[(address_of(block) * kMultiplier) >> (64 - kPlacesLog)];
}

// Where the second canary stands: at the end of the block, unless that could take a page more.
FREESTONE_INLINE char* last_canary(char* first, char* end) {
  return (address_of(first) ^ address_of(end - 1)) < kPage ? end - sizeof kCanary : first;
}
// What glibc overwrites in a freed block: links, and two more in large ones.
FREESTONE_INLINE usize linked_bytes(usize block_bytes) { return (block_bytes > kKiB ? 4 : 2) * sizeof(void*); }

// Where the block before has no slack, glibc may let the program write 8 bytes beyond our end of it. They are cleared:
// it may have slack at the next look. So a free block is checked before that changes.
FREESTONE_SLOW bool may_come_from_before(char* block, usize bytes) {
  const Entry before = place_of(block - bytes);
  if (is_of(before, block - bytes) && before >> kSlackShift != 0) return false;
  store_word(block, 0);
  return is_clear(block, linked_bytes(bytes));
}

FREESTONE_INLINE void check(Entry entry, char* block, usize bytes) {
  if ((entry & kFree) != 0 && !is_clear(block, linked_bytes(bytes)) && !may_come_from_before(block, bytes))
    return misuse("write after free", block, bytes);
  const usize slack = entry >> kSlackShift;
  if (slack == 0) return;
  char* const end = block + bytes;
  if (load_word(end - slack) == kCanary && load_word(last_canary(end - slack, end)) == kCanary) return;
  // The heap is sound: with on_error:report the program goes on.
  misuse("heap overflow", block, bytes);
}
FREESTONE_APART void check_any(Entry entry) {
  auto* const block = reinterpret_cast<char*>(address_in(entry));
  check(entry, block, class_info(tag_of(unit_of(block))).bytes);
}
void check_at(const char* block) {
  if (const Entry entry = place_of(block); is_of(entry, block)) check_any(entry);
}

FREESTONE_INLINE void remember_free(Entry& place, char* block, usize bytes, u64 slack) {
  std::memset(block, 0, linked_bytes(bytes));
  place = address_of(block) | kFree | slack << kSlackShift;
}

// Empties the place of a block. Returns its entry; checks that of another block.
FREESTONE_INLINE Entry forget(Entry& place, const void* block) {
  const Entry entry = std::exchange(place, 0);
  if (entry == 0 || is_of(entry, block)) return entry;
  check_any(entry);
  return 0;
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

void* take_cached(Cache& cache, SizeClass size_class, usize bytes) {
  FREESTONE_CHECK("EARLY-1", cache.low[size_class] == cache.top[size_class] &&
                                 cache.high[size_class] == cache.top[size_class]);
  if (cache.top[size_class] == cache.base[size_class]) return nullptr;
  void* const block = *--cache.top[size_class];
  close(cache, size_class);
  note_taken(cache, size_class, block, bytes);
  return block;
}

void note_taken(Cache& cache, SizeClass size_class, void* block, usize bytes) {
  note_resized(size_class, block, bytes);
  // Mostly the block behind is the next to be handed out. It is remembered too, unless it begins a page.
  const usize block_bytes = class_info(size_class).bytes;
  char* const behind = static_cast<char*>(block) + block_bytes;
  if (cache.top[size_class] != cache.base[size_class] && cache.top[size_class][-1] == behind &&
      block_bytes <= kClearedMax && address_of(behind) % kPage != 0) {
    if (Entry& place = place_of(behind); place == 0) remember_free(place, behind, block_bytes, 0);
  }
  if (--left == 0) end_here(cache);
}

bool note_freed(SizeClass size_class, void* block) {
  const usize bytes = class_info(size_class).bytes;
  auto* const start = static_cast<char*>(block);
  Entry& place = place_of(block);
  const Entry entry = forget(place, block);
  if (FREESTONE_UNLIKELY((entry & kFree) != 0)) fail_block("double free", block, bytes);
  if (entry != 0) check(entry, start, bytes);
  check_at(start - bytes);
  check_at(start + bytes);
  if (bytes <= kClearedMax) {
    remember_free(place, start, bytes, entry >> kSlackShift);
  }
  return entry != 0;
}

void note_resized(SizeClass size_class, void* block, usize bytes) {
  const usize block_bytes = class_info(size_class).bytes;
  auto* const start = static_cast<char*>(block);
  Entry& place = place_of(block);
  if (const Entry entry = forget(place, block); entry != 0) check(entry, start, block_bytes);
  check_at(start + block_bytes);
  const usize usable = max_of(usize{24}, round_up(bytes + sizeof(u64), 16) - sizeof(u64));
  const usize slack = usable < block_bytes ? block_bytes - usable : 0;
  if (slack != 0) {
    char* const end = start + block_bytes;
    store_word(end - slack, kCanary);
    store_word(last_canary(end - slack, end), kCanary);
  }
  place = address_of(block) | kLive | u64{slack} << kSlackShift;
}

void note_leaving(void* const* blocks, unsigned count) {
  for (unsigned k = 0; k < count; ++k) {
    Entry& place = place_of(blocks[k]);
    if (!is_of(place, blocks[k])) continue;
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
