// Room 5, region: see metadata.h.

#include "region/metadata.h"

#include <cstring>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/places.h"
#include "platform/os.h"
#include "region/account.h"
#include "region/region.h"

namespace freestone {

// FORK-3: a list is whole at every instruction. A piece may be in no list.
constinit Mutex metadata_lock{LockName::metadata};

namespace {

constexpr usize kFirstChunk = 64 * kKiB;
constexpr usize kLaterChunk = 512 * kKiB;
constexpr unsigned kSizes = 11;  // 64 B ... 64 KiB
static_assert(kMetadataPieceMin << (kSizes - 1) == kMetadataPieceMax);

struct Piece {
  Piece* next;
};

Piece* free_pieces[kSizes] FREESTONE_GUARDED_BY(metadata_lock);
char* chunk_next FREESTONE_GUARDED_BY(metadata_lock) = nullptr;
char* chunk_end FREESTONE_GUARDED_BY(metadata_lock) = nullptr;
Atomic<usize> mapped_bytes;  // relaxed: written under the lock
Atomic<usize> carved_bytes;

unsigned size_index(usize bytes) {
  return bytes <= kMetadataPieceMin ? 0 : highest_bit(bytes - 1) + 1 - highest_bit(kMetadataPieceMin);
}

// The chunks, with neighbours merged. Chunks beyond the array's end are forgotten.
constexpr usize kRangesMax = 512;
FREESTONE_FAR MetadataRange ranges[kRangesMax] FREESTONE_GUARDED_BY(metadata_lock);
usize range_count FREESTONE_GUARDED_BY(metadata_lock) = 0;

void note_chunk(usize start, usize end) FREESTONE_REQUIRES(metadata_lock) {
  if (range_count > 0 && ranges[range_count - 1].start == end) {
    ranges[range_count - 1].start = start;
  } else if (range_count < kRangesMax) {
    ranges[range_count++] = {start, end};
  }
}

char* map_chunk(usize bytes) {
  if (!charge_ahead(bytes)) return nullptr;
  auto* start = reinterpret_cast<char*>(place_apart(bytes, os::page_bytes()));
  if (start == nullptr || os::map_at(start, bytes)) start = static_cast<char*>(os::map(bytes));
  start != nullptr ? confirm_charge() : uncharge(bytes);
  return start;
}

// Takes a piece from the chunk, or starts a new chunk if it does not fit. The rest of the old chunk is dropped; nobody
// ever touched it.
char* carve(usize bytes) FREESTONE_REQUIRES(metadata_lock) {
  auto* start = reinterpret_cast<char*>(round_up(address_of(chunk_next), min_of(bytes, os::page_bytes())));
  if (chunk_next == nullptr || start + bytes > chunk_end) {
    usize chunk = mapped_bytes.load_relaxed() == 0 || is_limited() ? kFirstChunk : kLaterChunk;
    start = map_chunk(chunk);
    if (start == nullptr && chunk != kFirstChunk) start = map_chunk(chunk = kFirstChunk);
    if (start == nullptr) return nullptr;
    mapped_bytes.add_relaxed(chunk);
    note_in_force(chunk);
    chunk_end = start + chunk;
    note_chunk(address_of(start), address_of(chunk_end));
  }
  chunk_next = start + bytes;
  carved_bytes.add_relaxed(bytes);
  return start;
}

}  // namespace

void* take_metadata(usize bytes) {
  const unsigned index = size_index(bytes);
  const usize rounded = kMetadataPieceMin << index;
  LockGuard guard(metadata_lock);
  if (Piece* piece = free_pieces[index]; piece != nullptr) {
    free_pieces[index] = piece->next;
    std::memset(static_cast<void*>(piece), 0, rounded);
    return piece;
  }
  return carve(rounded);
}

void return_metadata(void* memory, usize bytes) {
  if (memory == nullptr) return;
  const unsigned index = size_index(bytes);
  LockGuard guard(metadata_lock);
  auto* piece = static_cast<Piece*>(memory);
  piece->next = free_pieces[index];
  order_stores();
  free_pieces[index] = piece;
}

// A chunk that another thread had mapped and not noted yet stays behind, never touched.
FREESTONE_SLOW void repair_metadata_in_child(Cut cut) {
  if (!metadata_lock.seize_in_child(cut)) return;
  chunk_next = chunk_end = nullptr;
  metadata_lock.unlock();
}

usize metadata_mapped_bytes() { return mapped_bytes.load_relaxed(); }
usize metadata_touched_bytes() { return carved_bytes.load_relaxed(); }

usize metadata_ranges(MetadataRange* out, usize room) {
  LockGuard guard(metadata_lock);
  const usize count = min_of(range_count, room);
  for (usize i = 0; i < count; ++i) out[i] = ranges[i];
  return count;
}

constinit Places metadata_places = {&mapped_bytes, &carved_bytes};

}  // namespace freestone
