// `idle-threads`: threads that allocated and freed some memory and now sleep: what stays behind in their caches.
#include "clock.h"
#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::size_t kStackBytes = 32 << 10;

// The pages of its stack that a thread will use: they are not the allocator's.
[[gnu::noinline]] void touch_stack() {
  char pages[kStackBytes];
  for (std::size_t at = 0; at < kStackBytes; at += 4096) pages[at] = 1;
  asm volatile("" ::"r"(pages) : "memory");
}

void run_idle_threads(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t used = args.number("kib") << 10;
  const std::uint64_t idle = args.number("idle");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const ProgramSizes law(static_cast<unsigned>(args.number("exponent")));
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
    lane.alone([&] { base = static_cast<double>(resident_exact_kib()); });
    lane.start();
    Tally tally;
    std::uint32_t number = lane.index() << 20;
    for (auto& block : blocks) take(block, block.bytes, number++, touch, tally);
    for (auto& block : blocks) give(block, touch, tally);
    lane.tally.add(tally);
    lane.stop();
    lane.alone([&] {  // the others sleep at the barrier meanwhile
      asleep = static_cast<double>(resident_exact_kib()) - base;
      sleep_ms(idle);
      later = static_cast<double>(resident_exact_kib()) - base;
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

constexpr Param kParams[] = {
    swept("threads", "100", 1, 1000, "", "threads that sleep at once"),
    integer("kib", "512", 1, 1048576, "KiB", "what each allocates, and frees, before it sleeps"),
    integer("exponent", "13", 6, 24, "", "sizes by the program law, 5 B to 2 to this power"),
    integer("idle", "300", 0, 600000, "ms", "how long they sleep before the second reading"),
    choice("touch", "full", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kIdleThreads{"idle-threads", "what threads that sleep keep of the memory they freed", kParams,
                            run_idle_threads};

}  // namespace workload
