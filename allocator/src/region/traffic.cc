// Room 5, region: see traffic.h.

#include "region/traffic.h"

#include "platform/os.h"

namespace freestone {

constinit Traffic traffic;

bool purge_range(void* start, usize bytes, WentBack why) {
  // The kernel rounds the length up: it would take what neighbours have in the last page.
  if (((address_of(start) | bytes) & (os::page_bytes() - 1)) != 0 || os::purge(start, bytes)) return false;
  note_back(why, bytes);
  return true;
}

}  // namespace freestone
