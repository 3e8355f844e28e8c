// Room 8, cache: see quarantine.h.

#include "cache/quarantine.h"

#include <utility>

#include "base/bits.h"
#include "base/check.h"
#include "cache/arrays.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "region/metadata.h"

namespace freestone {

namespace {

usize queue_bytes(const Queue& queue) { return (queue.batch + queue.pool + queue.ring) * sizeof(void*); }

// A queue for a class, by its size and the number of threads. False when memory is out.
bool begin_queue(Cache& cache, SizeClass c) {
  Queue& queue = cache.quarantine.queues[c];
  const usize bytes = options.quarantine_bytes * kQuarantineThreads / max_of<usize>(kQuarantineThreads, cache_count());
  const usize most = min_of(bytes / class_info(c).bytes, kMetadataPieceMax / sizeof(void*));
  const auto places = static_cast<u32>(max_of<usize>(4, most));
  Queue begun{};
  begun.batch = max_of(1U, min_of(kBatchBlocks, places / 8));
  begun.pool = 1U << highest_bit(max_of(2U, places / 8));
  begun.ring = places - begun.pool - begun.batch;
  begun.pool_mask = min_of(begun.pool, kBatchBlocks) - 1;
  auto** const batch = static_cast<void**>(take_metadata(queue_bytes(begun)));
  if (batch == nullptr) return false;
  cache.quarantine.top[c] = batch;
  cache.quarantine.end[c] = batch + begun.batch;
  queue = begun;
  order_stores();  // QUEUE-2
  queue.base = batch;
  return true;
}

// Each block of the batch takes the place of one in the pool, drawn among its places, and that one the place of the
// oldest in the ring, which leaves.
void enter(Cache& cache, SizeClass c) {
  Queue& queue = cache.quarantine.queues[c];
  void** const pool = queue.end();
  void** const ring = pool + queue.pool;
  void** const ring_end = queue.behind();
  void** oldest = ring + queue.oldest;
  void** out = queue.base;
  const u32 mask = queue.pool_mask;
  unsigned moved = 0;
  u64 random = next_random(cache.user);
  for (void** from = queue.base; from != pool; ++from) {
    random = random * 0x5851f42d4c957f2d + 1;
    void* block = std::exchange(pool[random >> 32 & mask], *from);
    if (block == nullptr) continue;
    ++moved;
    block = std::exchange(*oldest, block);
    if (++oldest == ring_end) oldest = ring;
    if (block != nullptr) *out++ = block;
  }
  queue.oldest = static_cast<u32>(oldest - ring);
  if (2 * moved >= queue.batch && mask + 1 < queue.pool) queue.pool_mask = 2 * mask + 1;
  const auto left = static_cast<unsigned>(out - queue.base);
  queue.held += queue.batch - left;
  cache.quarantine.top[c] = queue.base;
  give_to_class(cache, c, queue.base, left);
}

}  // namespace

void put_in_queue(Cache& cache, SizeClass c, void* block) {
  void**& top = cache.quarantine.top[c];
  if (top == cache.quarantine.end[c]) return put_in_full_queue(cache, c, block);
  *top = block;
  advance_in_order(top, top);
}

void put_in_full_queue(Cache& cache, SizeClass c, void* block) {
  Changing changing(cache, c);
  const Queue& queue = cache.quarantine.queues[c];
  if (queue.base == nullptr && !begin_queue(cache, c)) return give_to_class(cache, c, &block, 1);
  void**& top = cache.quarantine.top[c];
  FREESTONE_CHECK("QUEUE-1", queue.base <= top && top <= queue.end());
  if (top == queue.end()) enter(cache, c);
  *top = block;
  advance_in_order(top, top);
}

void empty_quarantine(Cache& cache, Cache* heir) {
  if constexpr (!kMitigations.quarantine) return;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) {
    Queue& queue = cache.quarantine.queues[c];
    if (queue.base == nullptr) continue;
    Changing changing(cache, c);
    const Queue emptied = queue;
    void** const top = cache.quarantine.top[c];
    forget_queue(cache, c);
    void** out = emptied.base;
    const auto let_go = [&](void* block) {
      if (block != nullptr && heir != nullptr) return put_in_queue(*heir, c, block);
      if (block != nullptr) *out++ = block;
    };
    for (void** from = emptied.base; from != top; ++from) let_go(*from);
    for (void** from = emptied.end(); from != emptied.behind(); ++from) let_go(*from);
    if (out != emptied.base) return_blocks(c, cache.user, emptied.base, static_cast<unsigned>(out - emptied.base));
    return_metadata(emptied.base, queue_bytes(emptied));
  }
}

void forget_queue(Cache& cache, SizeClass c) {
  if constexpr (!kMitigations.quarantine) return;
  if (!is_slab_class(c)) return;
  cache.quarantine.queues[c].base = nullptr;
  order_stores();  // QUEUE-2
  cache.quarantine.queues[c] = {};
  cache.quarantine.top[c] = cache.quarantine.end[c] = nullptr;
}

void flush_all(Cache& cache) {
  empty_quarantine(cache, nullptr);
  flush_arrays(cache);
}

}  // namespace freestone
