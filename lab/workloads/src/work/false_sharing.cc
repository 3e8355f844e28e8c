// `false-sharing`: each thread writes to a small block of its own. Where the blocks of two threads share a cache line,
// the writing slows down.
//   active   every thread allocates its own blocks
//   passive  the main thread allocates one block per thread, next to each other, and hands them out; a thread frees its
//   block first
//            and allocates again, which tells whether an allocator spreads shared lines further
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

void run_false_sharing(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::size_t bytes = args.number("size");
  const std::uint64_t rounds = args.number("rounds");
  const std::uint64_t writes = args.number("writes");
  const bool passive = args.pick("form") == 1;
  OwnArray<Block> handed(threads);
  if (passive)
    for (unsigned t = 0; t < threads; ++t) take(handed[t], bytes, t, Touch::full, report.tally);
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    lane.start();
    Tally tally;
    std::uint32_t number = (lane.index() + 1) << 24;
    if (passive) give(handed[lane.index()], Touch::full, tally);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Block block;
      take(block, bytes, number++, Touch::full, tally);
      if (block.at == nullptr) continue;
      auto* cell = static_cast<volatile unsigned char*>(block.at);
      const auto first = *cell;
      for (std::uint64_t i = 0; i < writes; ++i) *cell = static_cast<unsigned char>(*cell + 1);
      *cell = first;  // give() verifies the block as take() made it
      give(block, Touch::full, tally);
    }
    lane.tally.add(tally);
    lane.stop();
  });
  report.add("write_ns", timing.seconds * 1e9 / static_cast<double>(rounds * writes), "ns", Better::lower,
             rounds * writes);
  add_timing(report, timing, threads);
  if (threads == 1)
    report.caveat("one thread shares lines with nobody: this is the baseline to compare more threads with");
}

constexpr Param kParams[] = {
    choice("form", "active", "active|passive",
           "active: own blocks; passive: blocks handed out by the main thread are freed first"),
    swept("threads", "2", 1, 64, "", "threads that write at the same time"),
    integer("size", "8", 1, 4096, "B", "bytes of a block"),
    integer("rounds", "2000", 1, 100000000, "", "blocks per thread, one after another"),
    integer("writes", "10000", 1, 100000000, "", "times that the first byte of a block is read and written"),
};

}  // namespace

const Workload kFalseSharing{"false-sharing", "threads writing to small blocks that may share a cache line", kParams,
                             run_false_sharing};

}  // namespace workload
