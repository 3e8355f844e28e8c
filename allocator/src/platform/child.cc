// Room 4, platform: see child.h.

#include "platform/child.h"

#include "platform/os.h"

namespace freestone {

constinit Atomic<u32> forks_seen;
FREESTONE_FAR char settled_room[2 * kSettledBytes];

namespace {

constexpr u64 kLookMs = 1;

Atomic<u32> is_watched;   // relaxed: set before the process has a second thread
Atomic<u32> forked_from;  // relaxed: the generation in which the fork began

}  // namespace

void watch_process() {
  settled_word().store_release(kSettled);
  is_watched.store_relaxed(1);
  os::wipe_on_fork(&settled_word(), kSettledBytes);
}

void settle_child_slow() {
  if (is_watched.load_relaxed() == 0) return;
  usize settler = 0;
  if (settled_word().replace_acquire(settler, own_thread())) {
    forks_seen.add_relaxed(1);
    repair_child();
    settled_word().store_release(kSettled);
    return;
  }
  // Not woken: the wait ends by itself, and who settles need not know of those who wait.
  // Acquire, as the failed exchange is relaxed: what the repair wrote.
  while ((settler = settled_word().load_acquire()) != kSettled && settler != own_thread())
    os::futex_wait_for(&settled_word(), static_cast<u32>(settler), kLookMs);
}

bool may_touch_shared() {
  const usize word = settled_word().load_acquire();
  return word == kSettled || word == own_thread() || is_watched.load_relaxed() == 0;
}

void note_fork() { forked_from.store_relaxed(process_generation()); }

void settle_forked_child() {
  // A kernel or an emulator that does not wipe the page.
  if (forks_seen.load_relaxed() == forked_from.load_relaxed()) settled_word().store_relaxed(0);
  settle_child();
}

}  // namespace freestone
