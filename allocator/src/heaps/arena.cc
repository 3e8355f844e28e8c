// Room 11, heaps: see arena.h.

#include "heaps/arena.h"

#include "base/compiler.h"
#include "front/heap.h"

namespace freestone {

namespace {

FREESTONE_FAR Atomic<HeapObject*> arenas[kArenasMax];  // arenas[0] stays null
constinit Atomic<unsigned> count{1};

// Stands for an arena that is a number only.
HeapObject* number_only() { return reinterpret_cast<HeapObject*>(arenas); }

}  // namespace

unsigned create_arena() {
  HeapObject* made = mode() == Mode::disabled ? number_only() : HeapObject::create(~usize{0}, true);
  if (made == nullptr) return 0;
  for (unsigned number = 1; number < kArenasMax; ++number) {
    HeapObject* none = nullptr;
    if (!arenas[number].replace_seq(none, made)) continue;
    unsigned before = count.load_relaxed();
    while (before <= number && !count.replace_seq(before, number + 1)) {}
    return number;
  }
  if (made != number_only()) HeapObject::destroy(made);
  return 0;
}

bool is_made_arena(usize number) { return number < kArenasMax && arenas[number].load_acquire() != nullptr; }

HeapObject* arena(usize number) {
  HeapObject* found = number < kArenasMax ? arenas[number].load_acquire() : nullptr;
  return found != number_only() ? found : nullptr;
}

void destroy_arena(usize number) {
  HeapObject* gone = number < kArenasMax ? arenas[number].exchange_seq(nullptr) : nullptr;
  if (gone != nullptr && gone != number_only()) HeapObject::destroy(gone);
}

unsigned arena_count() { return count.load_relaxed(); }

constinit const ArenaCalls arena_calls = {
    [](const void* block) { return HeapObject::holder_of(unit_of(block)).is_arena(); },
    [](void* block) { HeapObject::holder_of(unit_of(block)).deallocate(block, "invalid free"); },
    [](void* block, usize bytes) {
      return HeapObject::holder_of(unit_of(block)).reallocate(block, bytes, "invalid realloc");
    },
    [](const void* block) {
      return HeapObject::holder_of(unit_of(block)).usable_bytes(block, "invalid malloc_usable_size");
    }};

}  // namespace freestone
