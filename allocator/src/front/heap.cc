// Room 9, front: the slow paths of malloc and free.

#include "front/heap.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "front/hardened.h"
#include "front/large.h"
#include "front/reclaim.h"
#include "front/sampled.h"
#include "platform/message.h"
#include "region/account.h"
#include "span/mapping.h"
#include "span/run.h"
#include "span/span_heap.h"

namespace freestone {

constinit Cache no_cache;
FREESTONE_THREAD_LOCAL ThreadState this_thread;

namespace {

void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

// For threads without a cache. The shard of the main thread is as good as any.
void* take_without_cache(SizeClass size_class) {
  SlabUser user;
  return take_one(size_class, user);
}

void return_without_cache(SizeClass size_class, void* block) {
  SlabUser user;
  return_one(size_class, user, block);
}

void* allocate_class(SizeClass size_class, usize bytes, usize alignment) {
  Cache* cache = ensure_cache();
  bool track = false;
  if (cache != nullptr && FREESTONE_UNLIKELY(sample_observer.load_relaxed() != nullptr)) {
    if (void* block = sample_allocation(*cache, size_class, bytes, alignment, &track); block != nullptr) return block;
  }
  void* block = cache != nullptr ? pop_slow(*cache, size_class) : take_without_cache(size_class);
  for (unsigned attempt = 0; FREESTONE_UNLIKELY(block == nullptr) && reclaim_memory(bytes, attempt); ++attempt) {
    block = cache != nullptr ? pop_slow(*cache, size_class) : take_without_cache(size_class);
  }
  if (block == nullptr) return out_of_memory();
  if (FREESTONE_UNLIKELY(track)) sample_observer.load_acquire()->placed(block, request_of(bytes));
  return block;
}

void* allocate_above_classes(usize bytes, usize alignment, bool* zeroed) {
  if (bytes > PTRDIFF_MAX) return out_of_memory();
  Cache* cache = ensure_cache();
  bool track = false;
  if (cache != nullptr && FREESTONE_UNLIKELY(sample_observer.load_relaxed() != nullptr)) {
    if (zeroed != nullptr) *zeroed = false;
    if (void* block = sample_allocation(*cache, 0, bytes, alignment, &track); block != nullptr) return block;
  }
  void* block = allocate_large(bytes, alignment, zeroed);
  for (unsigned attempt = 0; FREESTONE_UNLIKELY(block == nullptr) && reclaim_memory(bytes, attempt); ++attempt) {
    block = allocate_large(bytes, alignment, zeroed);
  }
  attend();
  if (block == nullptr) return out_of_memory();
  if (FREESTONE_UNLIKELY(track)) sample_observer.load_acquire()->placed(block, request_of(bytes));
  return block;
}

// A block of which the memory is known to be zero, when one can be had for less than clearing costs: null otherwise.
void* allocate_known_zero(SizeClass size_class, usize bytes) {
  constexpr usize kWorthIt = 2 * kKiB;  // below, clearing is cheaper than looking
  const ClassInfo& info = class_info(size_class);
  if (info.bytes < kWorthIt) return nullptr;
  Cache* cache = ensure_cache();
  if (cache == nullptr || cache->top[size_class] != cache->base[size_class]) return nullptr;  // a used block is at hand
  if (cache->counting != nullptr && sample_is_near(*cache, bytes)) return nullptr;
  void* block = nullptr;
  bool zeroed = true;
  if (!is_slab_class(size_class)) {
    block = take_class_run(size_class, 1, zeroed);
  } else if (info.blocks <= 64) {
    block = take_zeroed_block(size_class, cache->user);
  }
  if (block != nullptr && !zeroed) std::memset(block, 0, info.bytes);
  if (block != nullptr && cache->counting != nullptr) count_unsampled(*cache, bytes);
  return block;
}

// What the tag of an address says, with the address checked as far as costs nothing on this path.
struct Found {
  enum class Kind : u8 { class_block, run, mapping, sampled, none } kind = Kind::none;
  SizeClass size_class = 0;
};

Found find_block(const void* block) {
  if (!in_window(block)) return {mapped_block_bytes(block) != 0 ? Found::Kind::mapping : Found::Kind::none, 0};
  const u8 tag = tag_of(unit_of(block));
  if (is_nothing(tag)) return {};
  if (tag <= kLastSmallClass) return {block_start(tag, block) == block ? Found::Kind::class_block : Found::Kind::none, tag};
  const bool at_start = address_of(block) % kUnitBytes == 0;
  if (const SizeClass c = class_at(unit_of(block)); c != 0 && at_start) return {Found::Kind::class_block, c};
  if (tag == kTagRun && at_start) return {Found::Kind::run, 0};
  if (tag == kTagSampled && sampled_block(sampled_first_unit(block)) == block) return {Found::Kind::sampled, 0};
  return {};
}

[[noreturn]] void fail_invalid(const char* call, const void* block) {
  if (const SampleObserver* observer = sample_observer.load_acquire(); observer != nullptr) observer->misused(call, block);
  if (!in_window(block)) fail(call, block, "the address is not from this allocator");
  const u8 tag = tag_of(unit_of(block));
  fail(call, block, is_nothing(tag) ? "nothing is allocated there" : "the address is not the start of a block");
}

// Ends the program when the block is seen to be free, as far as that costs a few loads; the hardened build knows from the trailer.
void expect_live(const char* call, const Found& found, const void* block) {
  if constexpr (kMitigations.trailer) return;
  if (found.kind != Found::Kind::class_block) return;
  const bool has_cache = this_thread.cache_offset != 0;
  if (FREESTONE_UNLIKELY(has_cache && was_just_freed(thread_cache(), found.size_class, block))) fail_block(call, block, class_info(found.size_class).bytes);
}
// A free of a run of a class, which the fast path leaves alone so that it can be checked. False when more is to be done.
bool push_checked(SizeClass c, void* block) {
  Cache& cache = thread_cache();
  void** const top = cache.top[c];
  if (top == cache.high[c] || was_just_freed(cache, c, block)) return false;
  cache.push(c, top, block);
  return true;
}
void expect_not_in_slab(const char* call, const Found& found, const void* block) {
  if constexpr (kMitigations.trailer) return;
  if (found.kind != Found::Kind::class_block || !is_slab_class(found.size_class)) return;
  if (FREESTONE_UNLIKELY(is_block_free(found.size_class, block))) fail_block(call, block, class_info(found.size_class).bytes);
}

}  // namespace

void* allocate_slow(usize bytes) {
  if (void* block = pop_unsampled(bytes); block != nullptr) return block;
  if (is_kept_run(bytes) && sample_observer.load_relaxed() == nullptr) {
    if (const UnitIndex first = thread_cache().run.take(bytes_to_units(bytes)); first != kNoUnit) return unit_address(first);
  }
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active)) return current == Mode::disabled ? passthrough_malloc(bytes) : out_of_memory();
  if (bytes > kCachedBytesMax) return allocate_above_classes(bytes, 1, nullptr);
  return allocate_class(class_of(bytes), bytes, 1);
}

void deallocate_slow(void* block) {
  if (block == nullptr) return;
  if (push_unsampled(block)) return;
  if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_free(block);
  if (in_window(block) && address_of(block) % kUnitBytes == 0) {
    const UnitIndex unit = unit_of(block);
    const u8 tag = tag_of(unit);
    if (tag == kTagClassRun && push_checked(record_of(unit).size_class, block)) return;
    if (tag == kTagRun) {
      sample_freed(block);
      return deallocate_run(block);
    }
  }
  const Found found = find_block(block);
  switch (found.kind) {
    case Found::Kind::class_block:
      if (FREESTONE_UNLIKELY(sampling.load_relaxed() == Sampling::every_block)) sample_freed(block);
      expect_live("double free", found, block);
      if (Cache* cache = ensure_cache(); cache == nullptr) {
        return_without_cache(found.size_class, block);
      } else if (cache->top[found.size_class] != cache->high[found.size_class]) {
        cache->push(found.size_class, cache->top[found.size_class], block);
      } else {
        push_slow(*cache, found.size_class, block);
      }
      return;
    case Found::Kind::mapping:
      sample_freed(block);
      if (unmap_block(block)) return;
      break;  // another thread freed it between the two looks
    case Found::Kind::sampled:
      note_sampled_freed(sampled_first_unit(block));
      return sample_observer.load_acquire()->deallocate(block, sampled_first_unit(block));
    case Found::Kind::run:
    case Found::Kind::none: break;
  }
  fail_invalid("invalid free", block);
}

void* allocate_zeroed(usize bytes) {
  if (bytes > kGranuleTableBytes) return allocate_zeroed_slow(bytes);
  void* block = allocate(bytes);
  if (FREESTONE_LIKELY(block != nullptr)) std::memset(block, 0, bytes);
  return block;
}

void* allocate_zeroed_slow(usize bytes) {
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active)) return current == Mode::disabled ? passthrough_calloc(bytes) : out_of_memory();
  if (bytes > kCachedBytesMax) {
    bool zeroed = false;
    void* block = allocate_above_classes(bytes, 1, &zeroed);
    if (block != nullptr && !zeroed) std::memset(block, 0, request_of(bytes));
    return block;
  }
  if (void* block = allocate_known_zero(class_of(bytes), bytes); block != nullptr) return block;
  void* block = allocate(bytes);
  if (FREESTONE_LIKELY(block != nullptr)) std::memset(block, 0, request_of(bytes));
  return block;
}

void* allocate_aligned(usize bytes, usize alignment) {
  if (alignment <= kGranule) return allocate(bytes);
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active)) return current == Mode::disabled ? passthrough_aligned(bytes, alignment) : out_of_memory();
  if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return out_of_memory();
  const usize wanted = max_of<usize>(bytes, 1);
  if (wanted <= kSmallBytesMax && alignment <= kUnitBytes) {
    const SizeClass size_class = class_of_aligned(wanted, alignment);
    if (is_slab_class(size_class)) return allocate_class(size_class, wanted, alignment);
  }
  if (wanted <= kCachedBytesMax && alignment <= kUnitBytes) return allocate_class(class_of(max_of(wanted, kSmallBytesMax + 1)), wanted, alignment);
  return allocate_above_classes(wanted, alignment, nullptr);
}

void* reallocate(void* block, usize bytes) {
  if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_realloc(block, bytes);
  const Found found = find_block(block);
  expect_live("realloc after free", found, block);
  usize old_bytes = 0;
  switch (found.kind) {
    case Found::Kind::class_block:
      old_bytes = class_info(found.size_class).bytes;
      // In place while at least half of the block stays in use.
      if (bytes <= old_bytes && bytes >= old_bytes / 2) return block;
      if (!is_slab_class(found.size_class) && sampling.load_relaxed() == Sampling::off && resize_class_run(block, found.size_class, bytes)) return block;
      break;
    case Found::Kind::run:
    case Found::Kind::mapping:
      old_bytes = found.kind == Found::Kind::run ? run_bytes(block) : mapped_block_bytes(block);
      if (bytes > PTRDIFF_MAX) return out_of_memory();
      sample_freed(block);  // before its address can belong to another block
      if (void* resized = resize_large(block, old_bytes, bytes, found.kind == Found::Kind::mapping); resized != nullptr) {
        sample_resized(resized, bytes);
        return resized;
      }
      break;
    case Found::Kind::sampled:
      old_bytes = sampled_bytes(sampled_first_unit(block));
      break;
    case Found::Kind::none: fail_invalid("invalid realloc", block);
  }
  expect_not_in_slab("realloc after free", found, block);
  void* moved = allocate_for_growth(old_bytes, bytes);
  if (moved == nullptr) return bytes <= old_bytes ? block : out_of_memory();
  std::memcpy(moved, block, min_of(old_bytes, bytes));
  deallocate(block);
  return moved;
}

usize usable_bytes(const void* block) {
  if (block == nullptr) return 0;
  if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_usable_size(block);
  const Found found = find_block(block);
  expect_live("malloc_usable_size after free", found, block);
  switch (found.kind) {
    case Found::Kind::class_block: return class_info(found.size_class).bytes;
    case Found::Kind::run: return run_bytes(block);
    case Found::Kind::mapping: return mapped_block_bytes(block);
    case Found::Kind::sampled: return sampled_bytes(sampled_first_unit(block));
    case Found::Kind::none: break;
  }
  fail_invalid("invalid malloc_usable_size", block);
}

usize good_size(usize bytes) {
  const usize taken = bytes + kHeldBackBytes;
  if (taken < bytes) return bytes;
  return (taken <= kCachedBytesMax ? class_info(class_of(taken)).bytes : large_good_size(taken)) - kHeldBackBytes;
}

bool trim(usize keep_bytes) {
  if (ensure_started() != Mode::active) return false;
  usize given = 0;
  hardened::release_all_sealed();
  flush_runs();
  if (Cache* cache = ensure_cache(); cache != nullptr) {
    flush_all(*cache);
    given += purge_slabs(cache->user);
  }
  given += purge_spans(keep_bytes);
  return given > 0;
}

}  // namespace freestone
