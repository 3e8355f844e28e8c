// Room 15, leaks: blocks that nothing points to any more.
//
// leak:report looks at the profiler's samples, leak:exact at every block. Pointers are looked for, conservatively, in
// everything that is writable outside the heap (data segments, stacks, thread-local storage, registers of all threads,
// the program's own mappings) and then in every heap block that was reached. Other threads stand still meanwhile. A
// pointer to any byte of a block counts.
#pragma once

#include "base/units.h"

namespace freestone {

enum class LeakMode : u8 { off, report, exact };

struct LeakCounts {
  double lost_objects;  // estimates in sampled mode
  double lost_bytes;
  double reachable_objects;
  double reachable_bytes;
  u64 lost_samples;
  bool scanned;  // false: memory ran out, or /proc is not there
};

// Marks what is reachable and writes the report to standard error or, as JSON, where the option leak_file says. The
// calling thread holds no lock.
LeakCounts report_leaks();
// The same, then ends the process with the option leak_error when blocks were lost.
void report_leaks_at_exit();

}  // namespace freestone
