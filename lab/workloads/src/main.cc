// freestone-workload: picks the workload, runs it, adds what the process as a whole used, prints the report.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "clock.h"
#include "histogram.h"
#include "laws_dump.h"
#include "points.h"
#include "process.h"
#include "registry.h"

namespace workload {
namespace {

void print_number(Text& text, std::uint64_t value) { text.put("%llu", static_cast<unsigned long long>(value)); }

void list_json() {
  Text text;
  text.put("{\"schema\":\"freestone-workloads/1\",\"workloads\":[");
  bool first = true;
  for (const Workload* workload : kWorkloads) {
    if (workload->hidden) continue;
    text.put("%s{\"name\":\"%s\",\"summary\":", first ? "" : ",", workload->name);
    first = false;
    text.put_string(workload->summary);
    text.put(",\"params\":[");
    const std::size_t own = workload->params.size();
    for (std::size_t i = 0; i < own + common_params().size(); ++i) {
      const Param& param = i < own ? workload->params[i] : common_params()[i - own];
      text.put("%s{\"name\":\"%s\",\"default\":\"%s\",", i ? "," : "", param.name, param.fallback);
      if (param.kind == Param::Kind::choice) {
        text.put("\"kind\":\"choice\",\"choices\":[\"");
        for (const char* c = param.choices; *c != 0; ++c) {
          if (*c == '|') text.put("\",\"");
          else text.put("%c", *c);
        }
        text.put("\"]");
      } else {
        text.put("\"kind\":\"integer\",\"low\":");
        print_number(text, param.low);
        text.put(",\"high\":");
        print_number(text, param.high);
        text.put(",\"unit\":\"%s\",\"list\":%s", param.unit, param.sweeps ? "true" : "false");
      }
      text.put(",\"help\":");
      text.put_string(param.help);
      text.put("}");
    }
    text.put("]}");
  }
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
}

void list_plain() {
  Text text;
  for (const Workload* workload : kWorkloads)
    if (!workload->hidden) text.put("%-15s %s\n", workload->name, workload->summary);
  text.write_to(STDOUT_FILENO);
}

void help(const Workload& workload) {
  Text text;
  text.put("freestone-workload %s: %s\n\n", workload.name, workload.summary);
  const std::size_t own = workload.params.size();
  for (std::size_t i = 0; i < own + common_params().size(); ++i) {
    const Param& param = i < own ? workload.params[i] : common_params()[i - own];
    text.put("  --%s=%s", param.name, param.fallback);
    if (param.kind == Param::Kind::choice)
      text.put("  (%s)\n", param.choices);
    else
      text.put("  (%llu ... %llu%s%s%s)\n", static_cast<unsigned long long>(param.low),
               static_cast<unsigned long long>(param.high), *param.unit ? " " : "", param.unit,
               param.sweeps ? "; or a list, one fresh process per value" : "");
    text.put("      %s\n", param.help);
  }
  text.put(
      "\nPrints one JSON object. Exit status: 0 measured, 2 wrong parameter, 3 an allocation failed or contents were "
      "changed.\n");
  text.write_to(STDOUT_FILENO);
}

void general_help() {
  std::fputs(
      "freestone-workload NAME [--param=value ...]   runs one workload, prints one JSON object\n"
      "freestone-workload NAME --help                its parameters\n"
      "freestone-workload list [--json]              all workloads\n"
      "freestone-workload laws [--json]              draws from every law, for checks against the formulas\n"
      "freestone-workload percentiles Q...           percentiles of the whole numbers on stdin, as the reports compute "
      "them\n"
      "Examples:\n"
      "  freestone-workload throughput --size=2^4..2^20 --threads=2\n"
      "  LD_PRELOAD=/path/libx.so freestone-workload latency --size=64\n",
      stdout);
}

int percentiles(int count, char** words) {
  Histogram histogram;
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) histogram.record(std::strtoull(line, nullptr, 10));
  Text text;
  text.put("{\"count\":%llu,\"mean\":", static_cast<unsigned long long>(histogram.total()));
  text.put_number(histogram.mean());
  text.put(",\"percentiles\":[");
  for (int i = 0; i < count; ++i) {
    char* end = nullptr;
    const double q = std::strtod(words[i], &end);
    if (end == words[i] || *end != 0 || !(q >= 0 && q <= 1))
      usage_error("percentiles", "'%s': expected a share between 0 and 1", words[i]);
    text.put("%s", i ? "," : "");
    text.put_number(histogram.percentile(q));
  }
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
  return 0;
}

void add_process_figures(const Args& args, Report& report, std::uint64_t start_kib) {
  std::uint64_t peak = std::max(peak_resident_kib(), start_kib);
  report.add("start_rss", static_cast<double>(start_kib), "KiB", Better::neither);
  report.add("own_tables", static_cast<double>(own_bytes_peak.load()) / 1024, "KiB", Better::neither);
  report.add("all_faults", static_cast<double>(minor_faults_process()), "count", Better::neither);
  if (const std::uint64_t idle = args.number("idle-ms"); idle != 0) {
    sleep_ms(idle);
    const std::uint64_t kib = resident_exact_kib();
    report.add("idle_rss", static_cast<double>(kib), "KiB", Better::lower);
    peak = std::max(peak, kib);  // VmHWM lags behind the exact count by a few pages per processor
  }
  report.add("peak_rss", static_cast<double>(peak), "KiB", Better::lower);
}

int run(const Workload& workload, int count, char** words, int point_fd) {
  static OwnArray<Report> place(1);
  Report& report = *new (&place[0]) Report;
  Args args;
  Args::parse(workload, count, words, args);
  const std::uint64_t start_kib = resident_exact_kib();
  if (const std::size_t swept = args.swept_index(); swept < args.size()) {
    run_sweep(args, swept, report);
  } else {
    workload.run(args, report);
    add_process_figures(args, report, start_kib);
  }
  if (report.tally.null_answers != 0)
    report.caveat("%llu allocations were answered with NULL: no figure of this run is valid",
                  static_cast<unsigned long long>(report.tally.null_answers));
  if (report.tally.corrupted != 0)
    report.caveat("the contents of %llu blocks were changed: no figure of this run is valid",
                  static_cast<unsigned long long>(report.tally.corrupted));
  if (point_fd >= 0) return hand_over(report, point_fd);
  return report.print(args);
}

int command(int argc, char** argv) {
  int point_fd = -1;
  if (argc > 1 && std::strcmp(argv[1], "--point-fd=9") == 0) {
    point_fd = 9;
    --argc;
    ++argv;
  }
  if (argc < 2) usage_error("", "no workload is named; 'freestone-workload list' names them all");
  const std::string_view name = argv[1];
  if (name == "--help" || name == "-h" || name == "help") {
    general_help();
    return 0;
  }
  if (name == "list" || name == "laws") {
    const bool json = argc == 3 && std::strcmp(argv[2], "--json") == 0;
    if (argc > 2 && !json) usage_error(argv[1], "'%s': the only parameter is --json", argv[2]);
    if (name == "laws") dump_laws();
    else if (json) list_json();
    else list_plain();
    return 0;
  }
  if (name == "percentiles") return percentiles(argc - 2, argv + 2);
  for (const Workload* workload : kWorkloads) {
    if (name != workload->name) continue;
    for (int i = 2; i < argc; ++i)
      if (std::strcmp(argv[i], "--help") == 0 || std::strcmp(argv[i], "-h") == 0) {
        help(*workload);
        return 0;
      }
    return run(*workload, argc - 2, argv + 2, point_fd);
  }
  usage_error(argv[1], "there is no such workload; 'freestone-workload list' names them all");
}

}  // namespace
}  // namespace workload

int main(int argc, char** argv) { return workload::command(argc, argv); }
