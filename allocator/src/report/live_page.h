// Room 17, report: a page of memory in /dev/shm/freestone-PID that another process may look at while this one runs.
//
// It holds the statistics as JSON behind a header of 64 bytes. `sequence` is odd while the text is being written and
// rises by 2 with every version: a reader that sees the same even number before and after has read one version.
#pragma once

#include "platform/mutex.h"
#include "report/statistics.h"

namespace freestone {

// Keeps those apart who write statistics (statistics_report.h).
extern Mutex report_lock;

// Writes a new version, making the page on the first call of a process.
void update_live_page(const Statistics& statistics) FREESTONE_REQUIRES(report_lock);
void remove_live_page() FREESTONE_EXCLUDES(report_lock);
// In the child of a fork the page is the parent's.
void forget_live_page() FREESTONE_REQUIRES(report_lock);

}  // namespace freestone
