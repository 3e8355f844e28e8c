// Room 4, platform: see child.h.

#include "platform/child.h"

#include "base/atomic.h"
#include "platform/os.h"

namespace freestone {

namespace {

// The mark has a page to itself, even where pages have 64 KiB.
#if defined(__x86_64__)
constexpr usize kMarkBytes = 4 * kKiB;
#else
constexpr usize kMarkBytes = 64 * kKiB;
#endif
// Twice as large, because an aligned variable would leave a hole between our other variables.
FREESTONE_FAR char mark_room[2 * kMarkBytes];
// Relaxed: set before the process has a second thread; a child is born without it.
Atomic<u8>& mark() { return *reinterpret_cast<Atomic<u8>*>(round_up(address_of(mark_room), kMarkBytes)); }
bool is_wiped_by_fork = false;

Atomic<u32> generation;  // relaxed: written by the only thread of a child

}  // namespace

void mark_process() {
  is_wiped_by_fork = !os::wipe_on_fork(&mark(), os::page_bytes());
  mark().store_relaxed(1);
}

void mark_child() {
  generation.add_relaxed(1);
  mark().store_relaxed(1);
}

bool notices_children() { return is_wiped_by_fork; }

bool is_unmarked_child() { return is_wiped_by_fork && mark().load_relaxed() == 0; }

u32 process_generation() { return generation.load_relaxed() + (is_unmarked_child() ? 1 : 0); }

}  // namespace freestone
