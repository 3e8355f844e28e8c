// `server`: threads that serve requests. A request takes some short blocks and frees them at its end, in another order;
// some requests replace an entry of the thread's store, which lives long; a share of the short blocks is freed by
// another thread.
#include <algorithm>
#include <new>

#include "laws.h"
#include "process.h"
#include "queue.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kShort = 16;    // short blocks of a request
constexpr std::uint64_t kReplaces = 4;  // one request in so many replaces an entry

struct Drawn {
  std::uint32_t bytes;
  std::uint32_t other;  // below 100: freed elsewhere when below `remote`
};
struct Entry {
  std::uint32_t slot;
  std::uint32_t bytes;
};

void run_server(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t requests = args.number("requests") / threads;
  const auto remote = static_cast<std::uint32_t>(args.number("remote"));
  const std::size_t entries = args.number("entries");
  const auto touch = static_cast<Touch>(args.pick("touch"));
  OwnArray<Queue> queues(threads);
  for (auto& queue : queues) new (&queue) Queue(1024);
  OwnArray<std::uint64_t> handed(threads);
  OwnArray<std::uint64_t> stored(threads);
  double base = 0;
  double serving = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    const unsigned me = lane.index();
    Random random(args.number("seed"), me);
    const ProgramSizes law(12);
    OwnArray<Drawn> drawn(1u << 14);
    for (auto& draw : drawn) draw = {law.draw(random), random.below(100)};
    OwnArray<Entry> entry(1u << 12);
    for (auto& e : entry) e = {random.below(entries), draw_band_size(random)};
    OwnArray<Block> store(entries);
    Queue& inbox = queues[me];
    Queue& next = queues[(me + 1) % threads];
    Block blocks[kShort];
    Block away[kShort];
    std::uint64_t given = 0;
    std::uint32_t number = me << 26;
    lane.alone([&] { base = static_cast<double>(resident_exact_kib()); });
    lane.start();
    Tally tally;
    for (std::uint64_t request = 0; request < requests; ++request) {
      const Drawn* draw = &drawn[request * kShort & (drawn.size() - 1)];
      std::uint32_t parting = 0;
      for (std::uint32_t i = 0; i < kShort; ++i) take(blocks[i], draw[i].bytes, number++, touch, tally);
      if (request % kReplaces == 0) {
        const Entry& e = entry[request / kReplaces & (entry.size() - 1)];
        give(store[e.slot], touch, tally);
        take(store[e.slot], e.bytes, number++, touch, tally);
      }
      for (std::uint32_t i = 0; i < kShort; ++i) {
        Block& block = blocks[i * 7 % kShort];  // 7 and 16 have no common divisor: every block once
        if (draw[i * 7 % kShort].other < remote && block.at != nullptr) away[parting++] = block;
        else give(block, touch, tally);
      }
      push_all(next, away, parting, &inbox, touch, tally, rest);
      given += parting;
      drain(inbox, touch, tally);
    }
    next.close();
    drain_to_end(inbox, touch, tally, rest);
    lane.tally.add(tally);
    lane.stop();
    handed[me] = given;
    for (const Block& block : store) stored[me] += block.at != nullptr ? block.bytes : 0;
    lane.alone([&] { serving = static_cast<double>(resident_exact_kib()); });
    for (auto& block : store) give(block, touch, lane.tally);
  });
  for (auto& queue : queues) queue.~Queue();
  double crossed = 0;
  double live = 1;
  for (unsigned t = 0; t < threads; ++t) {
    crossed += static_cast<double>(handed[t]);
    live += static_cast<double>(stored[t]);
  }
  const auto served = static_cast<double>(requests * threads);
  report.add("requests_per_second", served / timing.seconds, "1/s", Better::higher, requests * threads);
  report.add("crossed_frees", crossed, "count", Better::neither);
  report.add("memory_over_live", (serving - base) * 1024 / live, "ratio", Better::lower);
  add_timing(report, timing, threads);
  report.caveat("memory_over_live is read when all requests are served: resident over what the stores hold");
}

constexpr Param kParams[] = {
    swept("threads", "4", 2, 1024, "", "threads that serve"),
    integer("requests", "200000", 64, 10000000000, "",
            "requests in all; each takes 16 short blocks, one in four replaces an entry"),
    integer("remote", "5", 0, 100, "%", "short blocks that the next thread frees"),
    integer("entries", "3000", 1, 10000000, "", "entries of each thread's store, 16 B to 32 KiB"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kServer{"server", "requests with short and long blocks, some freed by another thread", kParams,
                       run_server};

}  // namespace workload
