// `larson`: a server in miniature. A thread replaces blocks of its array at random, then hands the array to a new
// thread and ends;
// the new thread frees what the dead one allocated. With --rotate the array goes to the neighbour's successor, so that
// blocks cross between lineages that run at the same time as well.
#include "clock.h"
#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Pick {
  std::uint32_t slot;
  std::uint32_t bytes;
};

struct Shift {  // what one thread of one generation does
  Thread thread;
  Block* slots;
  const OwnArray<Pick>* picks;
  std::uint64_t steps;
  std::uint64_t first_pick;
  std::uint32_t number;
  Touch touch;
  Tally tally;
  std::uint64_t inherited_frees;
};

void* work(void* given) {
  Shift& shift = *static_cast<Shift*>(given);
  Tally tally;
  std::uint64_t inherited = 0;
  std::uint32_t number = shift.number;
  const std::size_t mask = shift.picks->size() - 1;
  for (std::uint64_t i = 0; i < shift.steps; ++i) {
    const Pick& pick = (*shift.picks)[(shift.first_pick + i) & mask];
    Block& slot = shift.slots[pick.slot];
    inherited +=
        slot.number - shift.number >= shift.steps ? 1 : 0;  // numbered by another thread: that one allocated it
    give(slot, shift.touch, tally);
    take(slot, pick.bytes, number++, shift.touch, tally);
  }
  shift.tally = tally;
  shift.inherited_frees = inherited;
  return nullptr;
}

void run_larson(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto blocks = static_cast<std::uint32_t>(args.number("blocks"));
  const std::uint64_t low = args.number("low");
  const std::uint64_t high = args.number("high");
  if (low > high)
    usage_error("larson", "--low=%llu: expected at most --high=%llu", static_cast<unsigned long long>(low),
                static_cast<unsigned long long>(high));
  const std::uint64_t generations = args.number("generations");
  const std::uint64_t steps = args.number("steps");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const bool rotate = args.yes("rotate");
  OwnArray<Pick> picks(1u << 16);
  Random random(args.number("seed"), 0);
  for (auto& pick : picks) pick = {random.below(blocks), random.between(low, high)};
  OwnArray<Block> slots(std::size_t{threads} * blocks);
  std::uint32_t number = 0;
  for (auto& slot : slots) take(slot, random.between(low, high), number++, touch, report.tally);

  OwnArray<Shift> shifts(threads);
  Timing timing;
  std::uint64_t crossed = 0;
  const std::uint64_t faults = minor_faults_process();
  const std::uint64_t begin = now_ns();
  for (std::uint64_t generation = 0; generation < generations; ++generation) {
    for (unsigned t = 0; t < threads; ++t) {
      const std::size_t array = rotate ? (t + generation) % threads : t;
      shifts[t] =
          Shift{{}, &slots[array * blocks], &picks, steps, (generation * threads + t) * 7919, number, touch, {}, 0};
      number += static_cast<std::uint32_t>(steps);
    }
    for (auto& shift : shifts) shift.thread.start(report, work, &shift);
    for (auto& shift : shifts) {
      shift.thread.join();
      report.tally.add(shift.tally);
      timing.allocations += shift.tally.allocations;
      timing.frees += shift.tally.frees;
      crossed += shift.inherited_frees;
    }
  }
  timing.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  timing.faults = minor_faults_process() - faults;
  for (auto& slot : slots) give(slot, touch, report.tally);
  report.add("calls_per_second", static_cast<double>(timing.allocations + timing.frees) / timing.seconds, "1/s",
             Better::higher, timing.allocations + timing.frees);
  report.add("pair_ns", timing.seconds * 1e9 * threads / static_cast<double>(timing.allocations), "ns", Better::neither,
             timing.allocations);
  report.add("crossed_frees", static_cast<double>(crossed), "count", Better::neither, timing.frees);
  report.add("threads_ended", static_cast<double>(generations * threads), "count", Better::neither);
  timing.cpu_seconds = __builtin_nan("");
  add_timing(report, timing, threads);
  report.caveat("creating and ending %llu threads is part of the time",
                static_cast<unsigned long long>(generations * threads));
}

constexpr Param kParams[] = {
    swept("threads", "2", 1, 1024, "", "lineages that run at the same time"),
    integer("generations", "20", 1, 100000, "", "threads per lineage, one after another"),
    integer("steps", "50000", 1, 100000000, "", "replacements per thread"),
    integer("blocks", "1000", 1, 1000000, "", "blocks in an array"),
    integer("low", "8", 1, 16777216, "B", "the smallest block"),
    integer("high", "512", 1, 16777216, "B", "the largest block"),
    choice("rotate", "yes", "yes|no", "hand an array to the neighbour's successor instead of one's own"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kLarson{"larson", "arrays of blocks handed from ending threads to new ones, replaced at random", kParams,
                       run_larson};

}  // namespace workload
