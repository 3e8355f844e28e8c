// `startup`: an empty program is started again and again: its time from start to end, its resident memory and its page
// faults.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "clock.h"
#include "histogram.h"
#include "points.h"
#include "process.h"
#include "registry.h"

extern char** environ;

namespace workload {
namespace {

// One bare start; answers nanoseconds from before the fork to the end of the process, 0 when it did not end well.
std::uint64_t start_once() {
  const char* argv[] = {"freestone-workload", "nothing", nullptr};
  const std::uint64_t begin = now_ns();
  const pid_t child = ::vfork();
  if (child == 0) {
    ::execve("/proc/self/exe", const_cast<char* const*>(argv), environ);
    ::_exit(1);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 0;
  return status == 0 ? now_ns() - begin : 0;
}

void run_startup(const Args& args, Report& report) {
  Histogram ns;
  for (std::uint64_t i = 0; i < args.number("runs"); ++i) {
    const std::uint64_t took = start_once();
    if (took == 0) {
      ++report.other_failures;
      report.caveat("an empty program did not start or did not end well");
      return;
    }
    ns.record(took);
  }
  static OwnArray<Report> place(1);
  Report& part = *new (&place[0]) Report;
  const char* words[] = {"nothing", "--report=yes"};
  run_point(words, part);
  absorb(report, part);
  report.add("start_time", ns.percentile(.5) * 1e-3, "us", Better::lower, ns.total());
  report.add("start_p90", ns.percentile(.9) * 1e-3, "us", Better::lower, ns.total());
  for (std::size_t i = 0; i < part.figure_count; ++i)
    report.add(part.figures[i].name, part.figures[i].value, part.figures[i].unit, part.figures[i].better,
               part.figures[i].samples);
  report.caveat(
      "the time is of fork, exec, dynamic linking and exit together; the empty program is linked with libstdc++ and "
      "does nothing");
}

// `nothing` ends at once, without a report; with --report=yes it says what it weighs.
void run_nothing(const Args& args, Report& report) {
  if (!args.yes("report")) ::_exit(0);
  const std::uint64_t faults = minor_faults_process();
  report.add("empty_rss", static_cast<double>(resident_exact_kib()), "KiB", Better::lower);
  report.add("empty_faults", static_cast<double>(faults), "count", Better::lower);
}

constexpr Param kParams[] = {integer("runs", "200", 1, 1000000, "", "starts that are timed")};
constexpr Param kNothingParams[] = {choice("report", "no", "yes|no", "tell what the process weighs")};

}  // namespace

const Workload kStartup{"startup", "time, resident memory and page faults of an empty program", kParams, run_startup};
const Workload kNothing{"nothing", "the empty program that startup starts", kNothingParams, run_nothing, true};

}  // namespace workload
