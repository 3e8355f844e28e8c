// Room 5, region: see traffic.h.

#include "region/traffic.h"

#include "config/heuristics.h"
#include "platform/leaving.h"

namespace freestone {

constinit Traffic traffic;
constinit PurgeBudget purge_budget;

namespace {

// Relaxed: a thread that sees an older state makes a few calls more.
Atomic<u32> refusals;    // in a row
Atomic<u64> refused_ms;  // when the last of kRefusalsMax came

}  // namespace

bool purges_pause() {
  if (os::keeps_pages()) return true;
  if (FREESTONE_LIKELY(refusals.load_relaxed() < kRefusalsMax)) return false;
  if (os::coarse_milliseconds() - refused_ms.load_relaxed() < kRefusedMs) return true;
  end_purge_pause();
  return false;
}

void end_purge_pause() { refusals.store_relaxed(0); }

void note_purge(bool went) {
  if (FREESTONE_LIKELY(went)) {
    if (FREESTONE_UNLIKELY(refusals.load_relaxed() != 0)) refusals.store_relaxed(0);
  } else if (refusals.fetch_add_relaxed(1) == kRefusalsMax - 1) {
    refused_ms.store_relaxed(os::coarse_milliseconds());
  }
}

bool purge_range(void* start, usize bytes, WentBack why) {
  // The kernel rounds the length up: it would take what neighbours have in the last page.
  if (((address_of(start) | bytes) & (os::page_bytes() - 1)) != 0 || purges_pause()) return false;
  const bool went = !os::purge(start, bytes);
  note_purge(went);
  if (went) note_back(why, bytes);
  return went;
}

}  // namespace freestone
