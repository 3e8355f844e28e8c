// Room 4, platform: the calls by which pages of blocks leave, and who watches them: caches of registrations (RDMA),
// monitors, the program.
//
// LEAVING-1  What the program set by freestone_on_pages_leaving, and what stands in for libc's madvise, munmap and
//            mremap, by name or by changed code, sees each range before it leaves. Where nobody watches, the library
//            makes the system call itself, except mremap, whose function in glibc does more than that.
// LEAVING-2  A watcher may allocate and free: no lock is held that another thread waits for, but a heap object's; the
//            thread's cache, which the caller may be changing, is put aside (front/lifecycle.cc); nothing leaves by
//            what the watcher frees. A stand-in by name that called malloc is not asked again: it may hold a lock.
#pragma once

#include "base/atomic.h"
#include "platform/os.h"

namespace freestone {

// The front's. `end` says whether the watcher came back.
struct WatchHooks {
  void (*begin)();
  bool (*end)();
};
extern FREESTONE_HIDDEN const WatchHooks watch_hooks;

namespace os {

// Gives the memory back and keeps the range: the next read sees zeros. After a failure nothing is known to be zero.
Failure purge(void* address, usize bytes);
// As unmap and remap, of a block.
Failure unmap_block(void* address, usize bytes);
void* remap_block(void* address, usize old_bytes, usize new_bytes);
// Before guard_install, which takes memory too, and which no watcher knows: purges if somebody may watch.
void announce_guard(void* address, usize bytes);

// Of the calling thread.
struct Keeping {
  bool watches = false;        // it is inside a watcher
  bool never_purges = false;   // it said so
  bool is_background = false;  // of the option background_purge
};
extern FREESTONE_HIDDEN FREESTONE_THREAD_LOCAL Keeping keeping;
// Whether it may not give memory back: it leaves that to others, or does without. Slow paths ask.
inline bool keeps_pages() { return keeping.watches || keeping.never_purges; }
void set_never_purges(bool never);
// Whether the thread of the option background_purge runs. Relaxed: a hint.
extern FREESTONE_HIDDEN Atomic<u8> background_purges;
// Whether what is too much waits for another thread: that one, or who does not keep pages.
inline bool leaves_surplus() {
  return keeps_pages() || (background_purges.load_relaxed() != 0 && !keeping.is_background);
}

}  // namespace os

}  // namespace freestone
