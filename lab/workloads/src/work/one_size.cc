// Blocks of one size, or of one short pattern of sizes:
//   throughput, burst  many are allocated, replaced at random, and freed in order, again and again
//   batch              128 are allocated, then all of them are freed
//   pair               one is allocated and freed at once, over and over; every kind of call that has a pair
#include <cstdlib>
#include <new>

#include "laws.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr std::uint32_t kTables = 16;  // of drawn indices, used in turn

// Enough rounds for some tens of milliseconds, from size and threads alone: the work is the same under every allocator.
std::uint64_t rounds_for(std::uint64_t asked, std::uint64_t bytes, unsigned threads) {
  if (asked != 0) return asked;
  const std::uint64_t rounds = (bytes <= 1024 ? 200 : 200 * 1024 / bytes) / threads;
  return rounds < 2 ? 2 : rounds;
}

Timing run_rounds(const Args& args, Report& report, std::uint64_t rounds) {
  const std::uint32_t blocks = args.number32("blocks");
  const std::size_t bytes = args.number("size");
  const Touch touch = args.touch();
  return run_team(report, args.threads(), [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto picks = drawn(std::size_t{kTables} * blocks, [&] { return random.below(blocks); });
    OwnArray<Block> slots(blocks);
    lane.timed([&](Tally& tally) {
      std::uint32_t number = lane.index() << 26;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint32_t* pick = &picks[round % kTables * blocks];
        for (std::uint32_t i = 0; i < blocks; ++i) take(slots[i], bytes, number++, touch, tally);
        for (std::uint32_t i = 0; i < blocks; ++i) {
          Block& slot = slots[pick[i]];
          give(slot, touch, tally);
          take(slot, bytes, number++, touch, tally);
        }
        for (std::uint32_t i = 0; i < blocks; ++i) give(slots[i], touch, tally);
      }
    });
  });
}

void run_throughput(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const Timing timing = run_rounds(args, report, rounds_for(args.number("rounds"), args.number("size"), threads));
  const double items = static_cast<double>(timing.allocations) / 2;
  report.add("items_per_second", items / timing.seconds, "1/s", Better::higher, timing.allocations);
  report.add("items_per_cpu_second", items / timing.cpu_seconds, "1/s", Better::neither, timing.allocations);
  add_pairs(report, timing, threads, Better::neither);
  add_timing(report, timing, threads);
  report.caveat(
      "an item is 2 malloc and 2 free; items_per_second is of all threads together, items_per_cpu_second per second "
      "that a processor worked; indices are drawn before the timed part");
}

void run_burst(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint64_t rounds = rounds_for(args.number("rounds"), args.number("size"), threads);
  const Timing timing = run_rounds(args, report, rounds);
  add_pairs(report, timing, threads);
  report.add("burst_us", timing.ns_each(rounds) / 1e3, "us", Better::neither, rounds);
  add_timing(report, timing, threads);
}

constexpr Param kThroughputParams[] = {
    swept("size", "2^1..2^25", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    swept("threads", "1", 1, 1024, "", "threads, each with blocks of its own"),
    integer("blocks", "1000", 1, 1000000, "", "blocks live in each thread"),
    integer("rounds", "0", 0, 100000000, "",
            "times that all blocks are allocated, replaced and freed; 0: 200 up to 1 KiB, fewer for larger blocks, "
            "shared by the threads"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};
constexpr Param kBurstParams[] = {
    swept("size", "16..1M", 1, std::uint64_t{1} << 30, "B", "bytes of every block"),
    swept("threads", "1", 1, 1024, "", "threads, each with blocks of its own"),
    integer("blocks", "1000", 1, 1000000, "", "blocks live in each thread"),
    integer("rounds", "0", 0, 100000000, "",
            "bursts; 0: 200 up to 1 KiB, fewer for larger blocks, shared by the threads"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

constexpr std::uint32_t kPattern[] = {64, 64, 64, 64, 64, 64, 1024, 1024, 1024, 8192};

void run_batch(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const std::uint32_t blocks = args.number32("blocks");
  const std::uint64_t rounds = args.number("rounds");
  const Touch touch = args.touch();
  const bool mixed = args.pick("law") == 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    OwnArray<Block> slots(blocks);
    lane.timed([&](Tally& tally) {
      std::uint32_t number = lane.index() << 26;
      for (std::uint64_t round = 0; round < rounds; ++round) {
        for (std::uint32_t i = 0; i < blocks; ++i)
          take(slots[i], mixed ? kPattern[i % 10] : 64, number++, touch, tally);
        for (std::uint32_t i = 0; i < blocks; ++i) give(slots[i], touch, tally);
      }
    });
  });
  add_pairs(report, timing, threads);
  report.add("calls_per_second", timing.per_second(timing.calls()), "1/s", Better::neither, timing.calls());
  add_timing(report, timing, threads);
}

constexpr Param kBatchParams[] = {
    choice("law", "mixed", "mixed|fixed",
           "mixed: six of 64 B, three of 1 KiB, one of 8 KiB, repeated; fixed: all of 64 B"),
    swept("threads", "1", 1, 128, "", "independent threads"),
    integer("blocks", "128", 1, 1000000, "", "blocks in a batch"),
    integer("rounds", "50000", 1, 100000000, "", "batches per thread"),
    choice("touch", "ends", kTouchChoices, kTouchHelp),
};

enum Call : unsigned { call_malloc, call_calloc, call_new };

void* allocate(Call call, std::size_t bytes) {
  switch (call) {
    case call_malloc: return std::malloc(bytes);
    case call_calloc: return std::calloc(1, bytes);
    case call_new: try { return ::operator new(bytes);
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
  }
  return nullptr;
}

template <Call kCall>
void pairs(std::uint64_t rounds, std::size_t bytes, Touch touch, std::uint32_t number, Tally& out) {
  Tally tally;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    Block block;
    void* at = allocate(kCall, bytes);
    hide(at);
    if constexpr (kCall == call_calloc)
      if (at != nullptr && !is_zero(static_cast<char*>(at), touch == Touch::full ? bytes : 1)) ++tally.corrupted;
    accept(block, at, bytes, number++, touch, tally);
    if constexpr (kCall == call_new) {
      if (block.at == nullptr) continue;
      inspect(block, touch, tally);
      hide(block.at);
      ::operator delete(block.at);
      ++tally.frees;
    } else {
      give(block, touch, tally);
    }
  }
  out.add(tally);
}

void run_pair(const Args& args, Report& report) {
  static constexpr decltype(&pairs<call_malloc>) kPairs[] = {pairs<call_malloc>, pairs<call_calloc>, pairs<call_new>};
  const unsigned threads = args.threads();
  const std::uint64_t rounds = args.number("rounds") / threads;
  if (rounds == 0) usage_error("pair", "--rounds=%lu: expected at least one per thread", args.number("rounds"));
  const auto run = kPairs[args.pick("call")];
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    run(1000, args.number("size"), args.touch(), lane.index() << 26, lane.tally);
    lane.timed([&](Tally& tally) { run(rounds, args.number("size"), args.touch(), lane.index() << 26 | 1000, tally); });
  });
  add_pairs(report, timing, threads);
  report.add("pairs_per_second", timing.per_second(timing.allocations), "1/s", Better::neither, timing.allocations);
  add_timing(report, timing, threads);
}

constexpr Param kPairParams[] = {
    swept("size", "16..256K", 1, std::uint64_t{1} << 30, "B", "bytes of the block"),
    swept("threads", "1", 1, 1024, "", "threads that share the rounds"),
    integer("rounds", "1000000", 1, 10000000000, "", "pairs in all, after 1000 per thread that are not timed"),
    choice("call", "malloc", "malloc|calloc|new", "which pair: malloc, calloc, operator new"),
    choice("touch", "first64", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kThroughput{"throughput",
                           "malloc and free per second: blocks of one size allocated, replaced at random, freed",
                           kThroughputParams, run_throughput};
const Workload kBurst{"burst", "time of a burst: 1000 blocks of one size allocated, randomly replaced, freed",
                      kBurstParams, run_burst};
const Workload kBatch{"batch", "a batch of 128 blocks allocated, then freed", kBatchParams, run_batch};
const Workload kPair{"pair", "one block allocated and freed at once, per size and kind of call", kPairParams, run_pair};

}  // namespace workload
