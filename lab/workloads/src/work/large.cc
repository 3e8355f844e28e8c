// `large`: blocks of megabytes, replaced at random, one word written in every page.
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Pick {
  std::uint32_t slot;
  std::uint32_t bytes;
};

void run_large(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t low = args.number("low");
  const std::uint64_t high = args.number("high");
  if (low > high)
    usage_error("large", "--low=%llu: expected at most --high=%llu", static_cast<unsigned long long>(low),
                static_cast<unsigned long long>(high));
  const auto live = static_cast<std::uint32_t>(args.number("live"));
  const std::uint64_t steps = args.number("steps");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<Pick> picks(steps);
    for (auto& pick : picks) pick = {random.below(live), random.between(low, high)};
    OwnArray<Block> slots(live);
    lane.start();
    Tally tally;
    std::uint32_t number = lane.index() << 26;
    for (const Pick& pick : picks) {
      give(slots[pick.slot], touch, tally);
      take(slots[pick.slot], pick.bytes, number++, touch, tally);
    }
    for (auto& slot : slots) give(slot, touch, tally);
    lane.tally.add(tally);
    lane.stop();
  });
  report.add("pair_us", timing.seconds * 1e6 * threads / static_cast<double>(timing.allocations), "us", Better::lower,
             timing.allocations);
  add_timing(report, timing, threads);
  report.caveat(
      "what a block costs here is mostly its page faults: minor_faults tells how many pages were given back and asked "
      "for again");
}

constexpr Param kParams[] = {
    integer("low", "5M", 1, std::uint64_t{1} << 31, "B", "the smallest block"),
    integer("high", "25M", 1, std::uint64_t{1} << 31, "B", "the largest block"),
    integer("live", "20", 1, 10000, "", "slots in each thread, filled and replaced at random"),
    integer("steps", "500", 1, 10000000, "", "allocations per thread"),
    swept("threads", "1", 1, 32, "", "independent threads"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kLarge{"large", "blocks of 5 to 25 MiB, replaced at random", kParams, run_large};

}  // namespace workload
