// `churn`: threads are born, allocate, leave some blocks behind and end; the main thread frees what they left.
#include "clock.h"
#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Life {
  Thread thread;
  Block* slots;
  const OwnArray<std::uint32_t>* sizes;
  std::uint32_t blocks, kept;
  std::uint32_t number;
  Touch touch;
  Tally tally;
};

void* live(void* given) {
  Life& life = *static_cast<Life*>(given);
  Tally tally;
  for (std::uint32_t i = 0; i < life.blocks; ++i)
    take(life.slots[i], (*life.sizes)[(life.number + i) & (life.sizes->size() - 1)], life.number + i, life.touch,
         tally);
  for (std::uint32_t i = life.kept; i < life.blocks; ++i) give(life.slots[i], life.touch, tally);
  life.tally = tally;
  return nullptr;
}

void run_churn(const Args& args, Report& report) {
  const auto width = static_cast<unsigned>(args.number("threads"));
  const std::uint64_t waves = args.number("waves");
  const auto blocks = static_cast<std::uint32_t>(args.number("blocks"));
  const auto kept = static_cast<std::uint32_t>(blocks * args.number("kept") / 100);
  const auto touch = static_cast<Touch>(args.pick("touch"));
  OwnArray<std::uint32_t> sizes(4096);
  Random random(args.number("seed"), 0);
  for (auto& size : sizes) size = random.between(16, args.number("high"));
  OwnArray<Block> slots(std::size_t{width} * blocks);
  OwnArray<Life> lives(width);
  Series& resident = report.curve("resident", 130);
  const std::uint64_t sample_every = waves / 64 + 1;
  std::uint32_t number = 0;
  Timing timing;
  double early = 0;
  const std::uint64_t origin = now_ns();
  const std::uint64_t faults = minor_faults_process();
  for (std::uint64_t wave = 0; wave < waves; ++wave) {
    const std::uint64_t begin = now_ns();
    for (unsigned t = 0; t < width; ++t, number += blocks) {
      lives[t] = Life{{}, &slots[std::size_t{t} * blocks], &sizes, blocks, kept, number, touch, {}};
      lives[t].thread.start(report, live, &lives[t]);
    }
    for (Life& life : lives) {
      life.thread.join();
      for (std::uint32_t i = 0; i < kept; ++i) give(life.slots[i], touch, life.tally);
      timing.allocations += life.tally.allocations;
      timing.frees += life.tally.frees;
      report.tally.add(life.tally);
    }
    timing.seconds += static_cast<double>(now_ns() - begin) * 1e-9;
    if (wave % sample_every == 0 || wave + 1 == waves)
      resident.add(static_cast<double>(now_ns() - origin) * 1e-9, static_cast<double>(resident_exact_kib()));
    if (wave == waves / 4) early = static_cast<double>(resident_exact_kib());
  }
  const double last = static_cast<double>(resident_exact_kib());
  timing.faults = minor_faults_process() - faults;
  timing.cpu_seconds = __builtin_nan("");
  const double threads = static_cast<double>(waves) * width;
  report.add("thread_us", timing.seconds * 1e6 / threads, "us", Better::lower, waves * width);
  report.add("rss_growth", last - early, "KiB", Better::lower, 2);
  add_timing(report, timing, width);
  report.caveat(
      "thread_us contains the system's own cost of a thread; rss_growth is from a quarter of the waves to the last "
      "one, all freed");
}

constexpr Param kParams[] = {
    swept("threads", "4", 1, 256, "", "threads alive at once"),
    integer("waves", "500", 4, 1000000, "", "times that these threads are born and end"),
    integer("blocks", "100", 1, 100000, "", "blocks that each thread allocates"),
    integer("kept", "25", 0, 100, "%", "share of them that outlives the thread"),
    integer("high", "1024", 16, 1048576, "B", "sizes are uniform from 16 to this"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kChurn{"churn", "threads that are born, allocate, leave blocks behind and end", kParams, run_churn};

}  // namespace workload
