// Room 10, insight: when statistics are written without being asked for, and everything else that slow paths do on the side: the soft
// limit, memory pressure, the live page, the background thread.
//
// All of it hangs on the word `attention` (region/account.h): while nothing is switched on it is 0, and a slow path pays one load.
#pragma once

#include "base/units.h"
#include "insight/statistics.h"

namespace freestone {

// Lets slow paths call the hook while one of these bits is set. Not for signal handlers.
void enable_attention(u32 bits);

// Acts on the options stats_interval_ms, stats_signal, live_page, pressure and background_purge as they are now.
void apply_report_options();

// Writes statistics to where the option stats_file says. EIO when the file cannot be written, EBUSY when another thread is writing.
int write_report();

// Writes one format to a descriptor; false when it does not take everything.
bool write_statistics(int file, Format format);

}  // namespace freestone
