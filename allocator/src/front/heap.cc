// Room 9, front: the slow paths of malloc and free.

#include "front/heap.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/stack_need.h"
#include "cache/arrays.h"
#include "cache/registry.h"
#include "cache/quarantine.h"
#include "cache/slow.h"
#include "config/heuristics.h"
#include "front/hardening.h"
#include "front/large.h"
#include "front/passthrough.h"
#include "front/reclaim.h"
#include "front/sampled.h"
#include "platform/message.h"
#include "region/account.h"
#include "slab/class_run.h"
#include "slab/ground.h"
#include "span/mapping.h"
#include "span/purge.h"
#include "span/run.h"

namespace freestone {

constinit TrustedBytes trusted_bytes;

namespace {

void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

// A block whose memory is zero, when finding one costs less than clearing; null otherwise.
void* take_known_zero(Cache& cache, SizeClass size_class) {
  const ClassInfo& info = class_info(size_class);
  const bool has_used = cache.top[size_class] != cache.base[size_class];
  if (info.bytes < kKnownZeroFromBytes || has_used) return nullptr;
  if (is_slab_class(size_class)) return info.blocks <= 64 ? take_zeroed_block(size_class, cache.user) : nullptr;
  bool zeroed = true;
  void* block = take_class_run(size_class, cache.user.shard, zeroed);
  if (block != nullptr && !zeroed) std::memset(block, 0, info.bytes);
  return block;
}

// Another block of the class in place of one on ground, at an alignment that divides the size.
FREESTONE_APART void* exchange_aligned(void* block, SizeClass size_class) {
  deallocate(block);
  Seated seated;
  void* aligned = nullptr;
  return take_blocks(size_class, seated.user(), 1, 1, &aligned, BlockPlace::slab) == 1 ? aligned : nullptr;
}

}  // namespace

void* allocate_class(SizeClass size_class, usize bytes, usize alignment, bool* zeroed) {
  Cache* cache = ensure_cache();
  bool track = false;
  if (cache != nullptr && FREESTONE_UNLIKELY(cache->recalled.load_relaxed() != 0)) {
    renew_counting(*cache);
    attend();  // another process may have recalled it, to ask something
  }
  if (cache != nullptr && FREESTONE_UNLIKELY(sample_observer.load_relaxed() != nullptr)) {
    if (void* block = sample_allocation(*cache, size_class, bytes, alignment, &track); block != nullptr) return block;
  }
  void* block = zeroed != nullptr && cache != nullptr ? take_known_zero(*cache, size_class) : nullptr;
  if (zeroed != nullptr) *zeroed = block != nullptr;
  const auto pop_of = [=](SizeClass c) {
    return cache != nullptr ? pop_slow(*cache, c) : take_one(c, this_thread.random);
  };
  const auto pop = [=]() -> void* {
    constexpr SizeClass kShortestRun = class_of(kSmallBytesMax + 1);
    void* const popped = pop_of(size_class);
    // Where no slab fits, a run may; the hardened build finds a block's end by its size.
    const bool fits_better = !kChecksEveryCall && class_info(size_class).units > class_info(kShortestRun).units;
    void* const found = popped != nullptr || !is_slab_class(size_class) || !fits_better ? popped : pop_of(kShortestRun);
    const bool fits = !kSharesGround || (address_of(found) & (alignment - 1)) == 0;
    return FREESTONE_LIKELY(fits) ? found : exchange_aligned(found, size_class);
  };
  if (block == nullptr) block = pop();
  for (Shortage shortage; FREESTONE_UNLIKELY(block == nullptr) && reclaim_memory(bytes, shortage);) block = pop();
  if (block == nullptr) return out_of_memory();
  if (FREESTONE_UNLIKELY(track)) sample_observer.load_acquire()->placed(block, request_of(bytes));
  return block;
}

namespace {

void* allocate_above_classes(usize bytes, usize alignment, bool* zeroed) {
  if (bytes > PTRDIFF_MAX) return out_of_memory();
  Cache* cache = ensure_cache();
  bool track = false;
  if (cache != nullptr && FREESTONE_UNLIKELY(sample_observer.load_relaxed() != nullptr)) {
    if (zeroed != nullptr) *zeroed = false;
    if (void* block = sample_allocation(*cache, 0, bytes, alignment, &track); block != nullptr) return block;
  }
  void* block = allocate_large(bytes, alignment, zeroed);
  for (Shortage shortage; FREESTONE_UNLIKELY(block == nullptr) && reclaim_memory(bytes, shortage);)
    block = allocate_large(bytes, alignment, zeroed);
  attend();
  if (block == nullptr) return out_of_memory();
  if (FREESTONE_UNLIKELY(track)) sample_observer.load_acquire()->placed(block, request_of(bytes));
  return block;
}

void tell_misused(const char* call, const void* block) {
  if (const SampleObserver* observer = sample_observer.load_acquire(); observer != nullptr)
    observer->misused(call, block);
}
[[noreturn]] FREESTONE_SLOW void fail_inside(const char* call, SizeClass size_class, const void* block) {
  tell_misused(call, block);
  fail_block(call, block, facts_inside(size_class, block));
}
[[noreturn]] FREESTONE_SLOW void fail_invalid(const char* call, const void* block) {
  tell_misused(call, block);
  if (!in_window(block)) fail(call, block, "the address is not from this allocator");
  fail(call, block,
       is_nothing(tag_of(unit_of(block))) ? "nothing is allocated there" : "the address is not the start of a block");
}

bool starts_unit(const void* block) { return address_of(block) % kUnitBytes == 0; }

// Fails if the block is among those that the thread freed last. In the hardened build the trailer tells.
FREESTONE_INLINE void expect_live(const char* call, SizeClass size_class, const void* block) {
  if constexpr (kChecksEveryCall) return;
  if (FREESTONE_UNLIKELY(was_just_freed(thread_cache(), size_class, block)))
    fail_block(call, block, class_info(size_class).bytes);
}

// Frees of each kind of block: check it, tell an observer, give it back.

// The block is in use, or in a cache.
FREESTONE_APART void deallocate_used(SizeClass size_class, void* block) {
  expect_live("double free", size_class, block);
  if (FREESTONE_UNLIKELY(sampling.load_relaxed() == Sampling::every_block)) sample_freed(block);
  Cache* cache = cache_for_free();
  if (cache == nullptr) return return_one(size_class, block);
  void** const top = cache->top[size_class];
  if (top == cache->high[size_class] && !raise_mark(*cache, size_class, 1)) return push_slow(*cache, size_class, block);
  cache->push(size_class, top, block);
}

FREESTONE_APART void deallocate_class_block(SizeClass size_class, void* block) {
  if (push_unsampled(size_class, block)) return;
  if (is_slab_class(size_class)) {
    const SlabPlace place = place_in_slab(size_class, block);
    if (FREESTONE_UNLIKELY(place == SlabPlace::no_block)) fail_inside("invalid free", size_class, block);
    if (FREESTONE_UNLIKELY(place == SlabPlace::free_block))
      fail_block("double free", block, class_info(size_class).bytes);
  } else if (!starts_unit(block)) {
    fail_invalid("invalid free", block);
  }
  deallocate_used(size_class, block);
}

// Class runs have no bitmap that would show a second free, so each free looks at those in the thread's cache.
FREESTONE_APART void deallocate_class_run(void* block) {
  const SizeClass size_class = record_of(unit_of(block)).size_class;
  Cache& cache = thread_cache();
  void** const top = cache.top[size_class];
  // No call here: so the function needs no stack frame.
  bool usual = cache.counting == nullptr && starts_unit(block) && top != cache.high[size_class];
  for (void* const* place = cache.base[size_class]; usual && place != top; ++place) usual = *place != block;
  if (FREESTONE_UNLIKELY(!usual)) return deallocate_class_block(size_class, block);
  cache.push(size_class, top, block);
}

FREESTONE_APART void deallocate_other_run(void* block) {
  sample_freed(block);
  deallocate_run(block);
}

FREESTONE_APART void deallocate_checked_run(void* block) {
  if (!starts_unit(block)) fail_invalid("invalid free", block);
  Cache& cache = thread_cache();
  const UnitIndex first = unit_of(block);
  Record& record = record_of(first);
  const usize bytes = units_to_bytes(record.run_units);
  // may_hold_run would say yes to a thread without a cache, which can hold no run.
  const bool usual = is_kept_run(bytes) && cache.run.units.load_relaxed() == 0 && may_hold_run(bytes) && has_cache();
  if (FREESTONE_LIKELY(usual) && sample_observer.load_acquire() == nullptr) return cache.run.put(first, record);
  deallocate_other_run(block);
}

FREESTONE_APART void deallocate_on_ground(void* block) {
  const SizeClass size_class = class_on_ground(block);
  if (FREESTONE_UNLIKELY(size_class == 0)) fail_invalid("invalid free", block);
  Cache& cache = thread_cache();
  void** const top = cache.top[size_class];
  if (FREESTONE_UNLIKELY(cache.counting != nullptr)) return deallocate_class_block(size_class, block);
  if (FREESTONE_LIKELY(top != cache.high[size_class] && top[-1] != block)) return cache.push(size_class, top, block);
  deallocate_used(size_class, block);
}

FREESTONE_APART void deallocate_sampled(void* block) {
  const UnitIndex first = sampled_first_unit(block);
  if (sampled_block(first) != block) fail_invalid("invalid free", block);
  note_sampled_freed(first);
  sample_observer.load_acquire()->deallocate(block, first);
}

// Moves the block's contents, as far as they fit, into what `find` allocates. A block that shrinks stays where it is if
// that is null, with the errno from before.
template <typename Find>
FREESTONE_INLINE void* move_to(Find find, void* block, usize old_bytes, usize bytes) {
  const int before = errno;
  void* const moved = find();
  if (FREESTONE_UNLIKELY(moved == nullptr)) {
    if (bytes > old_bytes) return out_of_memory();
    errno = before;
    return block;
  }
  std::memcpy(moved, block, min_of(old_bytes, bytes));
  deallocate(block);
  return moved;
}

FREESTONE_APART void* move(void* block, usize old_bytes, usize bytes) {
  return move_to([bytes] { return allocate(bytes); }, block, old_bytes, bytes);
}

// Reallocs of each kind of block.

void* reallocate_slab_block(SizeClass size_class, void* block, usize bytes) {
  const SlabPlace place = place_in_slab(size_class, block);
  if (FREESTONE_UNLIKELY(place == SlabPlace::no_block)) fail_inside("invalid realloc", size_class, block);
  expect_live("realloc after free", size_class, block);
  const usize old_bytes = class_info(size_class).bytes;
  if (!kChecksEveryCall && FREESTONE_UNLIKELY(place == SlabPlace::free_block))
    fail_block("realloc after free", block, old_bytes);
  if constexpr (!kChecksEveryCall) trusted_bytes.checked(size_class);
  if (stays_in(old_bytes, bytes)) return block;
  return move(block, old_bytes, bytes);
}

FREESTONE_APART void* reallocate_class_run(void* block, usize bytes) {
  need_stack();
  const SizeClass size_class = class_at(unit_of(block));
  if (FREESTONE_UNLIKELY(!starts_unit(block))) fail_invalid("invalid realloc", block);
  expect_live("realloc after free", size_class, block);
  const usize old_bytes = class_info(size_class).bytes;
  if (stays_in(old_bytes, bytes)) return block;
  if (sampling.load_relaxed() == Sampling::off && resize_class_run(block, size_class, bytes)) return block;
  return move(block, old_bytes, bytes);
}

// A run, or a mapping of its own.
FREESTONE_APART void* reallocate_large(void* block, usize old_bytes, usize bytes, bool is_mapping) {
  need_stack();
  if (bytes > PTRDIFF_MAX) return out_of_memory();
  sample_freed(block);  // first: afterwards the address may belong to another block
  if (void* const resized = resize_large(block, old_bytes, bytes, is_mapping); resized != nullptr) {
    sample_resized(resized, bytes);
    return resized;
  }
  const auto allocate_new = [=] {
    void* const roomy = place_for_growth(old_bytes, bytes);
    return roomy != nullptr ? roomy : allocate(bytes);
  };
  return move_to(allocate_new, block, old_bytes, bytes);
}

FREESTONE_APART void* reallocate_sampled(void* block, usize bytes) {
  const UnitIndex first = sampled_first_unit(block);
  if (sampled_block(first) != block) fail_invalid("invalid realloc", block);
  return move(block, sampled_bytes(first), bytes);
}

FREESTONE_APART void* reallocate_outside(void* block, usize bytes) {
  if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_realloc(block, bytes);
  const usize old_bytes = mapped_block_bytes(block);
  if (old_bytes == 0) fail_invalid("invalid realloc", block);
  return reallocate_large(block, old_bytes, bytes, true);
}

}  // namespace

void* allocate_slow(usize bytes) {
  need_stack();
  Cache& cache = thread_cache();
  const bool observed = sample_observer.load_relaxed() != nullptr || cache.recalled.load_relaxed() != 0;
  if (bytes <= kCachedBytesMax && !observed && has_cache()) {
    if (void* block = pop_slow(cache, class_of(bytes)); FREESTONE_LIKELY(block != nullptr)) return block;
  }
  if (is_kept_run(bytes) && sample_observer.load_relaxed() == nullptr) {
    if (const UnitIndex first = cache.run.take(bytes_to_units(bytes)); first != kNoUnit) return unit_address(first);
  }
  if (void* block = pop_unsampled(bytes); block != nullptr) return block;
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active))
    return current == Mode::disabled ? passthrough_malloc(bytes) : out_of_memory();
  if (bytes > kCachedBytesMax) return allocate_above_classes(bytes, 1, nullptr);
  return allocate_class(class_of(bytes), bytes, 1);
}

void deallocate_outside(void* block) noexcept {
  need_stack();
  if (block == nullptr) return;
  if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_free(block);
  if (mapped_block_bytes(block) == 0) fail_invalid("invalid free", block);
  sample_freed(block);
  if (!unmap_block(block)) fail_invalid("invalid free", block);  // another thread freed it between the two looks
}

void deallocate_slow(void* block, usize tag) noexcept {
  need_stack();
  if (kSharesGround && tag == kTagGround) return deallocate_on_ground(block);
  if (tag == kTagClassRun) return deallocate_class_run(block);
  if (tag == kTagRun) return deallocate_checked_run(block);
  switch (tag) {
    case kTagSampled:
      return deallocate_sampled(block);
    case kTagForeign:
      return deallocate_outside(block);
    case kTagHeapObject:
      if (arena_calls.holds(block)) return arena_calls.deallocate(block);
      [[fallthrough]];
    case kTagNone:
    case kTagGuard:
    case kTagInside:
      fail_invalid("invalid free", block);
    default:
      return deallocate_class_block(static_cast<SizeClass>(tag), block);
  }
}

void* allocate_zeroed_slow(usize bytes) {
  need_stack();
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active))
    return current == Mode::disabled ? passthrough_calloc(bytes) : out_of_memory();
  bool zeroed = false;
  void* block = pop_unsampled(bytes);
  if (block == nullptr) {
    block = bytes > kCachedBytesMax ? allocate_above_classes(bytes, 1, &zeroed)
                                    : allocate_class(class_of(bytes), bytes, 1, &zeroed);
  }
  return block == nullptr || zeroed ? block : std::memset(block, 0, request_of(bytes));
}

void* allocate_aligned_slow(usize bytes, usize alignment) {
  need_stack();
  if (alignment <= kGranule) return allocate(bytes);
  const Mode current = ensure_started();
  if (FREESTONE_UNLIKELY(current != Mode::active))
    return current == Mode::disabled ? passthrough_aligned(bytes, alignment) : out_of_memory();
  if (bytes > PTRDIFF_MAX || alignment > PTRDIFF_MAX) return out_of_memory();
  const usize wanted = max_of<usize>(bytes, 1);
  if (wanted <= kSmallBytesMax && alignment <= kUnitBytes) {
    const SizeClass size_class = class_of_aligned(wanted, alignment);
    if (is_slab_class(size_class)) return allocate_class(size_class, wanted, alignment);
  }
  if (wanted <= kCachedBytesMax && alignment <= kUnitBytes)
    return allocate_class(class_of(max_of(wanted, kSmallBytesMax + 1)), wanted, alignment);
  return allocate_above_classes(wanted, alignment, nullptr);
}

void* reallocate(void* block, usize bytes) {
  if (!in_window(block)) return reallocate_outside(block, bytes);
  const u8 tag = tag_of_block(block);
  if (tag != kTagNone && tag <= kLastSmallClass) return reallocate_slab_block(tag, block, bytes);
  switch (tag) {
    case kTagGround:
      fail_invalid("invalid realloc", block);
    case kTagRun:
      if (!starts_unit(block)) fail_invalid("invalid realloc", block);
      if (run_units(unit_of(block)) == 0) fail("realloc after free", block, "the block is free");
      return reallocate_large(block, run_bytes(block), bytes, false);
    case kTagSampled:
      return reallocate_sampled(block, bytes);
    case kTagHeapObject:
      if (arena_calls.holds(block)) return arena_calls.reallocate(block, bytes);
      [[fallthrough]];
    case kTagNone:
    case kTagGuard:
    case kTagInside:
      fail_invalid("invalid realloc", block);
    default:
      return reallocate_class_run(block, bytes);
  }
}

usize usable_bytes_slow(const void* block) {
  const char* const call = "invalid malloc_usable_size";
  const char* const after_free = "malloc_usable_size after free";
  if (block == nullptr) return 0;
  if (!in_window(block)) {
    if (FREESTONE_UNLIKELY(mode() == Mode::disabled)) return passthrough_usable_size(block);
    if (const usize bytes = mapped_block_bytes(block); bytes != 0) return bytes;
    fail_invalid(call, block);
  }
  const UnitIndex unit = unit_of(block);
  const u8 tag = tag_of_block(block);
  if (tag != kTagNone && tag <= kLastSmallClass) {
    const SlabPlace place = place_in_slab(tag, block);
    if (place == SlabPlace::no_block) fail_inside(call, tag, block);
    if (place == SlabPlace::free_block) fail_block(after_free, block, class_info(tag).bytes);
    expect_live(after_free, tag, block);
    if constexpr (!kChecksEveryCall) trusted_bytes.checked(tag);
    return class_info(tag).bytes;
  }
  switch (tag) {
    case kTagClassRun:
      if (!starts_unit(block)) fail_invalid(call, block);
      expect_live(after_free, record_of(unit).size_class, block);
      return class_info(record_of(unit).size_class).bytes;
    case kTagRun:
      if (!starts_unit(block)) fail_invalid(call, block);
      return run_bytes(block);
    case kTagSampled:
      if (sampled_block(sampled_first_unit(block)) != block) fail_invalid(call, block);
      return sampled_bytes(sampled_first_unit(block));
    case kTagHeapObject:
      if (arena_calls.holds(block)) return arena_calls.usable_bytes(block);
      [[fallthrough]];
    default:
      fail_invalid(call, block);
  }
}

usize good_size(usize bytes, usize alignment) {
  if (bytes > PTRDIFF_MAX - kUnitBytes) return bytes;  // nothing can have that size
  const usize taken = bytes + kHeldBackBytes;
  if (taken > kCachedBytesMax || alignment > kUnitBytes) return large_good_size(taken) - kHeldBackBytes;
  SizeClass size_class = class_of(taken);
  if (alignment > kGranule) {
    size_class = taken <= kSmallBytesMax ? class_of_aligned(taken, alignment) : size_class;
    if (!is_slab_class(size_class)) size_class = class_of(max_of(taken, kSmallBytesMax + 1));
  }
  return class_info(size_class).bytes - kHeldBackBytes;
}

}  // namespace freestone
