// What is measured in processes of its own, and what a request costs in memory:
//   overhead  `usable` is what the allocator says a block can hold, for every size; `rss` is what the kernel counts per
//             block when many blocks of one size are live and written, each size in a fresh process
//   startup   an empty program is started again and again: its time from start to end, its resident memory and its page
//             faults
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "clock.h"
#include "histogram.h"
#include "points.h"
#include "process.h"
#include "registry.h"

namespace workload {
namespace {

// The next size of the grid: steps of 1 up to 1024, then 512 (published) or 32 (coarse) steps per doubling.
std::uint64_t next_size(std::uint64_t size, std::uint64_t steps) {
  return size + (size < 1024 ? 1 : std::bit_floor(size) / steps);
}

double percent(std::size_t got, std::uint64_t asked) {
  return 100 * (static_cast<double>(got) / static_cast<double>(asked) - 1);
}

void ask_usable(const Args& args, Report& report) {
  const std::uint64_t steps = args.pick("grid") == 0 ? 32 : 512;
  Series& curve = report.curve("usable_overhead_percent", 2 * (24 * 512 + 2048));
  std::uint64_t sizes = 0;
  std::uint64_t small_sizes = 0;  // 16 ... 1024
  double sum = 0;                 // of (usable - requested) / requested, in percent
  double small_sum = 0;
  double worst = 0;
  std::uint64_t worst_size = 0;
  std::size_t last_usable = 0;
  std::uint64_t last_size = 0;
  for (std::uint64_t size = 1; size <= args.number("top"); size = next_size(size, steps)) {
    void* at = std::malloc(size);
    hide(at);
    if (at == nullptr) {
      ++report.tally.null_answers;
      continue;
    }
    ++report.tally.allocations;
    const std::size_t usable = ::malloc_usable_size(at);
    // The first and the last usable byte are written: a block that claims more than it has is found out by a crash.
    static_cast<volatile char*>(at)[0] = 1;
    static_cast<volatile char*>(at)[usable - 1] = 1;
    std::free(at);
    ++report.tally.frees;
    report.tally.checksum += size;
    if (usable < size) ++report.tally.corrupted;
    const double extra = percent(usable, size);
    ++sizes;
    sum += extra;
    if (size >= 16 && size <= 1024) {
      ++small_sizes;
      small_sum += extra;
    }
    if (size >= 16 && extra > worst) {
      worst = extra;
      worst_size = size;
    }
    if (usable != last_usable) {
      if (last_size != 0) curve.add(static_cast<double>(last_size), percent(last_usable, last_size));
      curve.add(static_cast<double>(size), extra);
    }
    last_usable = usable;
    last_size = size;
  }
  report.add("usable_overhead_small", small_sum / static_cast<double>(small_sizes), "%", Better::lower, small_sizes);
  report.add("usable_overhead_all", sum / static_cast<double>(sizes), "%", Better::lower, sizes);
  report.add("usable_overhead_worst", worst, "%", Better::lower, sizes);
  report.add("usable_overhead_worst_size", worst_size, "B", Better::neither);
  report.caveat(
      "the series usable_overhead_percent holds the first and the last size asked for each usable size. The worst is "
      "over sizes from 16 B");
}

void run_overhead(const Args& args, Report& report) {
  if (same_owner_as_malloc("malloc_usable_size")) {
    ask_usable(args, report);
  } else {
    report.caveat(
        "malloc_usable_size does not belong to the library that serves malloc: it is not asked, the usable figures are "
        "absent");
  }
  const std::uint64_t budget = args.number("budget-mib");
  if (budget == 0) return;
  Series& curve = report.curve("memory_overhead_percent", 128);
  double small_sum = 0;
  unsigned small = 0;
  for (std::uint64_t base = 8; base <= args.number("rss-top"); base *= 2) {
    // A power of two, one above it (where a size class is left behind), and half-way to the next one.
    for (const std::uint64_t size : {base, base + 1, base + base / 2}) {
      if (size > args.number("rss-top")) continue;
      char size_word[48], budget_word[48];
      std::snprintf(size_word, sizeof size_word, "--size=%lu", size);
      std::snprintf(budget_word, sizeof budget_word, "--budget-mib=%lu", budget);
      const char* words[] = {"overhead-point", size_word, budget_word, "--idle-ms=0"};
      for (const Figure& figure : run_point(words, report)) {
        if (std::strcmp(figure.name, "rss_per_block") != 0) continue;
        const double extra = 100 * (figure.value / static_cast<double>(size) - 1);
        curve.add(static_cast<double>(size), extra);
        if (size < 16 || size > 1024) continue;
        small_sum += extra;
        ++small;
      }
    }
  }
  if (small != 0) report.add("rss_overhead_small", small_sum / small, "%", Better::lower, small);
  report.caveat(
      "memory_overhead_percent: resident growth per requested byte with about %lu MiB of blocks live and wholly "
      "written, sizes 2^k, 2^k + 1, 1.5 x 2^k, each in a fresh process",
      budget);
}

void run_point_of(const Args& args, Report& report) {
  const std::size_t size = args.number("size");
  const std::size_t count = std::max<std::size_t>(1, (args.number("budget-mib") << 20) / size);
  OwnArray<Block> blocks(count);
  const double before = resident_kib();
  for (std::size_t i = 0; i < count; ++i)
    take(blocks[i], size, static_cast<std::uint32_t>(i), Touch::full, report.tally);
  const double grown = std::max(0.0, resident_kib() - before);
  for (auto& block : blocks) give(block, Touch::full, report.tally);
  report.add("rss_per_block", grown * 1024 / static_cast<double>(count), "B", Better::lower, count);
}

constexpr Param kOverheadParams[] = {
    choice("grid", "coarse", "coarse|published",
           "sizes asked: each up to 1024, then 32 (coarse) or 512 (published) per doubling"),
    integer("top", "1G", 1024, std::uint64_t{1} << 32, "B", "the largest size asked for its usable size"),
    integer("rss-top", "16M", 8, std::uint64_t{1} << 30, "B", "the largest size whose resident memory is measured"),
    integer("budget-mib", "16", 0, 4096, "MiB",
            "about how much is live when resident memory is measured; 0: that part is left out"),
};
constexpr Param kPointParams[] = {
    integer("size", "64", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    integer("budget-mib", "16", 1, 4096, "MiB", "about how much is live"),
};

// One bare start; answers nanoseconds from before the fork to the end of the process, 0 when it did not end well.
std::uint64_t start_once() {
  const char* words[] = {"freestone-workload", "nothing", nullptr};
  const std::uint64_t begin = now_ns();
  const pid_t child = start_again(words);
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
  report.add("start_time", ns.percentile(.5) * 1e-3, "us", Better::lower, ns.total());
  report.add("start_p90", ns.percentile(.9) * 1e-3, "us", Better::lower, ns.total());
  const char* words[] = {"nothing", "--report=yes"};
  for (const Figure& figure : run_point(words, report))
    report.add(figure.name, figure.value, figure.unit, figure.better, figure.samples);
  report.caveat(
      "the time is of fork, exec, dynamic linking and exit together; the empty program is linked with libstdc++ and "
      "does nothing");
}

// `nothing` ends at once, without a report; with --report=yes it says what it weighs.
void run_nothing(const Args& args, Report& report) {
  if (!args.yes("report")) ::_exit(0);
  const std::uint64_t faults = faults_of_process();
  report.add("empty_rss", resident_kib(), "KiB", Better::lower);
  report.add("empty_faults", faults, "count", Better::lower);
}

constexpr Param kStartupParams[] = {integer("runs", "200", 1, 1000000, "", "starts that are timed")};
constexpr Param kNothingParams[] = {choice("report", "no", "yes|no", "tell what the process weighs")};

}  // namespace

const Workload kOverhead{"overhead", "usable size and resident bytes per request, 1 B to 1 GiB", kOverheadParams,
                         run_overhead};
const Workload kOverheadPoint{"overhead-point", "one size of overhead's resident part", kPointParams, run_point_of,
                              true};
const Workload kStartup{"startup", "time, resident memory and page faults of an empty program", kStartupParams,
                        run_startup};
const Workload kNothing{"nothing", "the empty program that startup starts", kNothingParams, run_nothing, true};

}  // namespace workload
