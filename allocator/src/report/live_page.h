// Room 18, report: a page of memory in /dev/shm/freestone-PID that another process may read while this one runs.
//
// It holds the statistics as JSON behind a header of 64 bytes. `sequence` is odd while the text is being written, and
// each version raises it by 2. A reader that sees the same even number before and after has read one whole version.
#pragma once

#include "platform/mutex.h"
#include "report/statistics.h"

namespace freestone {

// Only one thread at a time writes statistics (statistics_report.h).
extern Mutex report_lock;

// Writes a new version. The first call in a process makes the page.
void update_live_page(const Statistics& statistics) FREESTONE_REQUIRES(report_lock);
void remove_live_page() FREESTONE_EXCLUDES(report_lock);
// In the child of a fork the page is the parent's.
void forget_live_page() FREESTONE_REQUIRES(report_lock);

}  // namespace freestone
