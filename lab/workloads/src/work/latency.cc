// Workloads that time single calls, by the processor's counter. The cost of an empty pair of readings is measured in
// the same process and removed from each sample.
//   latency  how long single calls of malloc and free take, as percentiles
//   ring     every step allocates a block of three size bands, and frees the blocks whose time has come. Two forms:
//     corrected  a block lives U[50,2000] steps; frees happen in the timed part, whole blocks are written and
//                verified
//     published  a ring of 100,000 slots with countdowns that are visited at most three times, so nothing is freed
//                before the clock stops, and the first 64 bytes are touched. It measures allocation into a growing
//                heap, and says so.
#include <cstdio>
#include <cstdlib>

#include "clock.h"
#include "histogram.h"
#include "laws.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

// What an empty pair of readings costs, most of the time.
class ClockCost {
 public:
  explicit ClockCost(unsigned readings) : readings_(readings) {
    Histogram cost;
    for (unsigned i = 0; i < readings; ++i) cost.record(empty_reading());
    ticks_ = static_cast<std::uint64_t>(cost.percentile(0.5));
  }
  std::uint64_t without(std::uint64_t ticks) const { return ticks > ticks_ ? ticks - ticks_ : 0; }
  void add_to(Report& report, double ns) const {
    report.add("clock_cost", static_cast<double>(ticks_) * ns, "ns", Better::neither, readings_);
  }
  static std::uint64_t empty_reading() {
    const std::uint64_t before = ticks_before();
    return ticks_after() - before;
  }

 private:
  unsigned readings_;
  std::uint64_t ticks_ = 0;
};

// The single calls of one thread, or of all.
struct Latencies {
  Histogram mallocs, frees;

  void merge(const Latencies& other) {
    mallocs.merge(other.mallocs);
    frees.merge(other.frees);
  }
  void time_malloc(const ClockCost& cost, Block& block, std::size_t bytes, std::uint32_t number, Touch touch,
                   Tally& tally) {
    const std::uint64_t before = ticks_before();
    void* at = std::malloc(bytes);
    const std::uint64_t ticks = ticks_after() - before;
    hide(at);
    mallocs.record(cost.without(ticks));
    accept(block, at, bytes, number, touch, tally);
  }
  void time_free(const ClockCost& cost, Block& block, Touch touch, Tally& tally) {
    if (block.at == nullptr) return;
    inspect(block, touch, tally);
    hide(block.at);
    const std::uint64_t before = ticks_before();
    std::free(block.at);
    frees.record(cost.without(ticks_after() - before));
    block.at = nullptr;
    ++tally.frees;
  }
};

struct Percentile {
  const char* name;
  double share;
  std::uint64_t least;  // samples that it needs
};

void add_percentiles(Report& report, const char* call, const Histogram& histogram, double ns,
                     std::span<const Percentile> points) {
  char name[48];
  for (const Percentile& point : points) {
    if (histogram.total() < point.least) continue;
    std::snprintf(name, sizeof name, "%s_%s", call, point.name);
    report.add(name, histogram.percentile(point.share) * ns, "ns", Better::lower, histogram.total());
  }
}

constexpr std::uint32_t kDrawn = 1u << 16;
constexpr std::uint64_t kDeepTail = 1'000'000;

void add_latency(Report& report, const char* call, const Histogram& histogram, double ns, bool curve) {
  constexpr Percentile kPoints[] = {
      {"p50", .5, 1}, {"p90", .9, 1000}, {"p99", .99, 10000}, {"p99_9", .999, 100000}, {"p99_99", .9999, kDeepTail}};
  add_percentiles(report, call, histogram, ns, kPoints);
  char name[48];
  std::snprintf(name, sizeof name, "%s_mean", call);
  report.add(name, histogram.mean() * ns, "ns", Better::neither, histogram.total());
  std::snprintf(name, sizeof name, "%s_max", call);
  report.add(name, static_cast<double>(histogram.largest()) * ns, "ns", Better::neither, histogram.total());
  if (!curve) return;
  std::snprintf(name, sizeof name, "%s_ccdf", call);
  Series& series = report.curve(name, 1024);
  histogram.each_ccdf_point([&](double ticks, double beyond) { series.add(ticks * ns, beyond); });
}

void run_latency(const Args& args, Report& report) {
  TickScale scale;
  const unsigned threads = args.threads();
  const std::size_t bytes = args.number("size");
  const bool mixed = args.pick("law") == 1;
  const std::uint32_t live = args.number32("live");
  const Touch touch = args.touch();
  std::uint64_t samples = args.number("samples");
  if (samples == 0) samples = mixed || bytes <= 65536 ? kDeepTail : kDeepTail / 5;
  const std::uint64_t steps = (samples + threads - 1) / threads;
  const ClockCost cost(100000);
  Latencies all;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto picks = drawn(kDrawn, [&] { return random.below(live); });
    const auto sizes =
        drawn(mixed ? kDrawn : 1, [&] { return mixed ? draw_log_uniform(random) : static_cast<std::uint32_t>(bytes); });
    OwnArray<Block> slots(live);
    Latencies own;
    std::uint32_t number = lane.index() << 26;
    const std::uint32_t size_mask = mixed ? kDrawn - 1 : 0;
    for (std::uint32_t i = 0; i < live; ++i) take(slots[i], sizes[i & size_mask], number++, touch, lane.tally);
    lane.timed([&](Tally& tally) {
      for (std::uint64_t step = 0; step < steps; ++step) {
        Block& slot = slots[picks[step % kDrawn]];
        own.time_free(cost, slot, touch, tally);
        own.time_malloc(cost, slot, sizes[(step + live) & size_mask], number++, touch, tally);
      }
    });
    for (auto& slot : slots) give(slot, touch, lane.tally);
    lane.in_turn([&] { all.merge(own); });
  });
  Histogram empty;
  for (int i = 0; i < 100000; ++i) empty.record(cost.without(ClockCost::empty_reading()));
  const double ns = scale.ns_per_tick();
  const bool curve = args.swept_index() == args.workload().size();
  add_latency(report, "malloc", all.mallocs, ns, curve);
  add_latency(report, "free", all.frees, ns, curve);
  cost.add_to(report, ns);
  report.add("empty_p50", empty.percentile(0.5) * ns, "ns", Better::neither, empty.total());
  report.add("tick", ns, "ns", Better::neither);
  add_timing(report, timing, threads);
  report.caveat(
      "the clock's median cost is removed from each sample; the fences around a call keep it from overlapping its "
      "neighbours");
  if (all.mallocs.total() < kDeepTail) report.caveat("p99.99 needs a million samples and is left out below that");
}

constexpr Param kLatencyParams[] = {
    swept("size", "64", 1, std::uint64_t{1} << 30, "B", "bytes of every block (with --law=fixed)"),
    swept("threads", "1", 1, 256, "", "threads, each with blocks of its own"),
    choice("law", "fixed", "fixed|mixed", "sizes: all of --size, or 16 B ... 64 KiB with every octave equally likely"),
    integer("live", "1000", 1, 1000000, "",
            "blocks live in each thread, replaced at random; 1: the last block freed is the next one allocated"),
    integer("samples", "0", 0, 10000000000, "",
            "timed calls of malloc, and of free, over all threads; 0: 1,000,000, above 64 KiB 200,000"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

constexpr std::uint32_t kLongest = 2000;
constexpr std::uint32_t kShortest = 50;

struct Call {
  std::uint32_t slot;
  std::uint32_t bytes;  // 0: free
};

// The calls of one thread in order, drawn before the clock starts. The slot that was freed last is used first.
struct Plan {
  OwnArray<Call> calls;
  std::size_t count = 0;
  std::uint32_t slots = 0;

  Plan(std::uint32_t steps, Random& random) : calls(std::size_t{steps} * 2) {
    OwnArray<std::uint32_t> next(steps);                    // block -> the next block that dies at the same step, + 1
    OwnArray<std::uint32_t> dying(std::size_t{steps} + 1);  // step -> the first block that dies there, + 1
    OwnArray<std::uint32_t> slot_of(steps);
    OwnArray<std::uint32_t> spare(steps);
    std::uint32_t spares = 0;
    for (std::uint32_t step = 0; step < steps; ++step) {
      for (std::uint32_t block = dying[step]; block != 0; block = next[block - 1]) {
        calls[count++] = {slot_of[block - 1], 0};
        spare[spares++] = slot_of[block - 1];
      }
      const std::uint32_t slot = spares != 0 ? spare[--spares] : slots++;
      slot_of[step] = slot;
      calls[count++] = {slot, draw_band_size(random)};
      const std::uint64_t end = step + std::uint64_t{random.between(kShortest, kLongest)};
      if (end >= steps) continue;  // outlives the timed part
      next[step] = dying[end];
      dying[end] = step + 1;
    }
  }
};

void run_corrected(const Args& args, Report& report) {
  TickScale scale;
  const unsigned threads = args.threads();
  const std::uint32_t every = args.number32("sample-every");
  const Touch touch = args.touch();
  const ClockCost cost(20000);
  Latencies all;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const Plan plan(args.number32("steps"), random);
    OwnArray<Block> slots(plan.slots);
    Latencies own;
    lane.timed([&](Tally& tally) {
      std::uint32_t number = lane.index() << 24;
      std::uint32_t until = every;
      for (std::size_t i = 0; i < plan.count; ++i) {
        const Call& call = plan.calls[i];
        Block& slot = slots[call.slot];
        if (every == 0 || --until != 0) [[likely]] {
          if (call.bytes == 0)
            give(slot, touch, tally);
          else
            take(slot, call.bytes, number++, touch, tally);
          continue;
        }
        until = every;
        if (call.bytes == 0)
          own.time_free(cost, slot, touch, tally);
        else
          own.time_malloc(cost, slot, call.bytes, number++, touch, tally);
      }
    });
    for (auto& slot : slots) give(slot, touch, lane.tally);
    lane.in_turn([&] { all.merge(own); });
  });
  const double ns = scale.ns_per_tick();
  constexpr Percentile kPoints[] = {{"p50", .5, 20}, {"p90", .9, 100}, {"p99", .99, 1000}, {"p99_9", .999, 10000}};
  report.add("calls_per_second", timing.per_second(timing.calls()), "1/s", Better::higher, timing.calls());
  add_percentiles(report, "malloc", all.mallocs, ns, kPoints);
  add_percentiles(report, "free", all.frees, ns, kPoints);
  cost.add_to(report, ns);
  add_timing(report, timing, threads);
  report.caveat(
      "calls are timed mallocs plus timed frees; a percentile is given where at least ten samples lie beyond it");
}

struct RingSlot {
  Block block;
  std::uint32_t countdown;
};

void run_published(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint32_t ring = args.number32("slots");
  const std::uint32_t steps = args.number32("steps");
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<RingSlot> slots(ring);
    // The countdown, in place of a slot, and the size of the ring's next block at that place.
    const auto next = drawn(ring, [&] { return Call{random.between(kShortest, kLongest), draw_band_size(random)}; });
    lane.timed([&](Tally& tally) {
      std::uint32_t at = 0;
      for (std::uint32_t step = 0; step < steps; ++step) {
        RingSlot& slot = slots[at];
        if (slot.block.at != nullptr && --slot.countdown == 0) give(slot.block, Touch::first64, tally);
        if (slot.block.at == nullptr) {
          take(slot.block, next[at].bytes, lane.index() << 24 | step, Touch::first64, tally);
          slot.countdown = next[at].slot;
        }
        if (++at == ring) at = 0;
      }
    });
    for (auto& slot : slots) give(slot.block, Touch::first64, lane.tally);
  });
  report.add("published_score", timing.per_second(timing.allocations + report.tally.frees), "1/s", Better::higher,
             report.tally.allocations + report.tally.frees);
  report.add("calls_per_second", timing.per_second(timing.calls()), "1/s", Better::neither, timing.calls());
  add_timing(report, timing, threads);
  report.caveat(
      "published form: %lu of %lu frees happen in the timed part; it measures allocation into a growing heap. "
      "published_score counts the frees after the clock stopped, as the source did",
      timing.frees, report.tally.frees);
  report.caveat("only the first 64 bytes of a block are touched, and latencies are not sampled in this form");
}

void run_ring(const Args& args, Report& report) {
  if (args.number("steps") * args.threads() > std::uint64_t{1} << 31)
    usage_error("ring", "--steps=%lu: with %u threads expected at most %llu", args.number("steps"), args.threads(),
                (1ull << 31) / args.threads());
  if (args.pick("form") == 0)
    run_corrected(args, report);
  else
    run_published(args, report);
}

constexpr Param kRingParams[] = {
    choice("form", "corrected", "corrected|published",
           "corrected: frees in the timed part, whole blocks; published: as the source ran it"),
    swept("threads", "1", 1, 128, "", "independent threads"),
    integer("steps", "250000", 1000, 100000000, "",
            "steps per thread; each allocates one block (corrected) or visits one slot (published)"),
    integer("slots", "100000", 100, 10000000, "", "published: slots of the ring"),
    integer("sample-every", "8", 0, 1000000, "", "corrected: every how many calls one is timed; 0: none"),
    choice("touch", "full", kTouchChoices, "corrected: bytes written and verified"),
};

}  // namespace

const Workload kLatency{"latency", "percentiles of single malloc and free calls, the clock's own cost removed",
                        kLatencyParams, run_latency};
const Workload kRing{"ring", "blocks of three size bands with drawn lifetimes, 1 to 128 threads, with latencies",
                     kRingParams, run_ring};

}  // namespace workload
