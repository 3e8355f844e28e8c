// Room 19, upkeep: what another process asks of this one, which it knows by its number
// (lab/freestone_lab/heap/attach.py).
//
// A looker, who must have the right to trace this process, finds `freestone_request` and `freestone_attention` by name
// in the file. It writes the request, then kAttentionAsked into the attention word (region/account.h), and recalls the
// caches (cache/registry.h), so that the next allocation of each thread takes a slow path. The first slow path, or the
// background thread, answers in memory, which the looker reads. No thread stops, but for a search for leaks, which
// stops the others as freestone_leak_check does.
//
// REQUEST-1  A request is taken once, by one exchange, and only if the word is kRequestMagic with an errand and its
//            time is not over: a word that a fault of the program writes there by chance asks for nothing. A request
//            names no file and no address. The child of a fork forgets what its parent was asked.
// REQUEST-2  What a look switched on ends by itself. The looker moves `look_until_ms` on while it lives. When that is
//            over, or `look` is another's or none, the next slow path ends it. A sampled allocation is one.
// REQUEST-3  One thread at a time answers. Its text stays until the next answer.
//
// Lookers exclude each other before they write.
#pragma once

#include <cstddef>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

namespace freestone {

enum class Errand : u8 {
  none,
  start_profile,  // argument: mean bytes between samples; EALREADY if one runs
  write_profile,  // argument: a ProfileFormat, or kConfigured
  write_leaks,
};
inline constexpr u64 kConfigured = 255;                      // the format of the option prof_format
inline constexpr u64 kRequestMagic = 0xa76d'13e5'9bc2'f800;  // the errand is its last byte

// Times are on the kernel's coarse monotonic clock. A change of the layout changes the exported name.
struct Request {
  Atomic<u64> word;
  u64 ticket;  // comes back as `answered`
  u64 argument;
  u64 until_ms;      // the looker does not wait longer
  Atomic<u64> look;  // which look wants samples; 0: none. Relaxed, as all below: the looker is another process
  Atomic<u64> look_until_ms;
  Atomic<u64> sampled_for;  // the look that a profile runs for; 0: none
  i64 result;               // 0 or an errno value; EBUSY: ask again
  u64 text;                 // where it lies, and its length
  u64 text_bytes;
  Atomic<u64> answered;  // release: all above
};
static_assert(offsetof(Request, answered) == 80);

extern "C" FREESTONE_HIDDEN Request freestone_request_word;

// Any thread that holds no lock, while kAttentionAsked is set.
void answer_request();
// The same, while kAttentionLook is set.
void end_forgotten_look(u64 now_ms);
void forget_request_in_child();

}  // namespace freestone
