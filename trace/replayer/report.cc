#include "replayer/report.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace freestone::trace {
namespace {

const char* malloc_owner() {
  Dl_info about{};
  return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &about) && about.dli_fname ? about.dli_fname : "";
}

class Figures {
 public:
  void add(const char* name, double value, const char* unit, const char* label, uint64_t samples) {
    std::printf("%s\"%s\":{\"value\":%.9g,\"unit\":\"%s\",\"better\":\"lower\",\"label\":\"%s\",\"samples\":%llu}",
                first_ ? "" : ",", name, value, unit, label, static_cast<unsigned long long>(samples));
    first_ = false;
  }

 private:
  bool first_ = true;
};

struct Times {
  const Outcome& outcome;
  double ns(double cycles) const { return std::max(0.0, cycles - outcome.clock_cycles) / outcome.cycles_per_ns; }
  double mean(const Histogram& of) const {
    return of.timed ? ns(static_cast<double>(of.sum) / static_cast<double>(of.timed)) : 0;
  }
  double seconds(const Histogram& of) const { return mean(of) * static_cast<double>(of.calls) / 1e9; }
};

void print_figures(const RunOptions& options, const Outcome& outcome) {
  const Times times{outcome};
  const uint64_t births = outcome.births.calls, deaths = outcome.deaths.calls;
  const double whole = outcome.cpu_s - outcome.own_s;
  Figures figures;
  if (whole > 0) figures.add("whole", whole, "s", "CPU time of the replay, less its own", 1);
  figures.add("calls", times.seconds(outcome.births) + times.seconds(outcome.deaths), "s", "time in malloc and free",
              births + deaths);
  figures.add("rss", outcome.peak_kib, "KiB", options.own_kib < 0 ? "peak memory" : "peak memory with start-up", 1);
  figures.add("rss_mean", outcome.mean_kib, "KiB", "mean memory", outcome.resident_kib.size());
  figures.add("rss_idle", outcome.idle_kib, "KiB", "memory after idle", 1);
  if (outcome.live_mean_kib > 0)
    figures.add("rss_over_live", outcome.mean_kib / outcome.live_mean_kib, "ratio", "resident over live",
                outcome.resident_kib.size());
  figures.add("malloc_ns", times.mean(outcome.births), "ns", "mean of malloc", births);
  figures.add("malloc_p50", times.ns(outcome.births.percentile(0.5)), "ns", "median of malloc", births);
  figures.add("malloc_p999", times.ns(outcome.births.percentile(0.999)), "ns", "99.9 % of malloc", births);
  figures.add("free_ns", times.mean(outcome.deaths), "ns", "mean of free", deaths);
  figures.add("free_p50", times.ns(outcome.deaths.percentile(0.5)), "ns", "median of free", deaths);
  figures.add("free_p999", times.ns(outcome.deaths.percentile(0.999)), "ns", "99.9 % of free", deaths);
  figures.add("faults", static_cast<double>(outcome.faults), "count", "page faults", 1);
  figures.add("replay", outcome.wall_s, "s", "time of the whole replay", 1);
}

}  // namespace

void print_report(const Plan& plan, const RunOptions& options, const Outcome& outcome) {
  const PlanHeader& header = plan.header();
  std::printf(
      "{\"schema\":\"freestone-workload/"
      "1\",\"workload\":\"replay\",\"params\":{\"copies\":%u,\"pace\":%g,\"threads\":%llu},\"figures\":{",
      options.copies, options.pace, static_cast<unsigned long long>(header.threads));
  print_figures(options, outcome);
  std::printf("},\"series\":{\"heap\":[");
  const size_t windows = outcome.resident_kib.size();
  for (size_t i = 0; i < windows; i++)
    std::printf("%s[%.6g,%.0f]", i ? "," : "", static_cast<double>(plan.windows()[i].time_ns) / 1e9,
                outcome.resident_kib[i]);
  std::printf("],\"live\":[");
  for (size_t i = 0; i < windows; i++)
    std::printf("%s[%.6g,%.0f]", i ? "," : "", static_cast<double>(plan.windows()[i].time_ns) / 1e9,
                static_cast<double>(plan.windows()[i].live_bytes) / 1024);
  std::printf(
      "]},\"calls\":%llu,\"failures\":%llu,\"checksum\":\"%016llx\",\"malloc_owner\":\"%s\",\"peak_live_kib\":%.0f,"
      "\"clock_ns\":%.2f,\"dropped\":%llu,\"cpu_s\":%.9g,\"own_s\":%.9g,\"begin_kib\":%.0f,"
      "\"caveats\":[]}\n",
      static_cast<unsigned long long>(outcome.births.calls + outcome.deaths.calls),
      static_cast<unsigned long long>(outcome.failures), static_cast<unsigned long long>(outcome.checksum),
      malloc_owner(), static_cast<double>(header.peak_live_bytes) / 1024, outcome.clock_cycles / outcome.cycles_per_ns,
      static_cast<unsigned long long>(header.dropped), outcome.cpu_s, outcome.own_s, outcome.begin_kib);
}

}  // namespace freestone::trace
