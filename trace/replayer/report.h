// replayer/report.h: what a replay prints: one line of JSON as the lab's workloads print it.
#pragma once

#include "replayer/run.h"

namespace freestone::trace {

void print_report(const Plan& plan, const RunOptions& options, const Outcome& outcome);

}  // namespace freestone::trace
