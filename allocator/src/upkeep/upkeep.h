// Room 19, upkeep: what slow paths do on the side: the soft limit, memory pressure, statistics at intervals and on a
// signal, the live page, and the thread that does the same while the program is idle.
//
// All of it hangs on the word `attention` (region/account.h): while nothing is switched on it is 0, and a slow path
// pays one load.
#pragma once

namespace freestone {

// Acts on the options stats_interval_ms, stats_signal, live_page, pressure and background_purge as they are now. Not
// for signal handlers.
void apply_upkeep_options();

}  // namespace freestone
