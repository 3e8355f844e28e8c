// replayer/report.h: prints one line of JSON about a replay, in the form of the lab's workloads.
#pragma once

#include "replayer/run.h"

namespace freestone::trace {

void print_report(const Plan& plan, const RunOptions& options, const Outcome& outcome);

}  // namespace freestone::trace
