// Blocks that realloc changes:
//   realloc     vectors that grow side by side, so that the block behind one is often another one
//   cfrac-like  small blocks in bursts of 50,000 calls: malloc, calloc, realloc and free mixed, then all freed. The
//               mixture is drawn; it is not the program cfrac.
#include <atomic>
#include <cstdlib>

#include "laws.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Vector {
  char* at;
  std::size_t bytes;
  std::uint64_t stamp;
};

std::size_t grown(unsigned pattern, std::size_t bytes, std::uint32_t draw) {
  const std::size_t next = pattern == 0 ? bytes * 2 : pattern == 1 ? bytes + bytes / 2 : bytes + 64 + draw % 4096;
  return (next + 15) / 16 * 16;
}

void run_realloc(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const unsigned pattern = args.pick("pattern");
  const std::size_t top = args.number("top");
  const std::uint32_t width = args.number32("vectors");
  const std::uint64_t rounds = args.number("rounds");
  std::atomic<std::uint64_t> calls_all{0};
  std::atomic<std::uint64_t> moved_all{0};
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto draws = drawn(4096, [&] { return random.below(std::uint64_t{1} << 32); });
    OwnArray<Vector> vectors(width);
    std::uint64_t calls = 0;
    std::uint64_t moved = 0;
    lane.timed([&](Tally& tally) {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        std::uint32_t growing = 0;
        for (std::uint32_t v = 0; v < width; ++v) {
          void* at = std::malloc(16);
          hide(at);
          vectors[v] = {static_cast<char*>(at), 16,
                        stamp_of(lane.index(), static_cast<std::uint32_t>(round) * width + v)};
          if (at == nullptr) {
            ++tally.null_answers;
            continue;
          }
          ++tally.allocations;
          ++growing;
          fill_range(vectors[v].at, 0, 16, vectors[v].stamp);
        }
        while (growing != 0) {
          growing = 0;
          for (auto& vector : vectors) {
            if (vector.at == nullptr || vector.bytes >= top) continue;
            const std::size_t bytes = grown(pattern, vector.bytes, draws[calls++ % 4096]);
            const auto before = reinterpret_cast<std::uintptr_t>(vector.at);
            void* at = std::realloc(vector.at, bytes);
            hide(at);
            if (at == nullptr) {
              ++tally.null_answers;
              std::free(vector.at);
              ++tally.frees;
              vector.at = nullptr;
              continue;
            }
            moved += reinterpret_cast<std::uintptr_t>(at) != before ? 1 : 0;
            vector.at = static_cast<char*>(at);
            if (get_word(vector.at) != vector.stamp ||
                get_word(vector.at + vector.bytes - 8) != vector.stamp + vector.bytes / 8 - 1)
              ++tally.corrupted;
            fill_range(vector.at, vector.bytes, bytes, vector.stamp);
            vector.bytes = bytes;
            ++growing;
          }
        }
        for (auto& vector : vectors) {
          if (vector.at == nullptr) continue;
          if (!check_range(vector.at, vector.bytes, vector.stamp, tally.checksum)) ++tally.corrupted;
          std::free(vector.at);
          ++tally.frees;
        }
      }
    });
    calls_all += calls;
    moved_all += moved;
  });
  const std::uint64_t calls = calls_all;
  report.add("realloc_ns", timing.ns_each(calls) * threads, "ns", Better::lower, calls);
  report.add("timed_reallocations", calls, "count", Better::neither);
  report.add("moved_share", static_cast<double>(moved_all) / static_cast<double>(calls), "ratio", Better::neither,
             calls);
  add_timing(report, timing, threads);
  report.caveat(
      "the new part of a vector is written after each growth, and all of it is read at its end: that is part of the "
      "time");
}

constexpr Param kReallocParams[] = {
    choice("pattern", "double", "double|half|append", "growth: to twice the size, by half, or by 64 to 4159 bytes"),
    integer("top", "1M", 32, std::uint64_t{1} << 30, "B", "a vector has grown when it has this size"),
    integer("vectors", "4", 1, 4096, "", "vectors that grow side by side"),
    integer("rounds", "100", 1, 10000000, "", "times that all vectors grow from 16 bytes"),
    swept("threads", "1", 1, 64, "", "independent threads"),
};

constexpr std::uint32_t kBurst = 50000;

// Blocks stand in a stack; frees and reallocs take the drawn place in it.
struct Step {
  CfracStep what;
  std::uint32_t place;  // of 2^32: share of the live blocks
};

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
        if (at != nullptr && !is_zero(static_cast<char*>(at), step.what.bytes)) ++tally.corrupted;
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
      lane.timed([&](Tally& tally) { number = run_burst(steps, live, number, tally); });
    }
  });
  report.add("call_ns", timing.ns_each(bursts * kBurst), "ns", Better::lower, bursts * kBurst * threads);
  add_timing(report, timing, threads);
  report.caveat(
      "a drawn mixture, not the program cfrac; blocks are wholly written and verified; a realloc counts as one "
      "allocation and one free");
}

constexpr Param kCfracParams[] = {
    integer("steps", "5000000", 1, 10000000000, "",
            "calls per thread, rounded up to bursts of 50,000; all blocks are freed after each burst"),
    swept("threads", "1", 1, 128, "", "independent threads"),
};

}  // namespace

const Workload kRealloc{"realloc", "vectors growing side by side by realloc", kReallocParams, run_realloc};
const Workload kCfracLike{"cfrac-like", "small malloc, calloc, realloc and free mixed, all freed every 50,000 calls",
                          kCfracParams, run_cfrac_like};

}  // namespace workload
