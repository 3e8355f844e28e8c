// Room 8, cache: see arrays.h.

#include "cache/arrays.h"

#include <cstring>

#include "base/check.h"
#include "cache/transfer.h"
#include "config/options.h"
#include "region/metadata.h"
#include "slab/class_run.h"

namespace freestone {

constinit Atomic<u32> looks_made;

namespace {

// The metadata room rounds to powers of two: a capacity between two of them needs no new array.
usize array_bytes(unsigned capacity) { return max_of<usize>(kMetadataPieceMin, (1 + usize{capacity}) * sizeof(void*)); }

void** take_array(unsigned capacity) {
  auto** piece = static_cast<void**>(take_metadata(array_bytes(capacity)));
  return piece != nullptr ? piece + 1 : nullptr;
}
void return_array(void** array, unsigned capacity) { return_metadata(array - 1, array_bytes(capacity)); }

void set_capacity(Cache& cache, SizeClass c, unsigned capacity) {
  const usize change = (usize{capacity} - cache.capacity(c)) * class_info(c).bytes;  // modulo 2^64
  cache.capacity_bytes += change;
  all_capacity_bytes.add_relaxed(change);
  cache.base[c][-1] = reinterpret_cast<void*>(usize{capacity});
  cache.high[c] = cache.base[c] + capacity;
  FREESTONE_CHECK("CACHE-3", static_cast<std::ptrdiff_t>(change) <= 0 || cache.capacity_bytes <= options.cache_bytes);
}

// A single thread gains nothing.
bool uses_transfer(SizeClass c) { return kHandsBlocksOn && is_slab_class(c) && caches_in_use.load_relaxed() > 1; }

// Gives the array of a class another size, at least its count, unless memory is out. Returns its capacity.
FREESTONE_APART unsigned exchange_array(Cache& cache, SizeClass c, unsigned capacity) {
  const unsigned old = cache.capacity(c);
  if (old == 0 || array_bytes(capacity) != array_bytes(old)) {
    void** array = take_array(capacity);
    if (array == nullptr) return old;
    void** old_array = cache.base[c];
    const usize count = cache.count(c);
    const usize low = static_cast<usize>(cache.low[c] - old_array);
    if (count > 0) std::memcpy(array, old_array, count * sizeof(void*));
    array[-1] = reinterpret_cast<void*>(usize{old});  // CACHE-4
    cache.base[c] = array;
    cache.low[c] = array + low;
    cache.top[c] = array + count;
    if (old > 0) return_array(old_array, old);
  }
  set_capacity(cache, c, capacity);
  return capacity;
}

// No bitmap offers them.
[[maybe_unused]] bool are_in_use(SizeClass c, void* const* blocks, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (is_slab_class(c) ? place_in_slab(c, blocks[i]) != SlabPlace::used_block
                         : address_of(blocks[i]) % kUnitBytes != 0)
      return false;
  }
  return true;
}

}  // namespace

void return_class_blocks(SizeClass c, SlabUser& user, void* const* blocks, unsigned count, bool wanted) {
  if (!is_slab_class(c)) return return_class_runs(c, user.shard, blocks, count, wanted);
  const unsigned given = wanted && uses_transfer(c) ? give_to_transfer(c, user.shard, blocks, count) : 0;
  if (given < count) return_blocks(c, user, blocks + given, count - given);
}

void* take_class_block(SizeClass c, SlabUser& user) {
  bool zeroed;
  if (!is_slab_class(c)) return take_class_run(c, user.shard, zeroed);
  void* blocks[8];  // the rest for the next calls of any thread
  const bool shares = uses_transfer(c);
  if (shares && take_from_transfer(c, user.shard, 1, blocks) == 1) return blocks[0];
  const unsigned most = shares ? min_of<unsigned>(class_info(c).batch, sizeof blocks / sizeof *blocks) : 1;
  const unsigned got = take_blocks(c, user, 1, most, blocks);
  if (got > 1) return_class_blocks(c, user, blocks, got - 1, true);
  return got != 0 ? blocks[got - 1] : nullptr;
}

usize class_blocks_outside(SizeClass size_class) {
  return is_slab_class(size_class) ? blocks_outside(size_class) : class_runs_outside(size_class);
}

void flush(Cache& cache, SizeClass c, unsigned count, bool wanted) {
  if (count == 0) return;
  void** base = cache.base[c];
  const unsigned left = cache.count(c) - count;
  return_class_blocks(c, cache.user, base, count, wanted);
  if (left != 0) std::memmove(base, base + count, left * sizeof(void*));
  cache.top[c] = base + left;
  const auto low = static_cast<unsigned>(cache.low[c] - base);
  cache.low[c] = base + (low > count ? low - count : 0);
}

void drop_array(Cache& cache, SizeClass c) {
  const unsigned capacity = cache.capacity(c);
  if (capacity == 0) return;
  void** array = cache.base[c];
  set_capacity(cache, c, 0);
  cache.base[c] = cache.low[c] = cache.top[c] = cache.high[c] = nullptr;
  return_array(array, capacity);
}

void shrink_to(Cache& cache, SizeClass c, unsigned capacity) {
  if (cache.count(c) > capacity) flush(cache, c, cache.count(c) - capacity);
  if (capacity == 0) {
    drop_array(cache, c);
  } else {
    exchange_array(cache, c, capacity);
  }
}

unsigned grow(Cache& cache, SizeClass c, bool full) {
  const ClassInfo& info = class_info(c);
  const unsigned old = cache.capacity(c);
  cache.misses[c].note(full, uses_transfer(c));
  const unsigned wanted = old == 0 ? first_capacity(info) : min_of<unsigned>(old * 2 + 1, info.cap_max);
  if (wanted <= old) return old;
  const bool fits = fits_budget(cache.capacity_bytes, usize{wanted - old} * info.bytes, cache.needs(c, wanted));
  return fits ? exchange_array(cache, c, wanted) : old;
}

unsigned refill(Cache& cache, SizeClass c, unsigned room) {
  unsigned got = 0;
  if (!is_slab_class(c)) {
    got = take_class_runs(c, cache.user.shard, cache.capacity(c) - cache.count(c), cache.top[c]);
  } else {
    if (uses_transfer(c)) got = take_from_transfer(c, cache.user.shard, room, cache.top[c]);
    if (got == 0) got = take_blocks(c, cache.user, min_of<unsigned>(class_info(c).batch, room), room, cache.top[c]);
  }
  FREESTONE_CHECK("CACHE-2", are_in_use(c, cache.top[c], got));
  cache.low[c] = cache.base[c];
  cache.top[c] += got;
  return got;
}

void give_to_class(Cache& cache, SizeClass c, void* const* blocks, unsigned count) {
  const auto room = [&] {
    const unsigned left = cache.capacity(c) - cache.count(c);
    return left - min_of(left, kept_for_counting(cache, c));
  };
  while (room() < count) {
    if (const unsigned before = cache.capacity(c); grow(cache, c, true) == before) break;
  }
  // The oldest go first: each block meets its slab, which looks at it.
  if (room() < count) flush(cache, c, min_of(max_of(count - room(), cache.count(c) / 2), cache.count(c)), true);
  const unsigned given = min_of(room(), count);
  if (given > 0) std::memcpy(cache.top[c], blocks, given * sizeof(void*));
  cache.top[c] += given;
  if (given < count) return_class_blocks(c, cache.user, blocks + given, count - given, true);
}

void flush_arrays(Cache& cache) {
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (cache.base[c] == nullptr) continue;
    Changing changing(cache, c);
    flush(cache, c, cache.count(c));
    drop_array(cache, c);
  }
  release_held_run(cache.run);
}

bool was_just_freed_counted(const Cache& cache, SizeClass c, const void* block) {
  // Of an open class, places below the border may hold what was handed out since.
  void* const* from = c < kCountedClassEnd ? cache.counting->of[c].border : nullptr;
  if (from == nullptr) from = cache.base[c];
  void* const* const top = cache.top[c];
  for (void* const* place = top - min_of<usize>(static_cast<usize>(top - from), kRunPlaces); place != top; ++place) {
    if (FREESTONE_UNLIKELY(*place == block)) return true;
  }
  return false;
}

FREESTONE_SLOW bool cache_is_valid(const Cache& cache) {
  usize bytes = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    if (!is_ordered(cache, c) || cache.capacity(c) > class_info(c).cap_max) return false;
    bytes += usize{cache.capacity(c)} * class_info(c).bytes;
  }
  return bytes == cache.capacity_bytes;
}

}  // namespace freestone
