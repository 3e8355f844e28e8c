// Points of a curve: each is measured in a fresh process of this same program, so that no point finds the allocator as
// another one left it.
#pragma once

#include <span>

#include "report.h"

namespace workload {

// Starts this program anew with WORDS; between the fork and the exec nothing is allocated. Answers the process, or -1.
int start_again(const char* const* words, int own_fd = -1, int child_fd = -1);

// Runs `freestone-workload WORDS...` and takes its tally, failures and new caveats into `report`. Answers its figures,
// until the next call. A point that crashes ends this program too, with the same signal's status (128 + signal) or the
// same exit status.
std::span<const Figure> run_point(std::span<const char* const> words, Report& report);

// In a point's process: hands the report to the parent through `fd`. Returns the exit status.
int hand_over(const Report& report, int fd);

// Runs the workload once per value of the parameter `swept`. Every directed figure is reported per point, as
// FIGURE_PARAMETER_VALUE, and once for all points: the geometric mean (times, rates), the largest (KiB) or the sum
// (counts).
void run_sweep(const Args& args, std::size_t swept, Report& report);

}  // namespace workload
