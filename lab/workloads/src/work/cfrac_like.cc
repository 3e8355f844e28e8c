// `cfrac-like`: small blocks in bursts of 50,000 calls: malloc, calloc, realloc and free mixed, then all freed. The
// mixture is drawn;
// it is not the program cfrac.
#include <cstdlib>
#include <cstring>

#include "laws.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kBurst = 50000;

// Blocks stand in a stack; frees and reallocs take the drawn place in it.
struct Step {
  CfracStep what;
  std::uint32_t place;  // of 2^32: share of the live blocks
};

bool zeroed(const char* p, std::size_t bytes) {
  unsigned any = 0;
  for (std::size_t i = 0; i < bytes; ++i) any |= static_cast<unsigned char>(p[i]);
  return any == 0;
}

void grow(Block& block, std::uint32_t by, std::uint32_t number, Tally& tally) {
  if (block.at == nullptr) return;
  inspect(block, Touch::full, tally);
  // `block` keeps its address when realloc answers NULL: it is still live then.
  void* at = std::realloc(block.at, block.bytes + by);
  hide(at);
  if (at == nullptr) {
    ++tally.null_answers;
    return;
  }
  const std::uint64_t old_stamp = stamp_of(block.bytes, block.number);
  block.at = at;
  if (!check_range(static_cast<char*>(at), block.bytes, old_stamp, tally.checksum)) ++tally.corrupted;
  accept(block, at, block.bytes + by, number, Touch::full, tally);
  ++tally.frees;  // the old block
}

std::uint32_t run_burst(const OwnArray<Step>& steps, OwnArray<Block>& live, std::uint32_t number, Tally& tally) {
  std::uint32_t count = 0;
  for (const Step& step : steps) {
    const auto place = static_cast<std::uint32_t>(std::uint64_t{step.place} * count >> 32);
    switch (step.what.call) {
      case CfracCall::malloc_call: take(live[count++], step.what.bytes, number++, Touch::full, tally); break;
      case CfracCall::calloc_call: {
        void* at = std::calloc(1, step.what.bytes);
        hide(at);
        if (at != nullptr && !zeroed(static_cast<char*>(at), step.what.bytes)) ++tally.corrupted;
        accept(live[count++], at, step.what.bytes, number++, Touch::full, tally);
        break;
      }
      case CfracCall::free_call:
        if (count == 0) break;
        give(live[place], Touch::full, tally);
        live[place] = live[--count];
        break;
      case CfracCall::realloc_call:
        if (count != 0) grow(live[place], step.what.bytes, number++, tally);
        break;
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) give(live[i], Touch::full, tally);
  return number;
}

void run_cfrac_like(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t bursts = (args.number("steps") + kBurst - 1) / kBurst;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<Step> steps(kBurst);
    OwnArray<Block> live(kBurst);
    std::uint32_t number = lane.index() << 26;
    for (std::uint64_t burst = 0; burst < bursts; ++burst) {
      for (Step& step : steps) step = {draw_cfrac_step(random), static_cast<std::uint32_t>(random.next() >> 32)};
      lane.start();
      Tally tally;
      number = run_burst(steps, live, number, tally);
      lane.tally.add(tally);
      lane.stop();
    }
  });
  const double calls = static_cast<double>(bursts * kBurst) * threads;
  report.add("call_ns", timing.seconds * 1e9 * threads / calls, "ns", Better::lower, bursts * kBurst * threads);
  add_timing(report, timing, threads);
  report.caveat(
      "a drawn mixture, not the program cfrac; blocks are wholly written and verified; a realloc counts as one "
      "allocation and one free");
}

constexpr Param kParams[] = {
    integer("steps", "5000000", 1, 10000000000, "",
            "calls per thread, rounded up to bursts of 50,000; all blocks are freed after each burst"),
    swept("threads", "1", 1, 128, "", "independent threads"),
};

}  // namespace

const Workload kCfracLike{"cfrac-like", "small malloc, calloc, realloc and free mixed, all freed every 50,000 calls",
                          kParams, run_cfrac_like};

}  // namespace workload
