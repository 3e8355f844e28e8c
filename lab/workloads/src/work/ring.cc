// `ring`: every step allocates a block of three size bands, and frees the blocks whose time has come. Two forms:
// corrected  a block lives U[50,2000] x scale steps; frees happen in the timed part, whole blocks are written and
// verified;
// published  a ring of 100,000 slots with countdowns that are visited at most three times, so nothing is freed before
// the
//            clock stops, and the first 64 bytes are touched. It measures allocation into a growing heap, and says so.
#include <cstdio>

#include "clock.h"
#include "histogram.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

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

  Plan(std::uint32_t steps, std::uint32_t scale, Random& random) : calls(std::size_t{steps} * 2) {
    OwnArray<std::uint32_t> next(steps);                   // block -> the next block that dies at the same step, + 1
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
      const std::uint64_t end = step + std::uint64_t{random.between(kShortest, kLongest)} * scale;
      if (end >= steps) continue;  // outlives the timed part
      next[step] = dying[end];
      dying[end] = step + 1;
    }
  }
};

struct Latencies {
  Histogram mallocs, frees;
};

std::uint64_t clock_cost_ticks() {
  Histogram cost;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t before = ticks_before();
    cost.record(ticks_after() - before);
  }
  return static_cast<std::uint64_t>(cost.percentile(0.5));
}

void run_calls(const Plan& plan, OwnArray<Block>& slots, Touch touch, std::uint32_t every, std::uint64_t cost,
               std::uint32_t number, Tally& out, Latencies& latencies) {
  Tally tally;
  std::uint32_t until = every;
  for (std::size_t i = 0; i < plan.count; ++i) {
    const Call& call = plan.calls[i];
    Block& slot = slots[call.slot];
    const bool sampled = every != 0 && --until == 0;
    if (!sampled) [[likely]] {
      if (call.bytes == 0) give(slot, touch, tally);
      else take(slot, call.bytes, number++, touch, tally);
      continue;
    }
    until = every;
    if (call.bytes == 0) {
      if (slot.at == nullptr) continue;
      inspect(slot, touch, tally);
      hide(slot.at);
      const std::uint64_t before = ticks_before();
      std::free(slot.at);
      const std::uint64_t ticks = ticks_after() - before;
      latencies.frees.record(ticks > cost ? ticks - cost : 0);
      slot.at = nullptr;
      ++tally.frees;
    } else {
      const std::uint64_t before = ticks_before();
      void* at = std::malloc(call.bytes);
      const std::uint64_t ticks = ticks_after() - before;
      hide(at);
      latencies.mallocs.record(ticks > cost ? ticks - cost : 0);
      accept(slot, at, call.bytes, number++, touch, tally);
    }
  }
  out.add(tally);
}

void add_latencies(Report& report, const char* call, const Histogram& histogram, double ns) {
  constexpr struct {
    const char* name;
    double share;
    std::uint64_t least;  // samples, so that at least ten lie beyond
  } kPoints[] = {{"p50", .5, 20}, {"p90", .9, 100}, {"p99", .99, 1000}, {"p99_9", .999, 10000}};
  char name[48];
  for (const auto& point : kPoints) {
    if (histogram.total() < point.least) continue;
    std::snprintf(name, sizeof name, "%s_%s", call, point.name);
    report.add(name, histogram.percentile(point.share) * ns, "ns", Better::lower, histogram.total());
  }
}

void run_corrected(const Args& args, Report& report) {
  TickScale scale;
  const unsigned threads = args.threads();
  const auto steps = static_cast<std::uint32_t>(args.number("steps"));
  const auto every = static_cast<std::uint32_t>(args.number("sample-every"));
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const std::uint64_t cost = clock_cost_ticks();
  Latencies all;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const Plan plan(steps, static_cast<std::uint32_t>(args.number("scale")), random);
    OwnArray<Block> slots(plan.slots);
    Latencies latencies;
    lane.start();
    run_calls(plan, slots, touch, every, cost, lane.index() << 24, lane.tally, latencies);
    lane.stop();
    for (auto& slot : slots) give(slot, touch, lane.tally);
    for (unsigned turn = 0; turn < lane.count(); ++turn) {
      if (turn == lane.index()) {
        all.mallocs.merge(latencies.mallocs);
        all.frees.merge(latencies.frees);
      }
      lane.meet();
    }
  });
  const double ns = scale.ns_per_tick();
  const auto calls = static_cast<double>(timing.allocations + timing.frees);
  report.add("calls_per_second", calls / timing.seconds, "1/s", Better::higher, timing.allocations + timing.frees);
  add_latencies(report, "malloc", all.mallocs, ns);
  add_latencies(report, "free", all.frees, ns);
  report.add("clock_cost", static_cast<double>(cost) * ns, "ns", Better::neither, 20000);
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
  const auto steps = static_cast<std::uint32_t>(args.number("steps"));
  const auto ring = static_cast<std::uint32_t>(args.number("slots"));
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<RingSlot> slots(ring);
    OwnArray<Call> drawn(ring);  // countdown and size of the ring's next block at that place
    for (auto& entry : drawn) entry = {random.between(kShortest, kLongest), draw_band_size(random)};
    lane.start();
    Tally tally;
    std::uint32_t at = 0;
    for (std::uint32_t step = 0; step < steps; ++step) {
      RingSlot& slot = slots[at];
      if (slot.block.at != nullptr && --slot.countdown == 0) give(slot.block, Touch::first64, tally);
      if (slot.block.at == nullptr) {
        take(slot.block, drawn[at].bytes, lane.index() << 24 | step, Touch::first64, tally);
        slot.countdown = drawn[at].slot;
      }
      if (++at == ring) at = 0;
    }
    lane.tally.add(tally);
    lane.stop();
    for (auto& slot : slots) give(slot.block, Touch::first64, lane.tally);
  });
  const auto allocations = static_cast<double>(timing.allocations);
  report.add("published_score", (allocations + static_cast<double>(report.tally.frees)) / timing.seconds, "1/s",
             Better::higher, report.tally.allocations + report.tally.frees);
  report.add("calls_per_second", (allocations + static_cast<double>(timing.frees)) / timing.seconds, "1/s",
             Better::neither, timing.allocations + timing.frees);
  add_timing(report, timing, threads);
  report.caveat(
      "published form: %llu of %llu frees happen in the timed part; it measures allocation into a growing heap. "
      "published_score counts the frees after the clock stopped, as the source did",
      static_cast<unsigned long long>(timing.frees), static_cast<unsigned long long>(report.tally.frees));
  report.caveat("only the first 64 bytes of a block are touched, and latencies are not sampled in this form");
}

void run_ring(const Args& args, Report& report) {
  if (args.number("steps") * args.threads() > std::uint64_t{1} << 31)
    usage_error("ring", "--steps=%llu: with %u threads expected at most %llu",
                static_cast<unsigned long long>(args.number("steps")), args.threads(), (1ull << 31) / args.threads());
  if (args.pick("form") == 0) run_corrected(args, report);
  else run_published(args, report);
}

constexpr Param kParams[] = {
    choice("form", "corrected", "corrected|published",
           "corrected: frees in the timed part, whole blocks; published: as the source ran it"),
    swept("threads", "1", 1, 128, "", "independent threads"),
    integer("steps", "250000", 1000, 100000000, "",
            "steps per thread; each allocates one block (corrected) or visits one slot (published)"),
    integer("scale", "1", 1, 1000, "", "corrected: a block lives U[50,2000] times this many steps"),
    integer("slots", "100000", 100, 10000000, "", "published: slots of the ring"),
    integer("sample-every", "8", 0, 1000000, "", "corrected: every how many calls one is timed; 0: none"),
    choice("touch", "full", kTouchChoices, "corrected: bytes written and verified"),
};

}  // namespace

const Workload kRing{"ring", "blocks of three size bands with drawn lifetimes, 1 to 128 threads, with latencies",
                     kParams, run_ring};

}  // namespace workload
