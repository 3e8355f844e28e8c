// `latency`: how long single calls of malloc and free take, as percentiles. Every call is timed by the processor's
// counter; the cost of an empty pair of readings is measured in the same process and removed from each sample.
#include <cstdio>
#include <cstdlib>

#include "clock.h"
#include "histogram.h"
#include "laws.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kDrawn = 1u << 16;
constexpr std::uint64_t kDeepTail = 1'000'000;  // samples that a p99.99 needs

std::uint64_t empty_reading() {
  const std::uint64_t before = ticks_before();
  return ticks_after() - before;
}

std::uint64_t measure_clock_cost() {
  Histogram cost;
  for (int i = 0; i < 100000; ++i) cost.record(empty_reading());
  return static_cast<std::uint64_t>(cost.percentile(0.5));
}

std::uint64_t without(std::uint64_t ticks, std::uint64_t cost) { return ticks > cost ? ticks - cost : 0; }

void add_percentiles(Report& report, const char* call, const Histogram& histogram, double scale, bool curve) {
  constexpr struct {
    const char* name;
    double share;
    std::uint64_t least;
  } kPoints[] = {
      {"p50", .5, 1}, {"p90", .9, 1000}, {"p99", .99, 10000}, {"p99_9", .999, 100000}, {"p99_99", .9999, kDeepTail}};
  char name[48];
  for (const auto& point : kPoints) {
    if (histogram.total() < point.least) continue;
    std::snprintf(name, sizeof name, "%s_%s", call, point.name);
    report.add(name, histogram.percentile(point.share) * scale, "ns", Better::lower, histogram.total());
  }
  std::snprintf(name, sizeof name, "%s_mean", call);
  report.add(name, histogram.mean() * scale, "ns", Better::neither, histogram.total());
  std::snprintf(name, sizeof name, "%s_max", call);
  report.add(name, static_cast<double>(histogram.largest()) * scale, "ns", Better::neither, histogram.total());
  if (!curve) return;
  std::snprintf(name, sizeof name, "%s_ccdf", call);
  Series& series = report.curve(name, 1024);
  histogram.each_ccdf_point([&](double ticks, double beyond) { series.add(ticks * scale, beyond); });
}

void run_latency(const Args& args, Report& report) {
  TickScale scale;
  const unsigned threads = args.threads();
  const std::size_t bytes = args.number("size");
  const bool mixed = args.pick("law") == 1;
  const auto live = static_cast<std::uint32_t>(args.number("live"));
  const auto touch = static_cast<Touch>(args.pick("touch"));
  std::uint64_t samples = args.number("samples");
  if (samples == 0) samples = mixed || bytes <= 65536 ? kDeepTail : kDeepTail / 5;
  const std::uint64_t steps = (samples + threads - 1) / threads;
  const std::uint64_t cost = measure_clock_cost();
  Histogram malloc_ticks;
  Histogram free_ticks;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<std::uint32_t> picks(kDrawn);
    OwnArray<std::uint32_t> sizes(mixed ? kDrawn : 1);
    for (auto& pick : picks) pick = random.below(live);
    for (auto& size : sizes) size = mixed ? draw_log_uniform(random) : static_cast<std::uint32_t>(bytes);
    OwnArray<Block> slots(live);
    Histogram mallocs;
    Histogram frees;
    std::uint32_t number = lane.index() << 26;
    const std::uint32_t size_mask = mixed ? kDrawn - 1 : 0;
    for (std::uint32_t i = 0; i < live; ++i) take(slots[i], sizes[i & size_mask], number++, touch, lane.tally);
    lane.start();
    Tally tally;
    for (std::uint64_t step = 0; step < steps; ++step) {
      Block& slot = slots[picks[step % kDrawn]];
      if (slot.at != nullptr) {
        inspect(slot, touch, tally);
        hide(slot.at);
        const std::uint64_t before = ticks_before();
        std::free(slot.at);
        frees.record(without(ticks_after() - before, cost));
        ++tally.frees;
      }
      const std::size_t size = sizes[(step + live) & size_mask];
      const std::uint64_t before = ticks_before();
      void* at = std::malloc(size);
      const std::uint64_t after = ticks_after();
      hide(at);
      mallocs.record(without(after - before, cost));
      accept(slot, at, size, number++, touch, tally);
    }
    lane.tally.add(tally);
    lane.stop();
    for (auto& slot : slots) give(slot, touch, lane.tally);
    for (unsigned turn = 0; turn < lane.count(); ++turn) {
      if (turn == lane.index()) {
        malloc_ticks.merge(mallocs);
        free_ticks.merge(frees);
      }
      lane.meet();
    }
  });
  Histogram empty;
  for (int i = 0; i < 100000; ++i) empty.record(without(empty_reading(), cost));
  const double ns = scale.ns_per_tick();
  const bool curve = args.swept_index() == args.size();
  add_percentiles(report, "malloc", malloc_ticks, ns, curve);
  add_percentiles(report, "free", free_ticks, ns, curve);
  report.add("clock_cost", static_cast<double>(cost) * ns, "ns", Better::neither, 100000);
  report.add("empty_p50", empty.percentile(0.5) * ns, "ns", Better::neither, empty.total());
  report.add("tick", ns, "ns", Better::neither);
  add_timing(report, timing, threads);
  report.caveat(
      "the clock's median cost is removed from each sample; the fences around a call keep it from overlapping its "
      "neighbours");
  if (malloc_ticks.total() < kDeepTail) report.caveat("p99.99 needs a million samples and is left out below that");
}

constexpr Param kParams[] = {
    swept("size", "64", 1, std::uint64_t{1} << 30, "B", "bytes of every block (with --law=fixed)"),
    swept("threads", "1", 1, 256, "", "threads, each with blocks of its own"),
    choice("law", "fixed", "fixed|mixed", "sizes: all of --size, or 16 B ... 64 KiB with every octave equally likely"),
    integer("live", "1000", 1, 1000000, "",
            "blocks live in each thread, replaced at random; 1: the last block freed is the next one allocated"),
    integer("samples", "0", 0, 10000000000, "",
            "timed calls of malloc, and of free, over all threads; 0: 1,000,000, above 64 KiB 200,000"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kLatency{"latency", "percentiles of single malloc and free calls, the clock's own cost removed", kParams,
                        run_latency};

}  // namespace workload
