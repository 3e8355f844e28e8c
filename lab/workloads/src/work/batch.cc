// `batch`: 128 blocks are allocated, then all of them are freed.
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kPattern[] = {64, 64, 64, 64, 64, 64, 1024, 1024, 1024, 8192};

void run_batch(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto blocks = static_cast<std::uint32_t>(args.number("blocks"));
  const std::uint64_t rounds = args.number("rounds");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const bool mixed = args.pick("law") == 0;
  const unsigned order = args.pick("order");
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    OwnArray<Block> slots(blocks);
    OwnArray<std::uint32_t> turn(blocks);
    for (std::uint32_t i = 0; i < blocks; ++i) turn[i] = order == 1 ? blocks - 1 - i : i;
    Random random(args.number("seed"), lane.index());
    if (order == 2) shuffle(turn.data(), blocks, random);
    lane.start();
    Tally tally;
    std::uint32_t number = lane.index() << 26;
    for (std::uint64_t round = 0; round < rounds; ++round) {
      for (std::uint32_t i = 0; i < blocks; ++i) take(slots[i], mixed ? kPattern[i % 10] : 64, number++, touch, tally);
      for (std::uint32_t i = 0; i < blocks; ++i) give(slots[turn[i]], touch, tally);
    }
    lane.tally.add(tally);
    lane.stop();
  });
  report.add("pair_ns", timing.seconds * 1e9 * threads / static_cast<double>(timing.allocations), "ns", Better::lower,
             timing.allocations);
  report.add("calls_per_second", static_cast<double>(timing.allocations + timing.frees) / timing.seconds, "1/s",
             Better::neither, timing.allocations + timing.frees);
  add_timing(report, timing, threads);
}

constexpr Param kParams[] = {
    choice("law", "mixed", "mixed|fixed",
           "mixed: six of 64 B, three of 1 KiB, one of 8 KiB, repeated; fixed: all of 64 B"),
    swept("threads", "1", 1, 128, "", "independent threads"),
    integer("blocks", "128", 1, 1000000, "", "blocks in a batch"),
    integer("rounds", "50000", 1, 100000000, "", "batches per thread"),
    choice("order", "first", "first|last|random", "freed first: the oldest, the youngest, or in one shuffled order"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kBatch{"batch", "a batch of 128 blocks allocated, then freed", kParams, run_batch};

}  // namespace workload
