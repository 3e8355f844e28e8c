// `drift`: a long-running server whose blocks change their sizes slowly. Blocks are replaced at random while the middle
// of their sizes wanders from small to large and back; one in sixteen survives for some phases, wherever it lies.
#include <algorithm>

#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

// The middle of a phase's sizes, in bytes; sizes are uniform from half of it to one and a half.
constexpr std::uint32_t kMiddles[] = {64, 160, 400, 1000, 2500, 6000, 15000, 4000, 1600, 600, 240, 96};
constexpr std::uint64_t kSurvivor = 16;  // one block in so many
constexpr unsigned kSamples = 4;         // of the resident memory, per phase

struct Draw {
  std::uint32_t size;
  std::uint32_t pick;
};

void run_drift(const Args& args, Report& report) {
  const std::uint64_t target = args.number("live-mib") << 20;
  const std::uint64_t phases = args.number("phases");
  const std::uint64_t turnover = target * args.number("turnover") / 100 / kSamples;
  const std::uint64_t pinned_most = target * args.number("survivors") / 100;
  const auto touch = static_cast<Touch>(args.pick("touch"));
  Series& curve = report.curve("memory_over_live", phases * kSamples);
  double sum = 0;
  double worst = 0;
  double last = 0;
  double most_kib = 0;
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    OwnArray<Draw> draws(1u << 16);
    for (auto& draw : draws) draw = {random.below(std::uint64_t{1} << 32), random.below(std::uint64_t{1} << 32)};
    const std::size_t most = target / (kMiddles[0] / 2) + 2;
    OwnArray<Block> young(most);
    OwnArray<Block> pinned(most);  // a ring: the oldest ends first
    std::size_t count = 0;
    std::size_t head = 0;
    std::size_t tail = 0;
    std::uint64_t live = 0;
    std::uint64_t pinned_bytes = 0;
    bool full = false;
    std::uint32_t number = 0;
    Tally tally;
    const auto end = [&](Block& block) {
      live -= block.bytes;
      give(block, touch, tally);
    };
    const auto base = static_cast<double>(resident_exact_kib());
    for (std::uint64_t part = 0; part < phases * kSamples; ++part) {
      const std::uint32_t middle = kMiddles[part / kSamples % std::size(kMiddles)];
      lane.start();
      tally = {};
      // At least a turnover; the first part fills the heap.
      for (std::uint64_t made = 0; made < turnover || !full;) {
        const Draw& draw = draws[number & (draws.size() - 1)];
        const std::uint32_t bytes = middle / 2 + static_cast<std::uint32_t>(std::uint64_t{draw.size} * middle >> 32);
        const std::uint64_t room = target - std::min<std::uint64_t>(bytes, target);
        full = full || live > room;
        while (live > room && count != 0) {
          Block& block = young[std::uint64_t{draw.pick} * count >> 32];
          end(block);
          block = young[--count];
        }
        Block block;
        take(block, bytes, number++, touch, tally);
        made += bytes;
        if (block.at == nullptr) {
          if (tally.null_answers > most) break;
          continue;
        }
        live += bytes;
        if (number % kSurvivor != 0) {
          young[count++] = block;
          continue;
        }
        pinned[tail++ % most] = block;
        for (pinned_bytes += bytes; pinned_bytes > pinned_most && head != tail; ++head) {
          pinned_bytes -= pinned[head % most].bytes;
          end(pinned[head % most]);
        }
      }
      lane.tally.add(tally);
      lane.stop();
      const double kib = static_cast<double>(resident_exact_kib()) - base;
      last = kib * 1024 / static_cast<double>(std::max<std::uint64_t>(live, 1));
      curve.add(static_cast<double>(part) / kSamples, last);
      sum += last;
      worst = std::max(worst, last);
      most_kib = std::max(most_kib, kib);
    }
    tally = {};
    while (count != 0) end(young[--count]);
    for (; head != tail; ++head) end(pinned[head % most]);
    lane.tally.add(tally);
  });
  const auto samples = phases * kSamples;
  report.add("memory_over_live_mean", sum / static_cast<double>(samples), "ratio", Better::lower, samples);
  report.add("memory_over_live_worst", worst, "ratio", Better::lower, samples);
  report.add("memory_over_live_last", last, "ratio", Better::lower);
  report.add("rss_most", most_kib, "KiB", Better::neither, samples);
  report.add("pair_ns", timing.seconds * 1e9 / static_cast<double>(timing.allocations), "ns", Better::lower,
             timing.allocations);
  add_timing(report, timing, 1);
}

constexpr Param kParams[] = {
    integer("live-mib", "16", 1, 16384, "MiB", "requested bytes that are live all the time"),
    integer("phases", "24", 1, 10000, "",
            "phases; the middle of the sizes wanders through twelve, from 64 B to 15 KB and back"),
    integer("turnover", "150", 1, 10000, "%", "bytes allocated in a phase, as a share of the live bytes"),
    integer("survivors", "20", 0, 90, "%", "the most that blocks which survive may take of the live bytes"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kDrift{"drift", "resident over live bytes while sizes drift and some blocks survive", kParams,
                      run_drift};

}  // namespace workload
