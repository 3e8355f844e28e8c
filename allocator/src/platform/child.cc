// Room 4, platform: see child.h.

#include "platform/child.h"

#include "platform/os.h"

namespace freestone {

FREESTONE_FAR char mark_room[2 * kMarkBytes];

namespace {

constexpr u64 kLookMs = 1;

Atomic<u32> is_watched;   // relaxed: set before the process has a second thread
Atomic<u32> generation;   // written by the thread that settles, published by the mark
Atomic<u32> forked_from;  // relaxed: the generation in which the fork began

}  // namespace

void mark_process() {
  process_mark().store_release(kSettled);
  is_watched.store_relaxed(1);
  os::wipe_on_fork(&process_mark(), kMarkBytes);
}

void settle_child_slow() {
  if (is_watched.load_relaxed() == 0) return;
  usize settler = 0;
  if (process_mark().replace_acquire(settler, thread_mark())) {
    generation.add_relaxed(1);
    repair_child();
    process_mark().store_release(kSettled);
    return;
  }
  // Not woken: the wait ends by itself, and who settles need not know of those who wait.
  for (; settler != kSettled && settler != thread_mark(); settler = process_mark().load_acquire())
    os::futex_wait_for(&process_mark(), static_cast<u32>(settler), kLookMs);
}

bool may_touch_shared() {
  const usize mark = process_mark().load_acquire();
  return mark == kSettled || mark == thread_mark() || is_watched.load_relaxed() == 0;
}

void note_fork() { forked_from.store_relaxed(process_generation()); }

void settle_forked_child() {
  // A kernel or an emulator that does not wipe the page.
  if (generation.load_relaxed() == forked_from.load_relaxed()) process_mark().store_relaxed(0);
  settle_child();
}

u32 process_generation() {
  settle_child();
  return generation.load_relaxed();
}

}  // namespace freestone
