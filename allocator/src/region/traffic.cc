// Room 5, region: see traffic.h.

#include "region/traffic.h"

#include "platform/os.h"

namespace freestone {

constinit Traffic traffic;

bool purge_range(void* start, usize bytes, WentBack why) {
  if (os::purge(start, bytes)) return false;
  note_back(why, bytes);
  return true;
}

}  // namespace freestone
