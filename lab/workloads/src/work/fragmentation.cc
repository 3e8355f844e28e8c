// `fragmentation`: a long run with a constant number of live bytes whose sizes change from phase to phase. In each
// phase nine of ten bytes are freed in random order and allocated again in another band of sizes; the last tenth stays,
// scattered.
#include <algorithm>

#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Band {
  std::uint32_t low, high;
};
// Small to large and back: room that one band left must serve the next one.
constexpr Band kBands[] = {{48, 128},     {200, 700},  {1000, 3000},   {32, 96},
                           {4000, 12000}, {300, 1500}, {16000, 60000}, {64, 2048}};

struct Heap {
  OwnArray<Block> blocks;
  std::uint32_t count = 0;
  std::uint64_t live = 0;
};

void run_fragmentation(const Args& args, Report& report) {
  const std::uint64_t target = args.number("live-mib") << 20;
  const std::uint64_t phases = args.number("phases");
  const std::uint64_t survivors = args.number("survivors");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  Series& ratio = report.curve("memory_over_live", phases);
  double sum = 0;
  double worst = 0;
  double last = 0;
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    const std::size_t most = target / 32 + 1024;
    Heap heap{OwnArray<Block>(most), 0, 0};
    OwnArray<std::uint32_t> sizes(most);
    const auto base = static_cast<double>(resident_exact_kib());
    std::uint32_t number = 0;
    for (std::uint64_t phase = 0; phase < phases; ++phase) {
      const Band band = kBands[phase % std::size(kBands)];
      if (phase != 0) shuffle(heap.blocks.data(), heap.count, random);
      std::uint32_t drawn = 0;
      std::uint64_t planned = 0;
      for (const std::uint64_t room = target - target * (phase != 0 ? survivors : 0) / 100;
           planned < room && drawn < most; ++drawn)
        planned += sizes[drawn] = random.between(band.low, band.high);
      lane.start();
      Tally tally;
      while (phase != 0 && heap.count != 0 && heap.live > target * survivors / 100) {
        Block& block = heap.blocks[--heap.count];
        heap.live -= block.bytes;
        give(block, touch, tally);
      }
      for (std::uint32_t i = 0; i < drawn && heap.count < most && heap.live < target; ++i) {
        Block& block = heap.blocks[heap.count];
        take(block, sizes[i], number++, touch, tally);
        if (block.at == nullptr) continue;
        heap.live += block.bytes;
        ++heap.count;
      }
      lane.tally.add(tally);
      lane.stop();
      last = (static_cast<double>(resident_exact_kib()) - base) * 1024 /
             static_cast<double>(std::max<std::uint64_t>(heap.live, 1));
      ratio.add(static_cast<double>(phase), last);
      sum += last;
      worst = std::max(worst, last);
    }
    for (std::uint32_t i = 0; i < heap.count; ++i) give(heap.blocks[i], touch, lane.tally);
  });
  report.add("memory_over_live_mean", sum / static_cast<double>(phases), "ratio", Better::lower, phases);
  report.add("memory_over_live_worst", worst, "ratio", Better::lower, phases);
  report.add("memory_over_live_last", last, "ratio", Better::lower);
  report.add("pair_ns", timing.seconds * 1e9 / static_cast<double>(timing.allocations), "ns", Better::lower,
             timing.allocations);
  add_timing(report, timing, 1);
}

constexpr Param kParams[] = {
    integer("live-mib", "64", 1, 16384, "MiB", "requested bytes that are live at the end of each phase"),
    integer("phases", "32", 2, 10000, "",
            "phases; the band of sizes changes with each, through eight bands from 32 B to 60 KB"),
    integer("survivors", "10", 0, 90, "%", "share of the live bytes that a phase leaves in place"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kFragmentation{"fragmentation", "resident over live bytes in a long run with changing sizes", kParams,
                              run_fragmentation};

}  // namespace workload
