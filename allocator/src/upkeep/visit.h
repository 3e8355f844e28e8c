// Room 19, upkeep: a look from outside at a process that was not prepared for it.
//
// The looker stops one thread by ptrace, leads its registers to `freestone_visit_enter` and lets it run. There the
// thread answers one command, on a stack of the library's own. Then it waits for the looker, which stops it again and
// gives its registers back. The thread may have been anywhere, even inside this library, so the rules of a signal
// handler hold: it waits for no lock, and touches neither its cache nor libc's state.
//
// VISIT-1  If the looker dies, the thread goes on by itself where it was. From the instant when its registers lead
//          here, `saved` holds all that it had, but for the vector registers, which the entry saves. The entry changes
//          no other state, so nothing is left behind.
// VISIT-2  What a look switched on ends by itself. The looker raises `renewals` while it lives. When that stood still
//          for kLeaseMs, the next slow path ends it. A sampled allocation is one.
// VISIT-3  An errand takes only locks that were free when the thread came: what the interrupted code holds, or a thread
//          that stands still, would never be released. Nor does it give blocks back, which is the cache's work.
//
// There is one room for visits. Lookers exclude each other before they come (lab/freestone_lab/heap/attach.py).
#pragma once

#include <cstddef>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

#if defined(__aarch64__)
#include <signal.h>
#include <ucontext.h>
#endif

namespace freestone {

enum class Looked : u32 { profile, page };
inline constexpr u32 kLookedEnd = 2;
inline constexpr u64 kConfigured = 255;  // the format of the option prof_format

enum class Errand : u64 {
  none,
  start_profile,  // argument: mean bytes between samples
  stop_profile,
  write_profile,  // argument: a ProfileFormat, or kConfigured
  write_leaks,    // all other threads stand still; argument: how many stack pointers the looker brought
  show_page,
  hide_page,
  is_profiling,   // result: 1 or 0
  make_place,     // argument: bytes that the looker will bring; the answer is a place for them
};

// What the thread had, in the order in which ptrace gives it. Later headers are laid out by the kernel.
struct SavedByLooker {
#if defined(__x86_64__)
  u64 registers[27];
  u64 mask;
  alignas(64) char extended[4096];  // by xsave, without the state that this library and libc never touch
#elif defined(__aarch64__)
  siginfo_t info;  // with `context` a signal's frame: one system call returns from it
  ucontext_t context;
#endif
};

struct alignas(64) VisitRoom {
  enum State : u32 { kIdle, kAsked, kAnswered, kLeft };
  Atomic<u32> state;  // the looker: idle, asked; the thread: answered, and left if nobody took it back
  u32 thread;
  Errand errand;
  u64 argument;
  i64 result;         // 0 or an errno value; EBUSY: ask another thread, or later
  u64 answer;         // where a text lies, and its length; valid until the next errand
  u64 answer_bytes;
  u64 patience_ms;    // how long an answered thread waits for the looker
  Atomic<u32> renewals[kLookedEnd];
  SavedByLooker saved;
  char stack[64 * kKiB];
};
static_assert(offsetof(VisitRoom, renewals) == 56 && offsetof(VisitRoom, saved) == 64);
static_assert(sizeof(VisitRoom) % 64 == 0 && offsetof(VisitRoom, stack) % 16 == 0);

extern "C" FREESTONE_HIDDEN VisitRoom freestone_visit_room;

// Whether a look wants the live page.
bool page_is_looked_at();
// In the child of a fork: the looker looks at the parent.
void forget_look_at_page();
// Ends what nobody looks at any more. Any slow path, while kAttentionLook is set.
void end_forgotten_looks(u64 now_ms);

}  // namespace freestone
