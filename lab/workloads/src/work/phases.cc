// `phases`: a program that grows to a peak, shrinks to a tenth in random order, idles, grows again, frees everything
// and idles.
#include <algorithm>

#include "clock.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr unsigned kSamples = 20;  // per growing or shrinking

void run_phases(const Args& args, Report& report) {
  const std::uint64_t peak = args.number("peak-mib") << 20;
  const std::uint64_t idle_ms = args.number("idle");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  Series& resident = report.curve("resident", 4096);
  const Timing timing = run_team(report, 1, [&](Lane& lane) {
    Random random(args.number("seed"), 0);
    const ProgramSizes law(static_cast<unsigned>(args.number("exponent")));
    const std::size_t most = peak / 5 + 64;
    std::size_t count = 0;
    OwnArray<std::uint32_t> sizes(std::max<std::size_t>(most / 4, 64));
    std::uint64_t drawn_bytes = 0;
    while (count < sizes.size() && drawn_bytes < peak) drawn_bytes += sizes[count++] = law.draw(random);
    OwnArray<Block> blocks(count);
    const auto base = static_cast<double>(resident_exact_kib());
    const std::uint64_t origin = now_ns();
    std::uint64_t live = 0;
    std::uint32_t number = 0;
    const auto rss = [&] { return static_cast<double>(resident_exact_kib()) - base; };
    const auto sample = [&] { resident.add(static_cast<double>(now_ns() - origin) * 1e-9, rss()); };
    const auto grow = [&](std::size_t from) {
      for (std::size_t i = from; i < count;) {
        const std::size_t end = std::min(count, i + count / kSamples + 1);
        lane.start();
        Tally tally;
        for (; i < end; ++i) {
          take(blocks[i], sizes[i], number++, touch, tally);
          live += blocks[i].bytes;
        }
        lane.tally.add(tally);
        lane.stop();
        sample();
      }
    };
    const auto shrink = [&](std::size_t to) {
      shuffle(blocks.data(), count, random);
      for (std::size_t i = count; i > to;) {
        const std::size_t end = i - to > count / kSamples + 1 ? i - count / kSamples - 1 : to;
        lane.start();
        Tally tally;
        for (; i > end; --i) {
          live -= blocks[i - 1].bytes;
          give(blocks[i - 1], touch, tally);
        }
        lane.tally.add(tally);
        lane.stop();
        sample();
      }
    };
    const auto idle = [&] {
      const std::uint64_t end = now_ns() + idle_ms * 1'000'000;
      while (now_ns() < end) {
        sleep_ms(std::min<std::uint64_t>(50, idle_ms));
        sample();
      }
    };
    sample();
    grow(0);
    report.add("rss_peak", rss(), "KiB", Better::lower);
    report.add("live_peak", static_cast<double>(live) / 1024, "KiB", Better::neither);
    const std::size_t rest = count / 10;
    shrink(rest);
    report.add("rss_shrunk", rss(), "KiB", Better::lower);
    report.add("live_shrunk", static_cast<double>(live) / 1024, "KiB", Better::neither);
    idle();
    report.add("rss_shrunk_idle", rss(), "KiB", Better::lower);
    grow(rest);
    report.add("rss_second_peak", rss(), "KiB", Better::lower);
    shrink(0);
    report.add("rss_freed", rss(), "KiB", Better::lower);
    idle();
    report.add("rss_freed_idle", rss(), "KiB", Better::lower);
  });
  add_timing(report, timing, 1, Better::lower);
  report.caveat(
      "KiB above the resident memory at the start, own tables excluded; while idle the program makes no allocator "
      "call");
}

constexpr Param kParams[] = {
    integer("peak-mib", "128", 1, 16384, "MiB", "requested bytes at the peak"),
    integer("exponent", "12", 6, 24, "", "sizes by the program law, 5 B to 2 to this power"),
    integer("idle", "1000", 0, 600000, "ms", "how long it idles after each shrinking"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kPhases{"phases", "grow to a peak, shrink, idle, grow again, free all, idle: resident memory over time",
                       kParams, run_phases};

}  // namespace workload
