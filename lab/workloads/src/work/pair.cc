// `pair`: one block is allocated and freed at once, over and over; every kind of call that has a pair.
#include <cstdlib>
#include <new>

#include "registry.h"
#include "team.h"

namespace workload {
namespace {

enum Call : unsigned { call_malloc, call_calloc, call_new, call_aligned };

void* allocate(Call call, std::size_t bytes) {
  switch (call) {
    case call_malloc: return std::malloc(bytes);
    case call_calloc: return std::calloc(1, bytes);
    case call_new:
      try {
        return ::operator new(bytes);
      } catch (const std::bad_alloc&) {
        return nullptr;
      }
    case call_aligned: return std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  }
  return nullptr;
}

bool all_zero(const char* p, std::size_t bytes) {
  std::uint64_t any = 0;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) any |= get_word(p + i);
  for (; i < bytes; ++i) any |= static_cast<unsigned char>(p[i]);
  return any == 0;
}

template <Call kCall>
void pairs(std::uint64_t rounds, std::size_t bytes, Touch touch, std::uint32_t number, Tally& tally) {
  for (std::uint64_t i = 0; i < rounds; ++i) {
    Block block;
    void* at = allocate(kCall, bytes);
    hide(at);
    if constexpr (kCall == call_calloc)
      if (at != nullptr &&
          (touch == Touch::full ? !all_zero(static_cast<char*>(at), bytes) : *static_cast<char*>(at) != 0))
        ++tally.corrupted;
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
}

void run_pair(const Args& args, Report& report) {
  const std::size_t bytes = args.number("size");
  const auto call = static_cast<Call>(args.pick("call"));
  const auto touch = static_cast<Touch>(args.pick("touch"));
  const unsigned threads = args.threads();
  const std::uint64_t rounds = args.number("rounds") / threads;
  if (rounds == 0)
    usage_error("pair", "--rounds=%llu: expected at least one per thread",
                static_cast<unsigned long long>(args.number("rounds")));
  const auto body = [&](std::uint64_t count, std::uint32_t number, Tally& tally) {
    switch (call) {
      case call_malloc: return pairs<call_malloc>(count, bytes, touch, number, tally);
      case call_calloc: return pairs<call_calloc>(count, bytes, touch, number, tally);
      case call_new: return pairs<call_new>(count, bytes, touch, number, tally);
      case call_aligned: return pairs<call_aligned>(count, bytes, touch, number, tally);
    }
  };
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    body(1000, lane.index() << 26, lane.tally);
    lane.start();
    Tally tally;
    body(rounds, lane.index() << 26 | 1000, tally);
    lane.tally.add(tally);
    lane.stop();
  });
  report.add("pair_ns", timing.seconds * 1e9 / static_cast<double>(rounds), "ns", Better::lower, timing.allocations);
  report.add("pairs_per_second", static_cast<double>(timing.allocations) / timing.seconds, "1/s", Better::neither,
             timing.allocations);
  add_timing(report, timing, threads);
  if (call == call_aligned) report.caveat("aligned_alloc(64, size): sizes are rounded up to a multiple of 64");
}

constexpr Param kParams[] = {
    swept("size", "16..256K", 1, std::uint64_t{1} << 30, "B", "bytes of the block"),
    swept("threads", "1", 1, 1024, "", "threads that share the rounds"),
    integer("rounds", "1000000", 1, 10000000000, "", "pairs in all, after 1000 per thread that are not timed"),
    choice("call", "malloc", "malloc|calloc|new|aligned",
           "which pair: malloc, calloc, operator new, aligned_alloc(64)"),
    choice("touch", "first64", kTouchChoices, kTouchHelp),
};

}  // namespace

const Workload kPair{"pair", "one block allocated and freed at once, per size and kind of call", kParams, run_pair};

}  // namespace workload
