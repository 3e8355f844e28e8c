// Heaps whose size, or whose sizes of blocks, change, and how much memory they hold meanwhile:
//   phases         grows to a peak, shrinks to a tenth in random order, idles, grows again, frees everything and idles
//   fragmentation  a constant number of live bytes whose sizes change from phase to phase. In each phase nine of ten
//                  bytes are freed in random order and allocated again in another band of sizes; the last tenth stays,
//                  scattered.
//   drift          a long-running server. Blocks are replaced at random while the middle of their sizes wanders from
//                  small to large and back; one in sixteen survives for some phases, wherever it lies.
//   grow-shrink    grow by so many MiB and shrink again, cycle after cycle: what giving memory back and taking it costs
#include <algorithm>

#include "clock.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr unsigned kPhaseSamples = 20;  // per growing or shrinking

void run_phases(const Args& args, Report& report) {
  const std::uint64_t peak = args.number("peak-mib") << 20;
  const std::uint64_t idle = args.number("idle");
  const Touch touch = args.touch();
  Series& resident = report.curve("resident", 4096);
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    const ProgramSizes law(args.number32("exponent"));
    const std::size_t most = peak / 5 + 64;
    std::size_t count = 0;
    OwnArray<std::uint32_t> sizes(std::max<std::size_t>(most / 4, 64));
    std::uint64_t drawn_bytes = 0;
    while (count < sizes.size() && drawn_bytes < peak) drawn_bytes += sizes[count++] = law.draw(random);
    OwnArray<Block> blocks(count);
    const double base = resident_kib();
    const std::uint64_t origin = now_ns();
    std::uint64_t live = 0;
    std::uint32_t number = 0;
    const auto sample = [&] { resident.add(static_cast<double>(now_ns() - origin) * 1e-9, resident_kib() - base); };
    const auto say = [&](const char* rss) { report.add(rss, resident_kib() - base, "KiB", Better::lower); };
    const auto say_live = [&](const char* name) {
      report.add(name, static_cast<double>(live) / 1024, "KiB", Better::neither);
    };
    const auto grow = [&](std::size_t from) {
      for (std::size_t i = from; i < count;) {
        const std::size_t end = std::min(count, i + count / kPhaseSamples + 1);
        lane.timed([&](Tally& tally) {
          for (; i < end; ++i) {
            take(blocks[i], sizes[i], number++, touch, tally);
            live += blocks[i].bytes;
          }
        });
        sample();
      }
    };
    const auto shrink = [&](std::size_t to) {
      shuffle(blocks.data(), count, random);
      for (std::size_t i = count; i > to;) {
        const std::size_t end = i - to > count / kPhaseSamples + 1 ? i - count / kPhaseSamples - 1 : to;
        lane.timed([&](Tally& tally) {
          for (; i > end; --i) {
            live -= blocks[i - 1].bytes;
            give(blocks[i - 1], touch, tally);
          }
        });
        sample();
      }
    };
    sample();
    grow(0);
    say("rss_peak");
    say_live("live_peak");
    const std::size_t rest = count / 10;
    shrink(rest);
    say("rss_shrunk");
    say_live("live_shrunk");
    idle_ms(idle, sample);
    say("rss_shrunk_idle");
    grow(rest);
    say("rss_second_peak");
    shrink(0);
    say("rss_freed");
    idle_ms(idle, sample);
    say("rss_freed_idle");
  });
  add_timing(report, timing, 1, Better::lower);
  report.caveat(
      "KiB above the resident memory at the start, own tables excluded; while idle the program makes no allocator "
      "call");
}

constexpr Param kPhasesParams[] = {
    integer("peak-mib", "128", 1, 16384, "MiB", "requested bytes at the peak"),
    integer("exponent", "12", 6, 24, "", "sizes by the program law, 5 B to 2 to this power"),
    integer("idle", "1000", 0, 600000, "ms", "how long it idles after each shrinking"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

// Resident memory above that at the beginning over the live bytes.
class OverLive {
 public:
  OverLive(Report& report, std::uint64_t samples) : curve_(report.curve("memory_over_live", samples)) {}
  void begin() { base_ = resident_kib(); }
  void sample(double phase, std::uint64_t live) {
    const double kib = resident_kib() - base_;
    last_ = kib * 1024 / static_cast<double>(std::max<std::uint64_t>(live, 1));
    curve_.add(phase, last_);
    sum_ += last_;
    worst_ = std::max(worst_, last_);
    most_kib_ = std::max(most_kib_, kib);
  }
  double most_kib() const { return most_kib_; }
  void add_to(Report& report) const {
    const std::uint64_t samples = curve_.count;
    report.add("memory_over_live_mean", sum_ / static_cast<double>(samples), "ratio", Better::lower, samples);
    report.add("memory_over_live_worst", worst_, "ratio", Better::lower, samples);
    report.add("memory_over_live_last", last_, "ratio", Better::lower);
  }

 private:
  Series& curve_;
  double base_ = 0;
  double sum_ = 0;
  double worst_ = 0;
  double last_ = 0;
  double most_kib_ = 0;
};

struct Band {
  std::uint32_t low, high;
};
// Small to large and back: room that one band left must serve the next one.
constexpr Band kBands[] = {{48, 128},     {200, 700},  {1000, 3000},   {32, 96},
                           {4000, 12000}, {300, 1500}, {16000, 60000}, {64, 2048}};

void run_fragmentation(const Args& args, Report& report) {
  const std::uint64_t target = args.number("live-mib") << 20;
  const std::uint64_t phases = args.number("phases");
  const std::uint64_t surviving = target * args.number("survivors") / 100;
  const Touch touch = args.touch();
  OverLive memory(report, phases);
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    const std::size_t most = target / 32 + 1024;
    OwnArray<Block> blocks(most);
    std::uint32_t count = 0;
    std::uint64_t live = 0;
    OwnArray<std::uint32_t> sizes(most);
    memory.begin();
    std::uint32_t number = 0;
    for (std::uint64_t phase = 0; phase < phases; ++phase) {
      const Band band = kBands[phase % std::size(kBands)];
      if (phase != 0) shuffle(blocks.data(), count, random);
      const std::uint64_t room = target - (phase != 0 ? surviving : 0);
      std::uint32_t made = 0;
      for (std::uint64_t planned = 0; planned < room && made < most; ++made)
        planned += sizes[made] = random.between(band.low, band.high);
      lane.timed([&](Tally& tally) {
        while (phase != 0 && count != 0 && live > surviving) {
          Block& block = blocks[--count];
          live -= block.bytes;
          give(block, touch, tally);
        }
        for (std::uint32_t i = 0; i < made && count < most && live < target; ++i) {
          Block& block = blocks[count];
          take(block, sizes[i], number++, touch, tally);
          if (block.at == nullptr) continue;
          live += block.bytes;
          ++count;
        }
      });
      memory.sample(static_cast<double>(phase), live);
    }
    for (std::uint32_t i = 0; i < count; ++i) give(blocks[i], touch, lane.tally);
  });
  memory.add_to(report);
  add_pairs(report, timing, 1);
  add_timing(report, timing, 1);
}

constexpr Param kFragmentationParams[] = {
    integer("live-mib", "64", 1, 16384, "MiB", "requested bytes that are live at the end of each phase"),
    integer("phases", "32", 2, 10000, "",
            "phases; the band of sizes changes with each, through eight bands from 32 B to 60 KB"),
    integer("survivors", "10", 0, 90, "%", "share of the live bytes that a phase leaves in place"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

// The middle of a phase's sizes, in bytes; sizes are uniform from half of it to one and a half.
constexpr std::uint32_t kMiddles[] = {64, 160, 400, 1000, 2500, 6000, 15000, 4000, 1600, 600, 240, 96};
constexpr std::uint64_t kSurvivor = 16;  // one block in so many
constexpr unsigned kDriftSamples = 4;    // of the resident memory, per phase

struct Draw {
  std::uint32_t size;
  std::uint32_t pick;
};

void run_drift(const Args& args, Report& report) {
  const std::uint64_t target = args.number("live-mib") << 20;
  const std::uint64_t samples = args.number("phases") * kDriftSamples;
  const std::uint64_t turnover = target * args.number("turnover") / 100 / kDriftSamples;
  const std::uint64_t pinned_most = target * args.number("survivors") / 100;
  const Touch touch = args.touch();
  OverLive memory(report, samples);
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    const auto word = [&] { return random.below(std::uint64_t{1} << 32); };
    const auto draws = drawn(1u << 16, [&] { return Draw{word(), word()}; });
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
    const auto end = [&](Block& block, Tally& tally) {
      live -= block.bytes;
      give(block, touch, tally);
    };
    memory.begin();
    for (std::uint64_t part = 0; part < samples; ++part) {
      const std::uint32_t middle = kMiddles[part / kDriftSamples % std::size(kMiddles)];
      lane.timed([&](Tally& tally) {
        // At least a turnover; the first part fills the heap.
        for (std::uint64_t made = 0; made < turnover || !full;) {
          const Draw& draw = draws[number & (draws.size() - 1)];
          const std::uint32_t bytes = middle / 2 + static_cast<std::uint32_t>(std::uint64_t{draw.size} * middle >> 32);
          const std::uint64_t room = target - std::min<std::uint64_t>(bytes, target);
          full = full || live > room;
          while (live > room && count != 0) {
            Block& block = young[std::uint64_t{draw.pick} * count >> 32];
            end(block, tally);
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
            end(pinned[head % most], tally);
          }
        }
      });
      memory.sample(static_cast<double>(part) / kDriftSamples, live);
    }
    while (count != 0) end(young[--count], lane.tally);
    for (; head != tail; ++head) end(pinned[head % most], lane.tally);
  });
  memory.add_to(report);
  report.add("rss_most", memory.most_kib(), "KiB", Better::neither, samples);
  add_pairs(report, timing, 1);
  add_timing(report, timing, 1);
}

constexpr Param kDriftParams[] = {
    integer("live-mib", "16", 1, 16384, "MiB", "requested bytes that are live all the time"),
    integer("phases", "24", 1, 10000, "",
            "phases; the middle of the sizes wanders through twelve, from 64 B to 15 KB and back"),
    integer("turnover", "150", 1, 10000, "%", "bytes allocated in a phase, as a share of the live bytes"),
    integer("survivors", "20", 0, 90, "%", "the most that blocks which survive may take of the live bytes"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

constexpr std::uint32_t kStride = 7919;  // each cycle begins elsewhere in the drawn sizes

void run_grow_shrink(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t swing = (args.number("mib") << 20) / threads;
  const std::uint64_t cycles = args.number("cycles");
  const auto [low, high] = args.range();
  const Touch touch = args.touch();
  double base = 0;
  double grown = 0;
  double shrunk = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto sizes = drawn(1u << 14, [&] { return random.between(low, high); });
    const std::size_t most = swing / low + 2;
    OwnArray<Block> blocks(most);
    OwnArray<Block> floor(std::max<std::size_t>(most / 16, 1));  // what stays: a sixteenth of the blocks, scattered
    std::size_t kept = 0;
    std::uint32_t number = lane.index() << 26;
    lane.alone([&] { base = resident_kib(); });
    for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
      std::size_t count = 0;
      lane.timed([&](Tally& tally) {
        for (std::uint64_t live = 0; live < swing && count < most; ++count) {
          take(blocks[count], sizes[(cycle * kStride + count) & (sizes.size() - 1)], number++, touch, tally);
          live += std::max<std::uint64_t>(blocks[count].bytes, 1);
        }
      });
      if (cycle + 1 == cycles) lane.alone([&] { grown = resident_kib(); });
      if (cycle == 0)
        for (std::size_t i = 0; i < count && kept < floor.size(); i += 16) std::swap(floor[kept++], blocks[i]);
      shuffle(blocks.data(), count, random);
      lane.timed([&](Tally& tally) {
        for (std::size_t i = 0; i < count; ++i) give(blocks[i], touch, tally);
      });
    }
    lane.alone([&] { shrunk = resident_kib(); });
    for (std::size_t i = 0; i < kept; ++i) give(floor[i], touch, lane.tally);
  });
  report.add("cycle_ms", timing.ns_each(cycles) / 1e6, "ms", Better::lower, cycles);
  report.add("faults_per_cycle", static_cast<double>(timing.faults) / static_cast<double>(cycles), "count",
             Better::neither, cycles);
  report.add("rss_grown", grown - base, "KiB", Better::lower);
  report.add("rss_shrunk", shrunk - base, "KiB", Better::lower);
  add_timing(report, timing, threads);
  report.caveat(
      "a sixteenth of the first cycle's blocks stays, scattered; KiB above the resident memory at the start, right "
      "after a cycle");
}

constexpr Param kGrowShrinkParams[] = {
    integer("mib", "64", 1, 16384, "MiB", "by how much all threads together grow and shrink"),
    integer("cycles", "30", 1, 1000000, "", "how often"),
    swept("threads", "1", 1, 1024, "", "threads whose heaps do so at the same time"),
    integer("low", "1K", 1, 16777216, "B", "the smallest block"),
    integer("high", "16K", 1, 16777216, "B", "the largest block"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kPhases{"phases", "grow to a peak, shrink, idle, grow again, free all, idle: resident memory over time",
                       kPhasesParams, run_phases};
const Workload kFragmentation{"fragmentation", "resident over live bytes in a long run with changing sizes",
                              kFragmentationParams, run_fragmentation};
const Workload kDrift{"drift", "resident over live bytes while sizes drift and some blocks survive", kDriftParams,
                      run_drift};
const Workload kGrowShrink{"grow-shrink", "heaps that grow and shrink by so many MiB, cycle after cycle",
                           kGrowShrinkParams, run_grow_shrink};

}  // namespace workload
