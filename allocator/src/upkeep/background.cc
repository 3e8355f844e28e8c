// Room 19, upkeep: see background.h.

#include "upkeep/background.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>

#include "base/atomic.h"
#include "cache/slow.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "front/heap.h"
#include "platform/leaving.h"
#include "region/account.h"
#include "span/purge.h"

namespace freestone {

namespace {

// The number of the thread that is wanted, odd; even: none. The thread ends when the word is no longer its own.
Atomic<u32> wanted;
Atomic<u32> number;  // of the thread; relaxed: only it compares

u64 pause_ms() {
  u64 pause = max_of(tick_ms(), kBackgroundMinMs);
  if (options.stats_interval_ms > 0) pause = min_of(pause, options.stats_interval_ms);
  return min_of(pause, kBackgroundMaxMs);
}

void* purge_until_unwanted(void* argument) {
  const auto own = static_cast<u32>(reinterpret_cast<usize>(argument));
  this_thread.no_more = true;  // never takes a cache
  os::keeping.is_background = true;
  os::name_thread("freestone");
  number.store_relaxed(os::thread_id());
  while (wanted.load_acquire() == own) {
    os::futex_wait_for(&wanted, own, pause_ms());
    tick(nullptr);
    attend();
  }
  return nullptr;
}

}  // namespace

bool start_background() {
  u32 now = wanted.load_acquire();
  if (now % 2 == 1) return true;
  if (!wanted.replace_seq(now, now + 1)) return true;
  const int errno_before = errno;  // a malloc may lead here, and the thread may find no memory
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 128 * kKiB);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(&thread, &attributes, purge_until_unwanted, reinterpret_cast<void*>(usize{now + 1}));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (error != 0) wanted.store_release(now + 2);
  os::background_purges.store_relaxed(error == 0 ? 1 : 0);
  errno = errno_before;
  return error == 0;
}

FREESTONE_AT_START void stop_background() {
  os::background_purges.store_relaxed(0);
  u32 now = wanted.load_acquire();
  if (now % 2 == 1 && wanted.replace_seq(now, now + 1)) os::futex_wake_one(&wanted);
}

bool background_runs() { return wanted.load_acquire() % 2 == 1; }

bool is_background_thread() { return number.load_relaxed() == os::thread_id(); }

void forget_background() {
  os::background_purges.store_relaxed(0);
  const u32 now = wanted.load_relaxed();
  if (now % 2 == 1) wanted.store_relaxed(now + 1);
}

}  // namespace freestone
