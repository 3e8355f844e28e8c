// Room 20, abi: the heap profiler's and the leak search's functions of freestone.h.

#include "sampling/sampling.h"

#include "base/compiler.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "leaks/leak.h"
#include "profile/profile.h"

using namespace freestone;

extern "C" {

FREESTONE_EXPORT void freestone_prof_start() {
  if (ensure_started() == Mode::active) start_profile();
}
FREESTONE_EXPORT void freestone_prof_stop() {
  if (ensure_started() == Mode::active) stop_profile();
}
FREESTONE_EXPORT int freestone_prof_is_active() {
  return ensure_started() == Mode::active && profile_is_active() ? 1 : 0;
}
FREESTONE_EXPORT int freestone_prof_dump(const char* path) {
  return ensure_started() == Mode::active ? dump_profile(path) : 0;
}
FREESTONE_EXPORT size_t freestone_leak_check() {
  return ensure_started() == Mode::active ? static_cast<size_t>(report_leaks().lost_samples) : 0;
}

}  // extern "C"
