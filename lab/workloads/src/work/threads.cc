// Threads that come and go, or sleep:
//   larson        a server in miniature. A thread replaces blocks of its array at random, then hands the array to a new
//                 thread and ends; the new thread frees what the dead one allocated. The array goes to the
//                 neighbour's successor, by which blocks cross between lineages that run at the same time as well.
//   churn         threads are born, allocate, leave some blocks behind and end; the main thread frees what they left
//   rss           threads fill their slots, then replace blocks at random; resident memory is sampled over time, after
//                 all threads have freed everything and ended, and after the program has idled
//   idle-threads  threads that allocated and freed some memory and now sleep: what stays behind in their caches
#include <algorithm>
#include <atomic>

#include "clock.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Pick {
  std::uint32_t slot;
  std::uint32_t bytes;
};

void run_larson(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint32_t blocks = args.number32("blocks");
  const std::uint64_t generations = args.number("generations");
  const std::uint32_t steps = args.number32("steps");
  const Touch touch = args.touch();
  const auto [low, high] = args.range();
  Random random(args.number("seed"), 0);
  const auto draw_size = [&] { return random.between(low, high); };
  const auto picks = drawn(1u << 16, [&] { return Pick{random.below(blocks), draw_size()}; });
  OwnArray<Block> slots(std::size_t{threads} * blocks);
  std::uint32_t number = 0;
  for (auto& slot : slots) take(slot, draw_size(), number++, touch, report.tally);

  NewThreads lineages(report, threads);
  std::atomic<std::uint64_t> crossed{0};
  Timing timing;
  const std::uint64_t faults = faults_of_process();
  const std::uint64_t begin = now_ns();
  for (std::uint64_t generation = 0; generation < generations; ++generation) {
    const auto work = [&](unsigned t, Tally& tally) {
      Block* const array = &slots[(t + generation) % threads * blocks];
      const std::uint64_t first_pick = (generation * threads + t) * 7919;
      const std::uint32_t first = number + t * steps;
      std::uint64_t inherited = 0;
      for (std::uint32_t i = 0; i < steps; ++i) {
        const Pick& pick = picks[(first_pick + i) & (picks.size() - 1)];
        Block& slot = array[pick.slot];
        inherited += slot.number - first >= steps ? 1 : 0;  // numbered by another thread: that one allocated it
        give(slot, touch, tally);
        take(slot, pick.bytes, first + i, touch, tally);
      }
      crossed += inherited;
    };
    lineages.start(work);
    lineages.join(timing);
    number += threads * steps;
  }
  timing.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  timing.faults = faults_of_process() - faults;
  for (auto& slot : slots) give(slot, touch, report.tally);
  report.add("calls_per_second", timing.per_second(timing.calls()), "1/s", Better::higher, timing.calls());
  add_pairs(report, timing, threads, Better::neither);
  report.add("crossed_frees", crossed.load(), "count", Better::neither, timing.frees);
  report.add("threads_ended", generations * threads, "count", Better::neither);
  add_timing(report, timing, threads);
  report.caveat("creating and ending %lu threads is part of the time", generations * threads);
}

constexpr Param kLarsonParams[] = {
    swept("threads", "2", 1, 1024, "", "lineages that run at the same time"),
    integer("generations", "20", 1, 100000, "", "threads per lineage, one after another"),
    integer("steps", "50000", 1, 100000000, "", "replacements per thread"),
    integer("blocks", "1000", 1, 1000000, "", "blocks in an array"),
    integer("low", "8", 1, 16777216, "B", "the smallest block"),
    integer("high", "512", 1, 16777216, "B", "the largest block"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

void run_churn(const Args& args, Report& report) {
  const unsigned width = args.threads();
  const std::uint64_t waves = args.number("waves");
  const std::uint32_t blocks = args.number32("blocks");
  const std::uint32_t kept = blocks / 4;  // outlive the thread
  const Touch touch = args.touch();
  Random random(args.number("seed"), 0);
  const auto sizes = drawn(4096, [&] { return random.between(16, 1024); });
  OwnArray<Block> slots(std::size_t{width} * blocks);
  NewThreads wave_threads(report, width);
  Series& resident = report.curve("resident", 130);
  const std::uint64_t sample_every = waves / 64 + 1;
  std::uint32_t number = 0;
  Timing timing;
  double early = 0;
  const std::uint64_t origin = now_ns();
  const std::uint64_t faults = faults_of_process();
  for (std::uint64_t wave = 0; wave < waves; ++wave) {
    const std::uint64_t begin = now_ns();
    const auto live = [&](unsigned t, Tally& tally) {
      Block* const own = &slots[std::size_t{t} * blocks];
      const std::uint32_t first = number + t * blocks;
      for (std::uint32_t i = 0; i < blocks; ++i)
        take(own[i], sizes[(first + i) & (sizes.size() - 1)], first + i, touch, tally);
      for (std::uint32_t i = kept; i < blocks; ++i) give(own[i], touch, tally);
    };
    wave_threads.start(live);
    wave_threads.join(timing, [&](unsigned t, Tally& tally) {
      for (std::uint32_t i = 0; i < kept; ++i) give(slots[std::size_t{t} * blocks + i], touch, tally);
    });
    number += width * blocks;
    timing.seconds += static_cast<double>(now_ns() - begin) * 1e-9;
    if (wave % sample_every == 0 || wave + 1 == waves)
      resident.add(static_cast<double>(now_ns() - origin) * 1e-9, resident_kib());
    if (wave == waves / 4) early = resident_kib();
  }
  const double last = resident_kib();
  timing.faults = faults_of_process() - faults;
  report.add("thread_us", timing.ns_each(waves * width) / 1e3, "us", Better::lower, waves * width);
  report.add("rss_growth", last - early, "KiB", Better::lower, 2);
  add_timing(report, timing, width);
  report.caveat(
      "thread_us contains the system's own cost of a thread; rss_growth is from a quarter of the waves to the last "
      "one, all freed");
}

constexpr Param kChurnParams[] = {
    swept("threads", "4", 1, 256, "", "threads alive at once"),
    integer("waves", "500", 4, 1000000, "", "times that these threads are born and end"),
    integer("blocks", "100", 1, 100000, "",
            "blocks of 16 to 1024 bytes that each thread allocates; a quarter outlives it"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

void run_rss(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint32_t blocks = args.number32("blocks");
  const std::uint64_t idle = args.number("idle");
  const std::size_t bytes = args.number("size");
  const std::uint64_t steps = args.number("steps");
  const Touch touch = args.touch();
  std::atomic<unsigned> filling{threads};
  std::atomic<unsigned> working{threads};
  NewThreads workers(report, threads);
  Series& resident = report.curve("resident", 8192);
  const double start_kib = resident_kib();
  const std::uint64_t begin = now_ns();
  const auto sample = [&] {
    const double kib = resident_kib();
    resident.add(static_cast<double>(now_ns() - begin) * 1e-9, kib);
    return kib;
  };
  sample();
  const std::uint64_t faults = faults_of_process();
  const auto work = [&](unsigned t, Tally& tally) {
    Random random(args.number("seed"), t);
    const auto picks = drawn(1u << 14, [&] { return random.below(blocks); });
    OwnArray<Block> slots(blocks);
    std::uint32_t number = t << 26;
    for (auto& slot : slots) take(slot, bytes, number++, touch, tally);
    filling.fetch_sub(1);
    for (std::uint64_t step = 0; step < steps; ++step) {
      Block& slot = slots[picks[step & (picks.size() - 1)]];
      give(slot, touch, tally);
      take(slot, bytes, number++, touch, tally);
    }
    working.fetch_sub(1);
    while (working.load() != 0) sleep_ms(1);  // all stop together: the stable reading has every thread's blocks live
    for (auto& slot : slots) give(slot, touch, tally);
  };
  const unsigned missing = workers.start(work);
  filling.fetch_sub(missing);
  working.fetch_sub(missing);
  double stable = 0;
  double most = 0;
  while (working.load() != 0) {
    sleep_ms(args.number("sample-ms"));
    const bool live = filling.load() == 0 && working.load() != 0;
    const double kib = sample();
    if (live && working.load() != 0) stable = kib;
    most = std::max(most, kib);
  }
  Timing timing;
  timing.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  workers.join(timing);
  timing.faults = faults_of_process() - faults;
  report.add("rss_start", start_kib, "KiB", Better::neither);
  if (stable != 0) report.add("rss_stable", stable, "KiB", Better::lower, resident.count);
  report.add("rss_stopped", sample(), "KiB", Better::lower);
  idle_ms(idle, sample);
  report.add("rss_idle", sample(), "KiB", Better::lower);
  report.add("rss_largest", most, "KiB", Better::lower, resident.count);
  add_timing(report, timing, threads);
  report.caveat(
      "rss_stable is the last reading with all blocks live, rss_stopped follows the end of all threads, rss_idle %lu "
      "ms later; the work is fixed, not the time",
      idle);
  if (stable == 0) report.caveat("the threads ended before a reading with all blocks live: more --steps are needed");
}

constexpr Param kRssParams[] = {
    swept("threads", "1", 1, 128, "", "threads, beside the main thread that samples"),
    swept("blocks", "1000", 1, 10000000, "", "blocks live in each thread"),
    swept("size", "1024", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    integer("steps", "2000000", 1, 10000000000, "", "replacements per thread"),
    integer("sample-ms", "10", 1, 10000, "ms", "time between two readings"),
    integer("idle", "1000", 0, 600000, "ms", "how long the program idles before the last reading"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

// The pages of its stack that a thread will use: they are not the allocator's.
[[gnu::noinline]] void touch_stack() {
  char pages[32 << 10];
  for (std::size_t at = 0; at < sizeof pages; at += 4096) pages[at] = 1;
  asm volatile("" ::"r"(pages) : "memory");
}

void run_idle_threads(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t used = args.number("kib") << 10;
  const Touch touch = args.touch();
  const ProgramSizes law(args.number32("exponent"));
  double base = 0;
  double asleep = 0;
  double later = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    std::size_t count = 0;
    for (std::uint64_t bytes = 0; bytes < used; ++count) bytes += law.draw(random);
    random = Random(args.number("seed"), lane.index());
    OwnArray<Block> blocks(count);
    for (auto& block : blocks) block.bytes = law.draw(random);
    touch_stack();
    lane.alone([&] { base = resident_kib(); });
    lane.timed([&](Tally& tally) {
      std::uint32_t number = lane.index() << 20;
      for (auto& block : blocks) take(block, block.bytes, number++, touch, tally);
      for (auto& block : blocks) give(block, touch, tally);
    });
    lane.alone([&] {  // the others sleep at the barrier meanwhile
      asleep = resident_kib() - base;
      sleep_ms(args.number("idle"));
      later = resident_kib() - base;
    });
  });
  report.add("rss_asleep", asleep, "KiB", Better::lower);
  report.add("rss_asleep_later", later, "KiB", Better::lower);
  report.add("thread_kib", later / threads, "KiB", Better::neither, threads);
  report.add("pair_ns", timing.cpu_seconds * 1e9 / static_cast<double>(timing.allocations), "ns", Better::lower,
             timing.allocations);
  add_timing(report, timing, threads);
  report.caveat(
      "KiB above what the process had with all threads started; every block is freed, and all threads but the first "
      "sleep");
}

constexpr Param kIdleThreadsParams[] = {
    swept("threads", "100", 1, 1000, "", "threads that sleep at once"),
    integer("kib", "512", 1, 1048576, "KiB", "what each allocates, and frees, before it sleeps"),
    integer("exponent", "13", 6, 24, "", "sizes by the program law, 5 B to 2 to this power"),
    integer("idle", "300", 0, 600000, "ms", "how long they sleep before the second reading"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kLarson{"larson", "arrays of blocks handed from ending threads to new ones, replaced at random",
                       kLarsonParams, run_larson};
const Workload kChurn{"churn", "threads that are born, allocate, leave blocks behind and end", kChurnParams, run_churn};
const Workload kRss{"rss", "resident memory over time: random replacement, stop, idle", kRssParams, run_rss};
const Workload kIdleThreads{"idle-threads", "what threads that sleep keep of the memory they freed", kIdleThreadsParams,
                            run_idle_threads};

}  // namespace workload
