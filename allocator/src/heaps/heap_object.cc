// Room 11, heaps: see heap_object.h.

#include "heaps/heap_object.h"

#include <cstring>

#include "base/check.h"
#include "platform/message.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

constexpr usize kAlignmentMax = 2 * kMiB;  // of the region's base
constexpr u32 kSlabBlocksMin = 8;

// Smaller slabs than in the process heap, because a bounded heap has fewer blocks of a class to fill them.
struct SlabShapes {
  u8 units[kLastSmallClass + 1] = {};
  u16 blocks[kLastSmallClass + 1] = {};

  constexpr SlabShapes() {
    for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
      units[c] = 1;
      while (units[c] < 16 && units_to_bytes(units[c]) / class_bytes(c) < kSlabBlocksMin)
        units[c] = static_cast<u8>(units[c] * 2);
      blocks[c] = static_cast<u16>(min_of(units_to_bytes(units[c]) / class_bytes(c), usize{kSlabWordsMax * 64}));
    }
  }
};
constexpr SlabShapes kShapes;

usize bytes_of(SizeClass c) { return class_info(c).bytes; }
u32 slab_units_of(SizeClass c) { return kShapes.units[c]; }
u32 slab_blocks_of(SizeClass c) { return kShapes.blocks[c]; }
unsigned words_of(SizeClass c) { return (slab_blocks_of(c) + 63) / 64; }
u64 full_word(SizeClass c, unsigned w) { return low_mask(min_of(64U, slab_blocks_of(c) - w * 64)); }

// The class of such a block; 0 if it takes a span of its own.
SizeClass small_class(usize bytes, usize alignment) {
  if (bytes > kSmallBytesMax || alignment > kUnitBytes) return 0;
  const SizeClass c = class_of_aligned(bytes, max_of(alignment, kGranule));
  return is_slab_class(c) ? c : 0;
}

bool is_listed_full(SizeClass c, const Record& record) { return c == 0 || record.heap.live == slab_blocks_of(c); }

// How many blocks of a slab are in use, by its bitmap.
u32 used_blocks(SizeClass c, const Record& record) {
  u32 used = slab_blocks_of(c);
  for (unsigned w = 0; w < words_of(c); ++w) used -= count_bits(record.words[w].load_relaxed());
  return used;
}

}  // namespace

bool HeapObject::take_bytes(usize bytes) {
  const usize now = span_bytes_.load_relaxed();
  if (bytes > limit_bytes_ - now) return false;
  span_bytes_.store_relaxed(now + bytes);
  peak_bytes_ = max_of(peak_bytes_, now + bytes);
  FREESTONE_CHECK("OBJECT-3", span_bytes_.load_relaxed() <= limit_bytes_);
  return true;
}

void HeapObject::push(UnitIndex& list, UnitIndex first) {
  Record& record = record_of(first);
  record.heap.next = list;
  record.heap.previous = kNoUnit;
  if (list != kNoUnit) record_of(list).heap.previous = first;
  list = first;
}

void HeapObject::remove(UnitIndex& list, UnitIndex first) {
  const Record& record = record_of(first);
  if (record.heap.next != kNoUnit) record_of(record.heap.next).heap.previous = record.heap.previous;
  if (record.heap.previous != kNoUnit) {
    record_of(record.heap.previous).heap.next = record.heap.next;
  } else {
    list = record.heap.next;
  }
}

// Gives back a span that is in no list.
void HeapObject::release(UnitIndex first) {
  const usize units = record_of(first).run_units;
  set_tags(first, units, kTagNone);
  return_used_span(first, units, 0);
  span_bytes_.store_relaxed(span_bytes_.load_relaxed() - units_to_bytes(units));
}

usize HeapObject::reset() {
  LockGuard guard(lock_);
  const auto release_all = [this](UnitIndex& list) FREESTONE_REQUIRES(lock_) {
    while (list != kNoUnit) {
      const UnitIndex first = list;
      remove(list, first);
      release(first);
    }
  };
  release_all(full_);
  for (UnitIndex& list : partial_) release_all(list);
  live_bytes_.store_relaxed(0);
  const usize live = live_blocks_.load_relaxed();
  live_blocks_.store_relaxed(0);
  return live;
}

usize HeapObject::release_empty_slabs() {
  usize released = 0;
  for (UnitIndex& list : partial_) {
    for (UnitIndex first = list; first != kNoUnit;) {
      const UnitIndex next = record_of(first).heap.next;
      if (record_of(first).heap.live == 0) {
        remove(list, first);
        release(first);
        ++released;
      }
      first = next;
    }
  }
  return released;
}

UnitIndex HeapObject::new_span(usize units, usize alignment_units, SizeClass size_class) {
  const usize bytes = units_to_bytes(units);
  if (bytes > limit_bytes_) return kNoUnit;
  if (!take_bytes(bytes) && (release_empty_slabs() == 0 || !take_bytes(bytes))) return kNoUnit;
  const Span span = take_span(units, alignment_units);
  if (span.first == kNoUnit) {
    span_bytes_.store_relaxed(span_bytes_.load_relaxed() - bytes);
    return kNoUnit;
  }
  Record& record = record_of(span.first);
  record.run_units = static_cast<u32>(units);
  record.size_class = static_cast<u8>(size_class);
  record.heap.live = size_class == 0 ? 1 : 0;
  for (unsigned w = 0; size_class != 0 && w < words_of(size_class); ++w)
    record.words[w].store_relaxed(full_word(size_class, w));
  for (usize k = units; k-- > 0;) {
    const UnitIndex unit = span.first + static_cast<UnitIndex>(k);
    record_of(unit).heap.object = address_of(this);
    record_of(unit).heap.first = span.first;
    order_stores();  // FORK-3: a first unit with the tag has its record, and the others have the tag
    set_tag(unit, kTagHeapObject);
  }
  return span.first;
}

// In the child of a fork: the spans with our tag and address are ours, whatever list another thread was moving them to.
// What a thread held in a register is live and lost.
void HeapObject::count_anew() {
  full_ = kNoUnit;
  for (UnitIndex& list : partial_) list = kNoUnit;
  usize spans = sizeof(HeapObject);
  usize blocks = 0;
  usize bytes = 0;
  const UnitIndex end = region.frontier.load_acquire();
  for (UnitIndex unit = region.heap_start; unit < end; ++unit) {
    if (tag_of(unit) != kTagHeapObject) continue;
    Record& record = record_of(unit);
    if (record.heap.object != address_of(this) || record.heap.first != unit) continue;
    const SizeClass c = record.size_class;
    const u32 used = c == 0 ? 1 : used_blocks(c, record);
    record.heap.live = used;
    push(is_listed_full(c, record) ? full_ : partial_[c], unit);
    spans += units_to_bytes(record.run_units);
    blocks += used;
    bytes += used * (c != 0 ? bytes_of(c) : units_to_bytes(record.run_units));
  }
  span_bytes_.store_relaxed(spans);
  live_blocks_.store_relaxed(blocks);
  live_bytes_.store_relaxed(bytes);
}

UnitIndex HeapObject::new_slab(SizeClass c) {
  const u32 units = slab_units_of(c);
  const UnitIndex first = new_span(units, units, c);
  if (first == kNoUnit) return kNoUnit;
  push(partial_[c], first);
  return first;
}

void HeapObject::note_live(usize bytes) {
  live_bytes_.bump_single_writer(bytes);
  live_blocks_.bump_single_writer(1);
}

void HeapObject::note_dead(usize bytes) {
  live_bytes_.store_relaxed(live_bytes_.load_relaxed() - bytes);
  live_blocks_.store_relaxed(live_blocks_.load_relaxed() - 1);
}

void* HeapObject::allocate_small(SizeClass c) {
  UnitIndex first = partial_[c];
  if (first == kNoUnit) first = new_slab(c);
  if (first == kNoUnit) return nullptr;
  Record& record = record_of(first);
  FREESTONE_CHECK("OBJECT-1", !is_listed_full(c, record));
  unsigned w = 0;
  while (record.words[w].load_relaxed() == 0) ++w;  // OBJECT-1: some word has a free block
  const u64 word = record.words[w].load_relaxed();
  record.words[w].store_relaxed(word & (word - 1));
  if (++record.heap.live == slab_blocks_of(c)) {
    remove(partial_[c], first);
    push(full_, first);
  }
  FREESTONE_CHECK("OBJECT-2", used_blocks(c, record) == record.heap.live);
  note_live(bytes_of(c));
  return unit_address(first) + usize{w * 64 + lowest_bit(word)} * bytes_of(c);
}

void* HeapObject::allocate_large(usize bytes, usize alignment) {
  const usize units = bytes_to_units(bytes);
  if (units > kWindowUnitsMax) return nullptr;
  const UnitIndex first = new_span(units, max_of<usize>(alignment >> kUnitShift, 1), 0);
  if (first == kNoUnit) return nullptr;
  push(full_, first);
  note_live(units_to_bytes(units));
  return unit_address(first);
}

usize HeapObject::good_size(usize bytes, usize alignment) {
  const usize wanted = max_of<usize>(bytes, 1);
  const SizeClass c = small_class(wanted, alignment);
  return c != 0 ? bytes_of(c) : units_to_bytes(bytes_to_units(wanted));
}

void* HeapObject::allocate(usize bytes, usize alignment) {
  const usize wanted = max_of<usize>(bytes, 1);
  if (wanted > PTRDIFF_MAX || alignment > kAlignmentMax) return nullptr;
  LockGuard guard(lock_);
  const SizeClass c = small_class(wanted, alignment);
  void* block = c != 0 ? allocate_small(c) : allocate_large(wanted, alignment);
  if (block == nullptr) ++failed_allocations_;
  return block;
}

HeapObject::Place HeapObject::place_of(const char* call, const void* block) {
  if (!in_window(block) || tag_of(unit_of(block)) != kTagHeapObject)
    fail(call, block, "the address is not from a heap object");
  const UnitIndex first = record_of(unit_of(block)).heap.first;
  const Record& record = record_of(first);
  if (record.heap.object != address_of(this)) fail(call, block, "the block belongs to another heap object");
  const usize offset = address_of(block) - address_of(unit_address(first));
  const SizeClass c = record.size_class;
  if (c == 0) {
    if (offset != 0) fail(call, block, "the address is not the start of a block");
    return {first, 0, 0};
  }
  const u32 number = block_number(class_info(c), offset);
  if (number >= slab_blocks_of(c) || usize{number} * bytes_of(c) != offset)
    fail(call, block, "the address is not the start of a block");
  if ((record.words[number / 64].load_relaxed() & bit(number % 64)) != 0) fail(call, block, "the block is free");
  return {first, number, c};
}

usize HeapObject::bytes_at(const Place& place) const {
  return place.size_class != 0 ? bytes_of(place.size_class) : units_to_bytes(record_of(place.first).run_units);
}

void HeapObject::deallocate_at(const Place& place) {
  note_dead(bytes_at(place));
  if (place.size_class == 0) {
    remove(full_, place.first);
    return release(place.first);
  }
  const SizeClass c = place.size_class;
  Record& record = record_of(place.first);
  Atomic<u64>& word = record.words[place.number / 64];
  word.store_relaxed(word.load_relaxed() | bit(place.number % 64));
  if (record.heap.live-- == slab_blocks_of(c)) {
    remove(full_, place.first);
    push(partial_[c], place.first);
  }
  FREESTONE_CHECK("OBJECT-2", used_blocks(c, record) == record.heap.live);
  // One empty slab of each class stays, for a program that frees and allocates in turns.
  if (record.heap.live == 0 && (partial_[c] != place.first || record.heap.next != kNoUnit)) {
    remove(partial_[c], place.first);
    release(place.first);
  }
}

void HeapObject::deallocate(void* block, const char* call) {
  if (block == nullptr) return;
  LockGuard guard(lock_);
  deallocate_at(place_of(call, block));
}

usize HeapObject::usable_bytes(const void* block, const char* call) {
  if (block == nullptr) return 0;
  LockGuard guard(lock_);
  return bytes_at(place_of(call, block));
}

void* HeapObject::reallocate(void* block, usize bytes, const char* call) {
  if (block == nullptr) return allocate(bytes, kGranule);
  usize old_bytes;
  {
    LockGuard guard(lock_);
    const Place place = place_of(call, block);
    old_bytes = bytes_at(place);
    if (stays_in(old_bytes, max_of(bytes, kGranule / 2))) return block;
  }
  void* moved = allocate(bytes, kGranule);
  if (moved == nullptr) return bytes <= old_bytes ? block : nullptr;
  std::memcpy(moved, block, min_of(old_bytes, bytes));
  deallocate(block);
  return moved;
}

HeapObject::Counts HeapObject::counts() {
  LockGuard guard(lock_);
  return {limit_bytes_,
          span_bytes_.load_relaxed(),
          peak_bytes_,
          live_bytes_.load_relaxed(),
          live_blocks_.load_relaxed(),
          failed_allocations_};
}

template <typename Function>
void HeapObject::for_each_span(Function function) {
  for (UnitIndex first = full_; first != kNoUnit; first = record_of(first).heap.next) {
    if (!function(first, SizeClass{record_of(first).size_class}, true)) return;
  }
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    for (UnitIndex first = partial_[c]; first != kNoUnit; first = record_of(first).heap.next) {
      if (!function(first, c, false)) return;
    }
  }
}

bool HeapObject::is_valid() {
  LockGuard guard(lock_);
  bool valid = true;
  usize spans = sizeof(HeapObject);
  usize blocks = 0;
  usize bytes = 0;
  for_each_span([&](UnitIndex first, SizeClass c, bool listed_full) {
    const Record& record = record_of(first);
    valid = valid && record.heap.object == address_of(this) && record.heap.first == first && record.size_class == c &&
            tag_of(first) == kTagHeapObject && listed_full == is_listed_full(c, record);
    const usize used = c == 0 ? 1 : used_blocks(c, record);
    for (unsigned w = 0; c != 0 && w < words_of(c); ++w)
      valid = valid && (record.words[w].load_relaxed() & ~full_word(c, w)) == 0;
    valid = valid && used == record.heap.live;
    spans += units_to_bytes(record.run_units);
    blocks += used;
    bytes += used * (c != 0 ? bytes_of(c) : units_to_bytes(record.run_units));
    return valid;
  });
  return valid && spans == span_bytes_.load_relaxed() && blocks == live_blocks_.load_relaxed() &&
         bytes == live_bytes_.load_relaxed() && spans <= limit_bytes_;
}

usize HeapObject::walk(Visit visit, void* context) {
  LockGuard guard(lock_);
  usize visited = 0;
  for_each_span([&](UnitIndex first, SizeClass c, bool) {
    const Record& record = record_of(first);
    if (c == 0) return ++visited, visit(context, unit_address(first), units_to_bytes(record.run_units));
    for (u32 n = 0; n < slab_blocks_of(c); ++n) {
      if ((record.words[n / 64].load_relaxed() & bit(n % 64)) != 0) continue;
      ++visited;
      if (!visit(context, unit_address(first) + usize{n} * bytes_of(c), bytes_of(c))) return false;
    }
    return true;
  });
  return visited;
}

}  // namespace freestone
