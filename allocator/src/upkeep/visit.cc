// Room 19, upkeep: see visit.h.

#include "upkeep/visit.h"

#include <cerrno>

#include "config/options.h"
#include "front/heap.h"
#include "leaks/leak.h"
#include "limits/limits.h"
#include "platform/os.h"
#include "profile/profile.h"
#include "region/account.h"
#include "region/metadata.h"
#include "report/live_page.h"
#include "report/statistics.h"
#include "report/statistics_report.h"
#include "sampling/sampling.h"

namespace freestone {

extern "C" {
FREESTONE_FAR FREESTONE_HIDDEN constinit VisitRoom freestone_visit_room{};
// The name by which the looker finds the room; the entry reaches it by a fixed distance.
extern FREESTONE_EXPORT VisitRoom freestone_visit __attribute__((alias("freestone_visit_room")));
FREESTONE_EXPORT void freestone_visit_enter();
FREESTONE_HIDDEN void freestone_visit_answer();
}

namespace {

constexpr u64 kLeaseMs = 10'000;

struct Lease {
  Atomic<u32> runs;
  Atomic<u32> seen;  // the looker's renewals; relaxed: one thread at a time looks, and a look begins with its own
  Atomic<u64> until_ms;
};
Lease leases[kLookedEnd];
MemoryText text;  // of the last errand; only a visit touches it
MemoryText brought;

Lease& lease_of(Looked what) { return leases[static_cast<u32>(what)]; }
Atomic<u32>& renewals_of(Looked what) { return freestone_visit_room.renewals[static_cast<u32>(what)]; }

void begin_look(Looked what) {
  Lease& lease = lease_of(what);
  lease.seen.store_relaxed(renewals_of(what).load_relaxed());
  lease.until_ms.store_relaxed(os::coarse_milliseconds() + kLeaseMs);
  lease.runs.store_seq(1);
  attention.or_seq(kAttentionLook);
}

void end_look(Looked what) {
  lease_of(what).runs.store_seq(0);
  attention.and_seq(~kAttentionLook);
  for (const Lease& lease : leases) {
    if (lease.runs.load_seq() != 0) attention.or_seq(kAttentionLook);  // another look began meanwhile
  }
}

// Whether nobody has renewed the look in time. Reading the renewals here, not at the looker's clock, serves a program
// that was idle for long, and one whose clock has another zero.
bool is_forgotten(Looked what, u64 now_ms) {
  Lease& lease = lease_of(what);
  if (lease.runs.load_seq() == 0) return false;
  const u32 renewals = renewals_of(what).load_relaxed();
  if (renewals != lease.seen.load_relaxed()) {
    lease.seen.store_relaxed(renewals);
    lease.until_ms.store_relaxed(now_ms + kLeaseMs);
  }
  return now_ms >= lease.until_ms.load_relaxed();
}

// VISIT-3
bool may_answer_here() {
  return becomes_free(profile_store.lock) && becomes_free(report_lock) && becomes_free(metadata_lock) &&
         may_collect_here();
}

i64 start_look_at_profile(u64 mean_bytes) {
  if (profile_is_active()) return EALREADY;
  begin_look(Looked::profile);
  start_profile_of(mean_bytes);
  return 0;
}

i64 show_page() {
  begin_look(Looked::page);
  return refresh_live_page() ? 0 : EBUSY;
}

ProfileFormat format_of(u64 asked) {
  return static_cast<ProfileFormat>(asked == kConfigured ? options.prof_format : asked);
}

i64 obey(const VisitRoom& room) {
  text.release();
  if (room.errand != Errand::write_leaks) brought.release();
  switch (room.errand) {
    case Errand::start_profile: return start_look_at_profile(room.argument);
    case Errand::stop_profile:
      end_profile();
      end_look(Looked::profile);
      return 0;
    case Errand::write_profile:
      return write_profile(text, format_of(room.argument));
    case Errand::make_place: return brought.reserve(room.argument) ? 0 : ENOMEM;
    case Errand::write_leaks: return write_leaks(text, reinterpret_cast<const u64*>(brought.data()), room.argument);
    case Errand::show_page: return show_page();
    case Errand::hide_page:
      end_look(Looked::page);
      if (!options.live_page) remove_live_page();
      return 0;
    case Errand::is_profiling: return profile_is_active() ? 1 : 0;
    case Errand::none: return 0;
  }
  return EINVAL;
}

}  // namespace

FREESTONE_AT_START bool page_is_looked_at() { return lease_of(Looked::page).runs.load_relaxed() != 0; }
void forget_look_at_page() { lease_of(Looked::page).runs.store_relaxed(0); }

void end_forgotten_looks(u64 now_ms) {
  const bool ends_profile = is_forgotten(Looked::profile, now_ms);
  if (ends_profile) {
    end_profile();
    end_look(Looked::profile);
  }
  // Samples may have been the last slow paths of the program, so a page of the same looker ends with them.
  if (is_forgotten(Looked::page, ends_profile ? now_ms + kLeaseMs / 2 : now_ms)) {
    end_look(Looked::page);
    if (!options.live_page) remove_live_page();
  }
}

extern "C" void freestone_visit_answer() {
  VisitRoom& room = freestone_visit_room;
  if (mode() != Mode::active) {
    room.result = ENOSYS;
  } else {
    room.result = may_answer_here() ? obey(room) : EBUSY;
  }
  room.answer = address_of(room.errand == Errand::make_place ? brought.data() : text.data());
  room.answer_bytes = text.length();
  const u64 until = os::nanoseconds() + room.patience_ms * 1'000'000;
  room.state.store_release(VisitRoom::kAnswered);  // publishes the answer to the looker, which reads this memory
  while (os::nanoseconds() < until) cpu_relax();
  room.state.store_release(VisitRoom::kLeft);
}

}  // namespace freestone
