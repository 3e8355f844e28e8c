// Room 16, leaks: blocks that no pointer reaches any more.
//
// leak:report judges the profiler's samples, leak:exact every block. The search is conservative: it looks for pointers
// in all writable memory outside the heap (data segments, stacks, thread-local storage, registers of all threads, the
// program's own mappings), then in every heap block that it reached. A pointer to any byte of a block counts. Other
// threads stand still meanwhile.
#pragma once

#include "base/units.h"
#include "profile/profile_output.h"

namespace freestone {

enum class LeakMode : u8 { off, report, exact };

struct LeakCounts {
  double lost_objects;  // estimates in sampled mode
  double lost_bytes;
  double reachable_objects;
  double reachable_bytes;
  u64 lost_samples;
  bool scanned;  // false: memory ran out, /proc is missing, or threads went on
};

// Finds what is reachable and writes the report to standard error or, as JSON, to the file of the option leak_file. The
// calling thread must hold no lock.
LeakCounts report_leaks();
// The same. If blocks were lost, it then ends the process with the status of the option leak_error.
void report_leaks_at_exit();
// The same report as JSON in memory. ENOMEM if that is out.
int write_leaks(MemoryText& text);

}  // namespace freestone
