// Room 18, report: sends statistics to a file, standard error or the live page. One thread writes at a time.
#pragma once

#include "base/units.h"
#include "report/statistics.h"

namespace freestone {

// Writes statistics to the place in the option stats_file. EIO if the file cannot be written, which the first
// failure also says in a line; EBUSY if another thread is writing.
int write_report();
// Writes what the options ask for when the process ends.
void write_final_report();
// Writes a new version of the live page. False if another thread is writing.
bool refresh_live_page();

void report_before_fork();
void report_after_fork_in_parent();
void report_after_fork_in_child();

// Writes one format to a descriptor. False if the descriptor does not take everything.
bool write_statistics(int file, Format format);

}  // namespace freestone
