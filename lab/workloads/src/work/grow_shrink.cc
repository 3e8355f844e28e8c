// `grow-shrink`: heaps that grow by so many MiB and shrink again, cycle after cycle: what giving memory back and taking
// it costs.
#include <algorithm>

#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kStride = 7919;  // each cycle begins elsewhere in the drawn sizes

void run_grow_shrink(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t swing = (args.number("mib") << 20) / threads;
  const std::uint64_t cycles = args.number("cycles");
  const std::uint64_t low = args.number("low");
  const std::uint64_t high = args.number("high");
  if (low > high)
    usage_error("grow-shrink", "--low=%llu: expected at most --high=%llu", static_cast<unsigned long long>(low),
                static_cast<unsigned long long>(high));
  const auto touch = static_cast<Touch>(args.pick("touch"));
  double base = 0;
  double grown = 0;
  double shrunk = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<std::uint32_t> sizes(1u << 14);
    for (auto& size : sizes) size = random.between(low, high);
    const std::size_t most = swing / low + 2;
    OwnArray<Block> blocks(most);
    OwnArray<Block> floor(std::max<std::size_t>(most / 16, 1));  // what stays: a sixteenth of the blocks, scattered
    std::size_t kept = 0;
    std::uint32_t number = lane.index() << 26;
    lane.alone([&] { base = static_cast<double>(resident_exact_kib()); });
    for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
      std::size_t count = 0;
      std::uint64_t live = 0;
      lane.start();
      Tally tally;
      for (; live < swing && count < most; ++count) {
        take(blocks[count], sizes[(cycle * kStride + count) & (sizes.size() - 1)], number++, touch, tally);
        live += std::max<std::uint64_t>(blocks[count].bytes, 1);
      }
      lane.tally.add(tally);
      lane.stop();
      if (cycle + 1 == cycles) lane.alone([&] { grown = static_cast<double>(resident_exact_kib()); });
      if (cycle == 0)
        for (std::size_t i = 0; i < count && kept < floor.size(); i += 16) std::swap(floor[kept++], blocks[i]);
      shuffle(blocks.data(), count, random);
      lane.start();
      Tally freed;
      for (std::size_t i = 0; i < count; ++i) give(blocks[i], touch, freed);
      lane.tally.add(freed);
      lane.stop();
    }
    lane.alone([&] { shrunk = static_cast<double>(resident_exact_kib()); });
    for (std::size_t i = 0; i < kept; ++i) give(floor[i], touch, lane.tally);
  });
  report.add("cycle_ms", timing.seconds * 1e3 / static_cast<double>(cycles), "ms", Better::lower, cycles);
  report.add("faults_per_cycle", static_cast<double>(timing.faults) / static_cast<double>(cycles), "count",
             Better::neither, cycles);
  report.add("rss_grown", grown - base, "KiB", Better::lower);
  report.add("rss_shrunk", shrunk - base, "KiB", Better::lower);
  add_timing(report, timing, threads);
  report.caveat(
      "a sixteenth of the first cycle's blocks stays, scattered; KiB above the resident memory at the start, right "
      "after a cycle");
}

constexpr Param kParams[] = {
    integer("mib", "64", 1, 16384, "MiB", "by how much all threads together grow and shrink"),
    integer("cycles", "30", 1, 1000000, "", "how often"),
    swept("threads", "1", 1, 1024, "", "threads whose heaps do so at the same time"),
    integer("low", "1K", 1, 16777216, "B", "the smallest block"),
    integer("high", "16K", 1, 16777216, "B", "the largest block"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kGrowShrink{"grow-shrink", "heaps that grow and shrink by so many MiB, cycle after cycle", kParams,
                           run_grow_shrink};

}  // namespace workload
