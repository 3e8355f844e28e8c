// `realloc`: vectors that grow side by side, so that the block behind one is often another one.
#include <cstdlib>

#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Vector {
  char* at;
  std::size_t bytes;
  std::uint64_t stamp;
};

std::size_t grown(unsigned pattern, std::size_t bytes, std::uint32_t drawn) {
  const std::size_t next = pattern == 0 ? bytes * 2 : pattern == 1 ? bytes + bytes / 2 : bytes + 64 + drawn % 4096;
  return (next + 15) / 16 * 16;
}

void run_realloc(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const unsigned pattern = args.pick("pattern");
  const std::size_t top = args.number("top");
  const auto width = static_cast<std::uint32_t>(args.number("vectors"));
  const std::uint64_t rounds = args.number("rounds");
  std::uint64_t calls_all = 0;
  std::uint64_t moved_all = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    OwnArray<std::uint32_t> drawn(4096);
    for (auto& number : drawn) number = random.below(std::uint64_t{1} << 32);
    OwnArray<Vector> vectors(width);
    std::uint64_t calls = 0;
    std::uint64_t moved = 0;
    lane.start();
    Tally tally;
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
          const std::size_t bytes = grown(pattern, vector.bytes, drawn[calls++ % 4096]);
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
    lane.tally.add(tally);
    lane.stop();
    lane.meet();
    for (unsigned turn = 0; turn < lane.count(); ++turn) {
      if (turn == lane.index()) {
        calls_all += calls;
        moved_all += moved;
      }
      lane.meet();
    }
  });
  const auto calls = static_cast<double>(calls_all);
  report.add("realloc_ns", timing.seconds * 1e9 * threads / calls, "ns", Better::lower, calls_all);
  report.add("timed_reallocations", calls, "count", Better::neither);
  report.add("moved_share", static_cast<double>(moved_all) / calls, "ratio", Better::neither, calls_all);
  add_timing(report, timing, threads);
  report.caveat(
      "the new part of a vector is written after each growth, and all of it is read at its end: that is part of the "
      "time");
}

constexpr Param kParams[] = {
    choice("pattern", "double", "double|half|append", "growth: to twice the size, by half, or by 64 to 4159 bytes"),
    integer("top", "1M", 32, std::uint64_t{1} << 30, "B", "a vector has grown when it has this size"),
    integer("vectors", "4", 1, 4096, "", "vectors that grow side by side"),
    integer("rounds", "100", 1, 10000000, "", "times that all vectors grow from 16 bytes"),
    swept("threads", "1", 1, 64, "", "independent threads"),
};

}  // namespace

const Workload kRealloc{"realloc", "vectors growing side by side by realloc", kParams, run_realloc};

}  // namespace workload
