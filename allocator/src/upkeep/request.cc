// Room 19, upkeep: see request.h.

#include "upkeep/request.h"

#include <cerrno>

#include "config/options.h"
#include "leaks/leak.h"
#include "platform/os.h"
#include "profile/profile.h"
#include "region/account.h"
#include "sampling/sampling.h"
#include "upkeep/background.h"

namespace freestone {

extern "C" {
FREESTONE_HIDDEN constinit Request freestone_request_word{};
extern FREESTONE_EXPORT Request freestone_request __attribute__((alias("freestone_request_word")));
}

namespace {

Atomic<u32> answering;
MemoryText text;  // of the last answer; only the thread that answers touches it

Request& request() { return freestone_request_word; }

i64 start_look(u64 mean_bytes) {
  if (profile_is_active()) return EALREADY;
  request().sampled_for.store_relaxed(request().look.load_relaxed());
  attention.or_seq(kAttentionLook);
  start_profile_of(mean_bytes);
  return 0;
}

i64 obey(Errand errand, u64 argument) {
  text.release();
  switch (errand) {
    case Errand::start_profile:
      return start_look(argument);
    case Errand::write_profile:
      return write_profile(text, static_cast<ProfileFormat>(argument == kConfigured ? options.prof_format : argument));
    case Errand::write_leaks:
      return write_leaks(text);
    case Errand::none:
      break;
  }
  return EINVAL;
}

// The background thread blocks the signal that stops threads, so where it runs it searches for leaks itself.
bool is_left_to_background(Errand errand) {
  return errand == Errand::write_leaks && background_runs() && !is_background_thread();
}

void answer() {
  Request& r = request();
  const auto errand_in = [](u64 word) { return static_cast<Errand>(word ^ kRequestMagic); };
  if (is_left_to_background(errand_in(r.word.load_relaxed()))) return;
  attention.and_seq(~kAttentionAsked);
  const u64 word = r.word.exchange_acquire(0);
  if (word <= kRequestMagic || word > (kRequestMagic | static_cast<u64>(Errand::write_leaks))) return;
  if (os::coarse_milliseconds() >= r.until_ms) return;
  const u64 ticket = r.ticket;
  r.result = obey(errand_in(word), r.argument);
  r.text = address_of(text.data());
  r.text_bytes = text.length();
  r.answered.store_release(ticket);
}

}  // namespace

void answer_request() {
  if (answering.exchange_acquire(1) != 0) return;
  answer();
  answering.store_release(0);
}

void end_forgotten_look(u64 now_ms) {
  Request& r = request();
  const u64 look = r.sampled_for.load_relaxed();
  if (look == 0 || (look == r.look.load_relaxed() && now_ms < r.look_until_ms.load_relaxed())) return;
  end_profile();
  r.sampled_for.store_relaxed(0);
  attention.and_seq(~kAttentionLook);
}

void forget_request_in_child() {
  answering.store_relaxed(0);
  attention.and_seq(~kAttentionAsked);
  request().word.store_relaxed(0);
}

}  // namespace freestone
