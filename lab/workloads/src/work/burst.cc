// `throughput` and `burst`: blocks of one size are allocated, replaced at random, and freed in order, again and again.
#include "clock.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kTables = 16;  // of drawn indices, used in turn

// Enough rounds for some tens of milliseconds, from size and threads alone: the work is the same under every allocator.
std::uint64_t rounds_for(std::uint64_t asked, std::uint64_t bytes, unsigned threads) {
  if (asked != 0) return asked;
  const std::uint64_t rounds = (bytes <= 1024 ? 200 : 200 * 1024 / bytes) / threads;
  return rounds < 2 ? 2 : rounds;
}

struct Outcome {
  Timing timing;
  std::uint64_t rounds, blocks;
  unsigned threads;
  double pairs() const { return static_cast<double>(timing.allocations); }
  double pairs_per_thread() const { return pairs() / threads; }
};

Outcome run_rounds(const Args& args, Report& report) {
  const auto blocks = static_cast<std::uint32_t>(args.number("blocks"));
  const std::size_t bytes = args.number("size");
  const std::uint64_t rounds = rounds_for(args.number("rounds"), bytes, args.threads());
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const std::uint64_t seed = args.number("seed");
  const unsigned threads = args.threads();
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(seed, lane.index());
    OwnArray<std::uint32_t> picks(std::size_t{kTables} * blocks);
    for (auto& pick : picks) pick = random.below(blocks);
    OwnArray<Block> slots(blocks);
    lane.start();
    Tally tally;
    std::uint32_t number = lane.index() << 26;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const std::uint32_t* pick = &picks[round % kTables * blocks];
      for (std::uint32_t i = 0; i < blocks; ++i) take(slots[i], bytes, number++, touch, tally);
      for (std::uint32_t i = 0; i < blocks; ++i) {
        Block& slot = slots[pick[i]];
        give(slot, touch, tally);
        take(slot, bytes, number++, touch, tally);
      }
      for (std::uint32_t i = 0; i < blocks; ++i) give(slots[i], touch, tally);
    }
    lane.tally.add(tally);
    lane.stop();
  });
  return {timing, rounds, blocks, threads};
}

void run_throughput(const Args& args, Report& report) {
  const Outcome out = run_rounds(args, report);
  const double items = out.pairs() / 2;
  report.add("items_per_second", items / out.timing.seconds, "1/s", Better::higher, out.timing.allocations);
  report.add("items_per_cpu_second", items / out.timing.cpu_seconds, "1/s", Better::neither, out.timing.allocations);
  report.add("pair_ns", out.timing.seconds * 1e9 / out.pairs_per_thread(), "ns", Better::neither,
             out.timing.allocations);
  add_timing(report, out.timing, out.threads);
  report.caveat(
      "an item is 2 malloc and 2 free; items_per_second is of all threads together, items_per_cpu_second per second "
      "that a processor worked; indices are drawn before the timed part");
}

void run_burst(const Args& args, Report& report) {
  const Outcome out = run_rounds(args, report);
  report.add("pair_ns", out.timing.seconds * 1e9 / out.pairs_per_thread(), "ns", Better::lower, out.timing.allocations);
  report.add("burst_us", out.timing.seconds * 1e6 / static_cast<double>(out.rounds), "us", Better::neither, out.rounds);
  add_timing(report, out.timing, out.threads);
}

constexpr Param kThroughputParams[] = {
    swept("size", "2^1..2^25", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    swept("threads", "1", 1, 1024, "", "threads, each with blocks of its own"),
    integer("blocks", "1000", 1, 1000000, "", "blocks live in each thread"),
    integer("rounds", "0", 0, 100000000, "",
            "times that all blocks are allocated, replaced and freed; 0: 200 up to 1 KiB, fewer for larger blocks, "
            "shared by the threads"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};
constexpr Param kBurstParams[] = {
    swept("size", "16..1M", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    swept("threads", "1", 1, 1024, "", "threads, each with blocks of its own"),
    integer("blocks", "1000", 1, 1000000, "", "blocks live in each thread"),
    integer("rounds", "0", 0, 100000000, "",
            "bursts; 0: 200 up to 1 KiB, fewer for larger blocks, shared by the threads"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kThroughput{"throughput",
                           "malloc and free per second: blocks of one size allocated, replaced at random, freed",
                           kThroughputParams, run_throughput};
const Workload kBurst{"burst", "time of a burst: 1000 blocks of one size allocated, randomly replaced, freed",
                      kBurstParams, run_burst};

}  // namespace workload
