// `aligned`: blocks of drawn alignments, replaced at random; an address that is not aligned counts as a failure.
#include <bit>
#include <cstdlib>

#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Ask {
  std::uint32_t slot;
  std::uint32_t alignment;
  std::uint32_t bytes;
};

void take_aligned(Block& block, const Ask& ask, bool posix, std::uint32_t number, Touch touch, Tally& tally) {
  void* at = nullptr;
  if (posix) {
    if (::posix_memalign(&at, ask.alignment, ask.bytes) != 0) at = nullptr;
  } else {
    at = std::aligned_alloc(ask.alignment, ask.bytes);
  }
  hide(at);
  if ((reinterpret_cast<std::uintptr_t>(at) & (ask.alignment - 1)) != 0) ++tally.misaligned;
  accept(block, at, ask.bytes, number, touch, tally);
}

void run_aligned(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t low = args.number("low");
  const std::uint64_t high = args.number("high");
  if ((low & (low - 1)) != 0)
    usage_error("aligned", "--low=%llu: expected a power of two", static_cast<unsigned long long>(low));
  if ((high & (high - 1)) != 0)
    usage_error("aligned", "--high=%llu: expected a power of two", static_cast<unsigned long long>(high));
  if (low > high)
    usage_error("aligned", "--low=%llu: expected at most --high=%llu", static_cast<unsigned long long>(low),
                static_cast<unsigned long long>(high));
  const auto octaves = static_cast<std::uint64_t>(std::countr_zero(high) - std::countr_zero(low) + 1);
  const auto live = static_cast<std::uint32_t>(args.number("live"));
  const std::uint64_t top = args.number("top");
  const bool posix = args.pick("call") == 0;
  const auto touch = static_cast<Touch>(args.pick("touch"));
  OwnArray<std::uint64_t> requested(threads);
  double base_kib = 0;
  double peak_kib = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<Ask> asks(1u << 16);
    for (auto& ask : asks) {
      ask.slot = random.below(live);
      ask.alignment = static_cast<std::uint32_t>(low << random.below(octaves));
      ask.bytes = (random.between(1, top) + ask.alignment - 1) / ask.alignment * ask.alignment;
    }
    OwnArray<Block> slots(live);
    lane.alone([&] { base_kib = static_cast<double>(resident_exact_kib()); });
    std::uint32_t number = lane.index() << 26;
    for (std::uint32_t i = 0; i < live; ++i)
      take_aligned(slots[i], asks[i & 0xFFFF], posix, number++, touch, lane.tally);
    for (const Block& slot : slots) requested[lane.index()] += slot.bytes;
    lane.alone([&] { peak_kib = static_cast<double>(resident_exact_kib()); });
    lane.start();
    Tally tally;
    for (std::uint64_t step = 0; step < args.number("steps"); ++step) {
      const Ask& ask = asks[(step + live) & 0xFFFF];
      give(slots[ask.slot], touch, tally);
      take_aligned(slots[ask.slot], ask, posix, number++, touch, tally);
    }
    lane.tally.add(tally);
    lane.stop();
    for (auto& slot : slots) give(slot, touch, lane.tally);
  });
  double total = 0;
  for (const std::uint64_t bytes : requested) total += static_cast<double>(bytes) / 1024;
  report.add("pair_ns", timing.seconds * 1e9 * threads / static_cast<double>(timing.allocations), "ns", Better::lower,
             timing.allocations);
  report.add("memory_overhead", (peak_kib - base_kib) / total, "ratio", Better::lower, std::uint64_t{live} * threads);
  add_timing(report, timing, threads);
  report.caveat(
      "sizes are rounded up to a multiple of the alignment; memory_overhead is resident over requested when all blocks "
      "live%s",
      touch == Touch::full || touch == Touch::page ? "" : " (below 1 where pages of a block were never touched)");
}

constexpr Param kParams[] = {
    integer("low", "16", 8, 1 << 24, "B", "the smallest alignment, a power of two"),
    integer("high", "4096", 8, 1 << 24, "B", "the largest alignment; the powers of two between are equally likely"),
    integer("top", "4096", 1, 1 << 24, "B", "sizes are uniform up to this, rounded up to the alignment"),
    integer("live", "1000", 1, 1000000, "", "blocks live in each thread, replaced at random"),
    integer("steps", "200000", 1, 1000000000, "", "replacements per thread"),
    swept("threads", "1", 1, 64, "", "independent threads"),
    choice("call", "posix_memalign", "posix_memalign|aligned_alloc", "the function"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kAligned{"aligned", "blocks of drawn alignments, replaced at random", kParams, run_aligned};

}  // namespace workload
