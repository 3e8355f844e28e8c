// `micro`: pairs of eleven sizes and their weighted sum, calloc of six, realloc chains, a thread run, in one process.
#include <cstdio>
#include <cstdlib>

#include "clock.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Weighted {
  std::uint32_t bytes;
  double weight;
};
constexpr Weighted kSizes[] = {{16, .20},   {32, .15},   {64, .15},    {128, .12},   {256, .10},   {512, .08},
                               {1024, .05}, {4096, .05}, {16384, .04}, {65536, .03}, {262144, .03}};
constexpr std::uint32_t kCallocSizes[] = {16, 64, 256, 1024, 4096, 65536};
constexpr std::uint64_t kWarmUp = 1000;

template <bool kCalloc>
double pair_ns(std::uint64_t rounds, std::size_t bytes, Tally& out) {
  Tally tally;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < rounds + kWarmUp; ++i) {
    if (i == kWarmUp) begin = now_ns();
    Block block;
    void* at = kCalloc ? std::calloc(1, bytes) : std::malloc(bytes);
    hide(at);
    if (kCalloc && at != nullptr &&
        (get_word(static_cast<char*>(at)) | get_word(static_cast<char*>(at) + bytes - 8)) != 0)
      ++tally.corrupted;
    accept(block, at, bytes, static_cast<std::uint32_t>(i), Touch::first64, tally);
    give(block, Touch::first64, tally);
  }
  const double seconds = static_cast<double>(now_ns() - begin);
  out.add(tally);
  return seconds / static_cast<double>(rounds);
}

double chain_ns(std::uint64_t chains, Tally& out) {
  Tally tally;
  const std::uint64_t begin = now_ns();
  for (std::uint64_t i = 0; i < chains; ++i) {
    const std::uint64_t stamp = stamp_of(16, static_cast<std::uint32_t>(i));
    void* at = std::malloc(16);
    hide(at);
    for (std::size_t bytes = 16; at != nullptr; bytes *= 2) {
      ++tally.allocations;
      char* p = static_cast<char*>(at);
      if (bytes == 16) put_word(p, stamp);
      if (get_word(p) != stamp) ++tally.corrupted;
      tally.checksum += get_word(p);
      put_word(p + bytes - 8, stamp);
      if (bytes == 1024) break;
      void* grown = std::realloc(at, bytes * 2);
      hide(grown);
      if (grown == nullptr) {
        ++tally.null_answers;
        break;
      }
      at = grown;
      if (get_word(static_cast<char*>(at) + bytes - 8) != stamp) ++tally.corrupted;
    }
    if (at == nullptr) {
      ++tally.null_answers;
    } else {
      std::free(at);
      ++tally.frees;
    }
  }
  out.add(tally);
  return static_cast<double>(now_ns() - begin) / static_cast<double>(chains);
}

void run_micro(const Args& args, Report& report) {
  const std::uint64_t rounds = args.number("rounds");
  char name[48];
  double weighted = 0;
  for (const auto& [bytes, weight] : kSizes) {
    const double ns = pair_ns<false>(rounds, bytes, report.tally);
    weighted += weight * ns;
    std::snprintf(name, sizeof name, "malloc_%u", bytes);
    report.add(name, ns, "ns", Better::lower, rounds);
  }
  for (const std::uint32_t bytes : kCallocSizes) {
    std::snprintf(name, sizeof name, "calloc_%u", bytes);
    report.add(name, pair_ns<true>(rounds, bytes, report.tally), "ns", Better::lower, rounds);
  }
  const std::uint64_t chains = rounds / 10 + 1;
  report.add("realloc_chain", chain_ns(chains, report.tally), "ns", Better::lower, chains);
  report.add("weighted", weighted, "ns", Better::lower, rounds * std::size(kSizes));

  const auto live = static_cast<std::uint32_t>(args.number("live"));
  OwnArray<Block> blocks(live);
  for (std::uint32_t i = 0; i < live; ++i) take(blocks[i], 64, i, Touch::full, report.tally);
  for (auto& block : blocks) give(block, Touch::full, report.tally);

  for (unsigned threads = 1; threads <= args.threads(); threads *= 2) {
    const Timing timing = run_team(report, threads, [&](Lane& lane) {
      lane.timed([&](Tally& tally) {
        for (std::uint64_t i = 0; i < rounds / threads; ++i) {
          Block block;
          take(block, 64, lane.index() << 26 | static_cast<std::uint32_t>(i), Touch::ends, tally);
          give(block, Touch::ends, tally);
        }
      });
    });
    std::snprintf(name, sizeof name, "mops_threads_%u", threads);
    report.add(name, timing.per_second(timing.allocations) * 1e-6, "1e6/s", Better::higher, timing.allocations);
  }
  report.add("timed_allocations", report.tally.allocations, "count", Better::neither);
  report.add("timed_frees", report.tally.frees, "count", Better::neither);
  report.caveat(
      "all parts run in one process, in a fixed order; weighted is the sum of weight x ns of the eleven malloc sizes");
}

constexpr Param kParams[] = {
    integer("rounds", "1000000", 1000, 1000000000, "", "pairs per size, after 1000 that are not timed"),
    integer("threads", "8", 1, 64, "", "the thread part runs with 1, 2, 4 ... this many threads that share the rounds"),
    integer("live", "100000", 1, 100000000, "", "blocks of 64 bytes held at once for the peak memory"),
};

}  // namespace

const Workload kMicro{"micro", "pairs of eleven weighted sizes, calloc, realloc chains, threads", kParams, run_micro};

}  // namespace workload
