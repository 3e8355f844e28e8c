// `rss`: threads that fill their slots, then replace blocks at random; resident memory is sampled over time, after all
// threads have freed everything and ended, and after the program has idled.
#include <atomic>

#include "clock.h"
#include "process.h"
#include "random.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Worker {
  Thread thread;
  std::uint64_t seed;
  unsigned index;
  std::uint32_t blocks;
  std::size_t bytes;
  std::uint64_t steps;
  Touch touch;
  std::atomic<unsigned>* filling;
  std::atomic<unsigned>* working;
  Tally tally;
};

void* work(void* given) {
  Worker& worker = *static_cast<Worker*>(given);
  Random random(worker.seed, worker.index);
  OwnArray<std::uint32_t> picks(1u << 14);
  for (auto& pick : picks) pick = random.below(worker.blocks);
  OwnArray<Block> slots(worker.blocks);
  Tally tally;
  std::uint32_t number = worker.index << 26;
  for (auto& slot : slots) take(slot, worker.bytes, number++, worker.touch, tally);
  worker.filling->fetch_sub(1);
  for (std::uint64_t step = 0; step < worker.steps; ++step) {
    Block& slot = slots[picks[step & (picks.size() - 1)]];
    give(slot, worker.touch, tally);
    take(slot, worker.bytes, number++, worker.touch, tally);
  }
  worker.working->fetch_sub(1);
  while (worker.working->load() != 0)
    sleep_ms(1);  // all stop together: the stable reading has every thread's blocks live
  for (auto& slot : slots) give(slot, worker.touch, tally);
  worker.tally = tally;
  return nullptr;
}

void run_rss(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t sample_ms = args.number("sample-ms");
  const std::uint64_t idle = args.number("idle");
  std::atomic<unsigned> filling{threads};
  std::atomic<unsigned> working{threads};
  OwnArray<Worker> workers(threads);
  Series& resident = report.curve("resident", 8192);
  const std::uint64_t start_kib = resident_exact_kib();
  const std::uint64_t begin = now_ns();
  const auto sample = [&] {
    const std::uint64_t kib = resident_exact_kib();
    resident.add(static_cast<double>(now_ns() - begin) * 1e-9, static_cast<double>(kib));
    return kib;
  };
  sample();
  const std::uint64_t faults = minor_faults_process();
  for (unsigned t = 0; t < threads; ++t) {
    Worker& worker = *new (&workers[t]) Worker{{},
                                               args.number("seed"),
                                               t,
                                               static_cast<std::uint32_t>(args.number("blocks")),
                                               args.number("size"),
                                               args.number("steps"),
                                               static_cast<Touch>(args.pick("touch")),
                                               &filling,
                                               &working,
                                               {}};
    if (!worker.thread.start(report, work, &worker)) {
      filling.fetch_sub(1);
      working.fetch_sub(1);
    }
  }
  std::uint64_t stable = 0;
  std::uint64_t most = 0;
  while (working.load() != 0) {
    sleep_ms(sample_ms);
    const bool live = filling.load() == 0 && working.load() != 0;
    const std::uint64_t kib = sample();
    if (live && working.load() != 0) stable = kib;
    most = kib > most ? kib : most;
  }
  const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  Timing timing;
  for (Worker& worker : workers) {
    worker.thread.join();
    report.tally.add(worker.tally);
    timing.allocations += worker.tally.allocations;
    timing.frees += worker.tally.frees;
  }
  timing.faults = minor_faults_process() - faults;
  timing.seconds = seconds;
  timing.cpu_seconds = __builtin_nan("");
  report.add("rss_start", static_cast<double>(start_kib), "KiB", Better::neither);
  if (stable != 0) report.add("rss_stable", static_cast<double>(stable), "KiB", Better::lower, resident.count);
  report.add("rss_stopped", static_cast<double>(sample()), "KiB", Better::lower);
  const std::uint64_t idle_end = now_ns() + idle * 1'000'000;
  while (now_ns() < idle_end) {
    sleep_ms(idle < 50 ? idle : 50);
    sample();
  }
  report.add("rss_idle", static_cast<double>(sample()), "KiB", Better::lower);
  report.add("rss_largest", static_cast<double>(most), "KiB", Better::lower, resident.count);
  add_timing(report, timing, threads);
  report.caveat(
      "rss_stable is the last reading with all blocks live, rss_stopped follows the end of all threads, rss_idle %llu "
      "ms later; "
      "the work is fixed, not the time",
      static_cast<unsigned long long>(idle));
  if (stable == 0) report.caveat("the threads ended before a reading with all blocks live: more --steps are needed");
}

constexpr Param kParams[] = {
    swept("threads", "1", 1, 128, "", "threads, beside the main thread that samples"),
    swept("blocks", "1000", 1, 10000000, "", "blocks live in each thread"),
    swept("size", "1024", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    integer("steps", "2000000", 1, 10000000000, "", "replacements per thread"),
    integer("sample-ms", "10", 1, 10000, "ms", "time between two readings"),
    integer("idle", "1000", 0, 600000, "ms", "how long the program idles before the last reading"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kRss{"rss", "resident memory over time: random replacement, stop, idle", kParams, run_rss};

}  // namespace workload
