// Room 20, abi: jemalloc's calls with flags, served by the C library's calls, or by the arena that a flag names.
//
// The flags are jemalloc's: the logarithm of an alignment, a bit for zeroed memory, a cache and an arena, each of these
// moved up by one, with 0 for none. A cache in the flags changes nothing. A request for zeroed memory zeroes the whole
// usable size, because a later rallocx may count on it.

#include <cstddef>
#include <cstring>

#include "abi/entry.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "heaps/arena.h"

using namespace freestone;

extern "C" {
ABI_OWN(void*, malloc, (size_t bytes));
ABI(void*, calloc(size_t count, size_t each));
ABI(void*, memalign(size_t alignment, size_t bytes));
ABI_OWN(void, free, (void* block));
ABI(void, free_sized(void* block, size_t bytes));
ABI(size_t, malloc_usable_size(void* block));
}

namespace {

constexpr unsigned kLogAlignment = 0x3f;
constexpr unsigned kZeroed = 0x40;
constexpr unsigned kCache = 0xfffU << 8;
constexpr unsigned kArenaShift = 20;

struct Flags {
  unsigned bits;

  bool are_plain() const { return (bits & ~kCache) == 0; }
  bool zeroed() const { return (bits & kZeroed) != 0; }
  usize alignment() const { return max_of(usize{1} << (bits & kLogAlignment), kGranule); }
  // 0: the process heap.
  unsigned arena() const { return max_of(bits >> kArenaShift, 1U) - 1; }
  bool name_no_arena() const { return arena() != 0 && !is_made_arena(arena()); }
  // Null: the C library's calls serve it.
  HeapObject* heap() const { return freestone::arena(arena()); }
};

Flags flags_of(int flags) { return {static_cast<unsigned>(flags)}; }

usize good_size_for(usize bytes, Flags flags) {
  if (flags.heap() != nullptr) return HeapObject::good_size(bytes, flags.alignment());
  return kChecksEveryCall || ensure_started() == Mode::disabled ? bytes : good_size(bytes, flags.alignment());
}

void* allocate_for(usize bytes, Flags flags) {
  if (bytes > PTRDIFF_MAX || flags.name_no_arena()) return nullptr;
  void* block = nullptr;
  if (HeapObject* named = flags.heap(); named != nullptr) {
    block = named->allocate(bytes, flags.alignment());
  } else if (flags.alignment() > kGranule) {
    block = ABI_CALL(memalign(flags.alignment(), bytes));
  } else if (flags.zeroed() && ensure_started() != Mode::disabled) {  // another malloc may have more than it clears
    return ABI_CALL(calloc(1, good_size_for(bytes, flags)));
  } else {
    block = ABI_CALL(malloc(bytes));
  }
  return block != nullptr && flags.zeroed() ? std::memset(block, 0, ABI_CALL(malloc_usable_size(block))) : block;
}

bool is_elsewhere(const void* block, Flags flags) {
  const HeapObject* named = flags.heap();
  if (named == nullptr) return flags.name_no_arena();
  return !in_window(block) || tag_of(unit_of(block)) != kTagHeapObject ||
         &HeapObject::holder_of(unit_of(block)) != named;
}

void* reallocate_for(void* block, usize bytes, Flags flags) {
  if (bytes > PTRDIFF_MAX) return nullptr;
  const usize old_bytes = ABI_CALL(malloc_usable_size(block));
  const bool stays = !is_elsewhere(block, flags);
  void* resized = block;
  if (stays && flags.alignment() <= kGranule) {
    resized = realloc_in_use(block, bytes);
  } else if (!stays || address_of(block) % flags.alignment() != 0 || bytes > old_bytes || bytes < old_bytes / 2) {
    resized = allocate_for(bytes, {flags.bits & ~kZeroed});
    if (resized == nullptr) return nullptr;
    std::memcpy(resized, block, min_of(old_bytes, bytes));
    ABI_CALL(free(block));
  }
  if (resized == nullptr || !flags.zeroed()) return resized;
  const usize now = ABI_CALL(malloc_usable_size(resized));
  if (now > old_bytes) std::memset(static_cast<char*>(resized) + old_bytes, 0, now - old_bytes);
  return resized;
}

}  // namespace

extern "C" {

FREESTONE_EXPORT FREESTONE_HOT ABI(void*, mallocx(size_t bytes, int flags)) {
  const Flags wanted = flags_of(flags);
  return FREESTONE_LIKELY(wanted.are_plain()) ? ABI_CALL(malloc(bytes)) : allocate_for(bytes, wanted);
}

FREESTONE_EXPORT ABI(void*, rallocx(void* block, size_t bytes, int flags)) {
  const usize wanted = max_of<usize>(bytes, 1);  // realloc would free the block
  return flags_of(flags).are_plain() ? realloc_in_use(block, wanted) : reallocate_for(block, wanted, flags_of(flags));
}

// A block keeps the size that it has. Returns that.
FREESTONE_EXPORT ABI(size_t, xallocx(void* block, size_t, size_t, int)) { return ABI_CALL(malloc_usable_size(block)); }
FREESTONE_EXPORT ABI(size_t, sallocx(const void* block, int)) {
  return ABI_CALL(malloc_usable_size(const_cast<void*>(block)));
}

FREESTONE_EXPORT FREESTONE_HOT ABI(void, dallocx(void* block, int)) { ABI_CALL(free(block)); }
FREESTONE_EXPORT FREESTONE_HOT ABI(void, sdallocx(void* block, size_t bytes, int flags)) {
  if (FREESTONE_LIKELY(flags_of(flags).are_plain())) return ABI_CALL(free_sized(block, bytes));
  ABI_CALL(free(block));
}

// 0 where no block can have the size.
FREESTONE_EXPORT ABI(size_t, nallocx(size_t bytes, int flags)) {
  return bytes > PTRDIFF_MAX ? 0 : good_size_for(max_of<usize>(bytes, 1), flags_of(flags));
}

}  // extern "C"
