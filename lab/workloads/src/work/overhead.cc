// `overhead`: what a request costs in memory. `usable` is what the allocator says a block can hold, for every size;
// `rss` is what the kernel counts per block when many blocks of one size are live and written, each size in a fresh
// process.
#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "points.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

// The next size of the grid: steps of 1 up to 1024, then 512 (published) or 32 (coarse) steps per doubling.
std::uint64_t next_size(std::uint64_t size, std::uint64_t steps) {
  if (size < 1024) return size + 1;
  std::uint64_t octave = 1024;
  while (octave * 2 <= size) octave *= 2;
  return size + octave / steps;
}

struct Usable {
  std::uint64_t sizes = 0;
  double overhead_sum = 0;  // of (usable - requested) / requested
  double worst = 0;
  std::uint64_t worst_size = 0;
  std::uint64_t small_sizes = 0;  // 16 ... 1024
  double small_sum = 0;
};

double percent(std::size_t got, std::uint64_t asked) {
  return 100 * (static_cast<double>(got) / static_cast<double>(asked) - 1);
}

void ask_usable(const Args& args, Report& report) {
  const std::uint64_t steps = args.pick("grid") == 0 ? 32 : 512;
  Series& curve = report.curve("usable_overhead_percent", 2 * (24 * 512 + 2048));
  Usable sum;
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
    const double extra = (static_cast<double>(usable) - static_cast<double>(size)) / static_cast<double>(size);
    ++sum.sizes;
    sum.overhead_sum += extra;
    if (size >= 16 && size <= 1024) {
      ++sum.small_sizes;
      sum.small_sum += extra;
    }
    if (size >= 16 && extra > sum.worst) {
      sum.worst = extra;
      sum.worst_size = size;
    }
    if (usable != last_usable) {
      if (last_size != 0) curve.add(static_cast<double>(last_size), percent(last_usable, last_size));
      curve.add(static_cast<double>(size), percent(usable, size));
    }
    last_usable = usable;
    last_size = size;
  }
  report.add("usable_overhead_small", 100 * sum.small_sum / static_cast<double>(sum.small_sizes), "%", Better::lower,
             sum.small_sizes);
  report.add("usable_overhead_all", 100 * sum.overhead_sum / static_cast<double>(sum.sizes), "%", Better::lower,
             sum.sizes);
  report.add("usable_overhead_worst", 100 * sum.worst, "%", Better::lower, sum.sizes);
  report.add("usable_overhead_worst_size", static_cast<double>(sum.worst_size), "B", Better::neither);
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
  static OwnArray<Report> place(1);
  double small_sum = 0;
  unsigned small = 0;
  for (std::uint64_t base = 8; base <= args.number("rss-top"); base *= 2) {
    // A power of two, one above it (where a size class is left behind), and half-way to the next one.
    for (const std::uint64_t size : {base, base + 1, base + base / 2}) {
      if (size > args.number("rss-top")) continue;
      char size_word[48], budget_word[48];
      std::snprintf(size_word, sizeof size_word, "--size=%llu", static_cast<unsigned long long>(size));
      std::snprintf(budget_word, sizeof budget_word, "--budget-mib=%llu", static_cast<unsigned long long>(budget));
      const char* words[] = {"overhead-point", size_word, budget_word, "--idle-ms=0"};
      Report& part = *new (&place[0]) Report;
      run_point(words, part);
      absorb(report, part);
      for (std::size_t i = 0; i < part.figure_count; ++i) {
        if (std::strcmp(part.figures[i].name, "rss_per_block") != 0) continue;
        const double value = part.figures[i].value;
        curve.add(static_cast<double>(size), 100 * (value / static_cast<double>(size) - 1));
        if (size < 16 || size > 1024) continue;
        small_sum += value / static_cast<double>(size) - 1;
        ++small;
      }
    }
  }
  if (small != 0) report.add("rss_overhead_small", 100 * small_sum / small, "%", Better::lower, small);
  report.caveat(
      "memory_overhead_percent: resident growth per requested byte with about %llu MiB of blocks live and wholly "
      "written, sizes 2^k, 2^k + 1, 1.5 x 2^k, "
      "each in a fresh process",
      static_cast<unsigned long long>(budget));
}

void run_point_of(const Args& args, Report& report) {
  const std::size_t size = args.number("size");
  const std::size_t count = std::max<std::size_t>(1, (args.number("budget-mib") << 20) / size);
  OwnArray<Block> blocks(count);
  const std::uint64_t before = resident_exact_kib();
  for (std::size_t i = 0; i < count; ++i)
    take(blocks[i], size, static_cast<std::uint32_t>(i), Touch::full, report.tally);
  const std::uint64_t after = resident_exact_kib();
  for (auto& block : blocks) give(block, Touch::full, report.tally);
  report.add("rss_per_block", static_cast<double>(after - std::min(before, after)) * 1024 / static_cast<double>(count),
             "B", Better::lower, count);
}

constexpr Param kParams[] = {
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

}  // namespace

const Workload kOverhead{"overhead", "usable size and resident bytes per request, 1 B to 1 GiB", kParams, run_overhead};
const Workload kOverheadPoint{"overhead-point", "one size of overhead's resident part", kPointParams, run_point_of,
                              true};

}  // namespace workload
