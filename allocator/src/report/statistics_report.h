// Room 17, report: where statistics go: a file, standard error, the live page. One thread writes at a time.
#pragma once

#include "base/units.h"
#include "report/statistics.h"

namespace freestone {

// Writes statistics to where the option stats_file says. EIO when the file cannot be written, EBUSY when another thread
// is writing.
int write_report();
// What the options ask for when the process ends.
void write_final_report();
// Writes a new version of the live page. False when another thread is writing.
bool refresh_live_page();

void report_before_fork();
void report_after_fork_in_parent();
void report_after_fork_in_child();

// Writes one format to a descriptor; false when it does not take everything.
bool write_statistics(int file, Format format);

}  // namespace freestone
