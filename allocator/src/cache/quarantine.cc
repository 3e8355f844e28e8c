// Room 8, cache: see quarantine.h.

#include "cache/quarantine.h"

#include <cstring>
#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "cache/arrays.h"
#include "config/heuristics.h"
#include "region/account.h"
#include "region/metadata.h"

namespace freestone {

namespace {

Atomic<usize> all_places_bytes;  // relaxed: the sum over all queues (QUEUE-2)

usize array_bytes(unsigned capacity) { return max_of<usize>(kMetadataPieceMin, usize{capacity} * sizeof(void*)); }

unsigned first_places(const ClassInfo& info) {
  return static_cast<unsigned>(max_of<usize>(2, min_of<usize>(16, 8 * kKiB / info.bytes)));
}

bool fits(usize more) {
  const usize most = max_of<usize>(kQuarantineFreeBytes, account.charged.load_relaxed() / kQuarantineHeapDivisor);
  return all_places_bytes.load_relaxed() + more <= most;
}

// Another number of places, at least as many as blocks. False when memory is out.
bool set_capacity(Queue& queue, SizeClass c, unsigned capacity) {
  const unsigned old = queue.capacity();
  void** array = nullptr;
  if (capacity != 0) {
    array = static_cast<void**>(take_metadata(array_bytes(capacity)));
    if (array == nullptr) return false;
  }
  const unsigned count = queue.count();
  FREESTONE_CHECK("QUEUE-1", count <= capacity);
  if (count != 0) std::memcpy(array, queue.base, count * sizeof(void*));
  if (old != 0) return_metadata(queue.base, array_bytes(old));
  queue.base = array;
  queue.top = array + count;
  queue.end = array + capacity;
  FREESTONE_CHECK("QUEUE-2", capacity == 0 || capacity * class_info(c).bytes <= kQuarantineClassBytes);
  all_places_bytes.add_relaxed((usize{capacity} - old) * class_info(c).bytes);  // modulo 2^64
  return true;
}

void shuffle(void** blocks, unsigned count, SlabUser& user) {
  for (unsigned left = count; left > 1; --left) {
    const auto drawn = static_cast<unsigned>((next_random(user) & low_mask(32)) * left >> 32);
    std::swap(blocks[left - 1], blocks[drawn]);
  }
}

void forget_oldest(Queue& queue, unsigned count) {
  const unsigned left = queue.count() - count;
  std::memmove(queue.base, queue.base + count, left * sizeof(void*));
  queue.top = queue.base + left;
}

// The older half leaves.
void let_go(Cache& cache, SizeClass c) {
  Queue& queue = cache.quarantine.of(c);
  const unsigned count = (queue.count() + 1) / 2;
  shuffle(queue.base, count, cache.user);
  give_to_class(cache, c, queue.base, count);
  forget_oldest(queue, count);
}

// Halves the number of places. Blocks that no longer fit go to their slabs.
void halve(Cache& cache, SizeClass c) {
  Queue& queue = cache.quarantine.of(c);
  const unsigned capacity = queue.capacity() / 2;
  if (queue.count() > capacity) {
    const unsigned count = queue.count() - capacity;
    return_blocks(c, cache.user, queue.base, count);
    forget_oldest(queue, count);
  }
  set_capacity(queue, c, capacity);
}

// Whether a queue that has places to give was not full since the last time that this was asked.
bool is_idle(Queue& queue, SizeClass c) {
  const bool was_full = std::exchange(queue.was_full, false);
  return !was_full && queue.capacity() > first_places(class_info(c));
}

// Halves an idle queue; a few are asked each time, in turn.
bool take_from_idle(Cache& cache, SizeClass c) {
  u8& hand = cache.quarantine.hand();
  for (unsigned asked = 0; asked < kQueuesAsked; ++asked) {
    hand = static_cast<u8>(hand < kLastSmallClass ? hand + 1 : 1);
    if (hand == c || !is_idle(cache.quarantine.of(hand), hand)) continue;
    Changing changing(cache, hand);
    halve(cache, hand);
    return true;
  }
  return false;
}

// Inside Changing(cache, c).
void make_room(Cache& cache, SizeClass c) {
  const ClassInfo& info = class_info(c);
  Queue& queue = cache.quarantine.of(c);
  const unsigned old = queue.capacity();
  if (old == 0) {
    set_capacity(queue, c, first_places(info));
    return;
  }
  queue.was_full = true;
  const usize more = usize{old} * info.bytes;
  const bool may_grow = 2 * more <= kQuarantineClassBytes && (fits(more) || (take_from_idle(cache, c) && fits(more)));
  if (!may_grow || !set_capacity(queue, c, 2 * old)) let_go(cache, c);
}

}  // namespace

void put_in_full_queue(Cache& cache, SizeClass c, void* block) {
  Changing changing(cache, c);
  Queue& queue = cache.quarantine.of(c);
  if (queue.top == queue.end) make_room(cache, c);
  if (queue.top == queue.end) return give_to_class(cache, c, &block, 1);  // memory is out
  *queue.top = block;
  advance_release(queue.top, queue.top);
}

void shrink_idle_queues(Cache& cache) {
  if constexpr (!kMitigations.quarantine) return;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    if (!is_idle(cache.quarantine.of(c), c)) continue;
    Changing changing(cache, c);
    halve(cache, c);
  }
}

void empty_quarantine(Cache& cache) {
  if constexpr (!kMitigations.quarantine) return;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    Queue& queue = cache.quarantine.of(c);
    if (queue.base == nullptr) continue;
    Changing changing(cache, c);
    return_blocks(c, cache.user, queue.base, queue.count());
    queue.top = queue.base;
    set_capacity(queue, c, 0);
  }
}

void forget_queue(Cache& cache, SizeClass c) {
  if (kMitigations.quarantine && is_slab_class(c)) cache.quarantine.of(c) = {};
}

void flush_all(Cache& cache) {
  empty_quarantine(cache);
  flush_arrays(cache);
}

}  // namespace freestone
