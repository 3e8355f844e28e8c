// freestone-workload: picks the workload, runs it, adds what the process as a whole used, prints the report.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "clock.h"
#include "histogram.h"
#include "laws.h"
#include "points.h"
#include "process.h"
#include "registry.h"

namespace workload {
namespace {

void list_json() {
  Text text;
  text.put("{\"schema\":\"freestone-workloads/1\",\"workloads\":[");
  for (const Workload* workload : kWorkloads) {
    if (workload->hidden) continue;
    text.put("%s{\"name\":\"%s\",\"summary\":", text.comma(), workload->name);
    text.put_string(workload->summary);
    text.put(",\"params\":[");
    for (std::size_t i = 0; i < workload->size(); ++i) {
      const Param& param = workload->param(i);
      text.put("%s{\"name\":\"%s\",\"default\":\"%s\",", text.comma(), param.name, param.fallback);
      if (param.kind == Param::Kind::choice) {
        text.put("\"kind\":\"choice\",\"choices\":[\"");
        for (const char* c = param.choices; *c != 0; ++c) {
          if (*c == '|')
            text.put("\",\"");
          else
            text.put("%c", *c);
        }
        text.put("\"]");
      } else {
        text.put("\"kind\":\"integer\",\"low\":%lu,\"high\":%lu,\"unit\":\"%s\",\"list\":%s", param.low, param.high,
                 param.unit, param.sweeps ? "true" : "false");
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
  for (std::size_t i = 0; i < workload.size(); ++i) {
    const Param& param = workload.param(i);
    text.put("  --%s=%s", param.name, param.fallback);
    if (param.kind == Param::Kind::choice)
      text.put("  (%s)\n", param.choices);
    else
      text.put("  (%lu ... %lu%s%s%s)\n", param.low, param.high, *param.unit ? " " : "", param.unit,
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
      "freestone-workload NAME [...] --help          its parameters; those given are checked first\n"
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
  text.put("{\"count\":%lu,\"mean\":", histogram.total());
  text.put_number(histogram.mean());
  text.put(",\"percentiles\":[");
  for (const char* word : std::span(words, static_cast<std::size_t>(count))) {
    char* end = nullptr;
    const double q = std::strtod(word, &end);
    if (end == word || *end != 0 || !(q >= 0 && q <= 1))
      usage_error("percentiles", "'%s': expected a share between 0 and 1", word);
    text.put("%s", text.comma());
    text.put_number(histogram.percentile(q));
  }
  text.put("]}\n");
  text.write_to(STDOUT_FILENO);
  return 0;
}

void add_process_figures(const Args& args, Report& report, double start_kib) {
  double peak = std::max(peak_resident_kib(), start_kib);
  report.add("start_rss", start_kib, "KiB", Better::neither);
  report.add("own_tables", static_cast<double>(own_bytes_peak.load()) / 1024, "KiB", Better::neither);
  report.add("all_faults", faults_of_process(), "count", Better::neither);
  if (const std::uint64_t idle = args.number("idle-ms"); idle != 0) {
    sleep_ms(idle);
    const double kib = resident_kib();
    report.add("idle_rss", kib, "KiB", Better::lower);
    peak = std::max(peak, kib);  // VmHWM lags behind the exact count by a few pages per processor
  }
  report.add("peak_rss", peak, "KiB", Better::lower);
}

int run(const Workload& workload, int count, char** words, int point_fd) {
  static OwnArray<Report> place(1);
  Report& report = *new (&place[0]) Report;
  Args args;
  Args::parse(workload, count, words, args);
  const double start_kib = resident_kib();
  if (const std::size_t swept = args.swept_index(); swept < workload.size()) {
    run_sweep(args, swept, report);
  } else {
    workload.run(args, report);
    add_process_figures(args, report, start_kib);
  }
  if (report.tally.null_answers != 0)
    report.caveat("%lu allocations were answered with NULL: no figure of this run is valid", report.tally.null_answers);
  if (report.tally.corrupted != 0)
    report.caveat("the contents of %lu blocks were changed: no figure of this run is valid", report.tally.corrupted);
  return point_fd >= 0 ? hand_over(report, point_fd) : report.print(args);
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
    if (name == "laws")
      dump_laws();
    else if (json)
      list_json();
    else
      list_plain();
    return 0;
  }
  if (name == "percentiles") return percentiles(argc - 2, argv + 2);
  for (const Workload* workload : kWorkloads) {
    if (name != workload->name) continue;
    const auto asks = [](const char* word) { return std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0; };
    const int words = static_cast<int>(std::remove_if(argv + 2, argv + argc, asks) - (argv + 2));
    if (words == argc - 2) return run(*workload, words, argv + 2, point_fd);
    Args args;
    Args::parse(*workload, words, argv + 2, args);
    help(*workload);
    return 0;
  }
  usage_error(argv[1], "there is no such workload; 'freestone-workload list' names them all");
}

}  // namespace
}  // namespace workload

int main(int argc, char** argv) { return workload::command(argc, argv); }
