// Blocks in slots, replaced at random:
//   aligned    of drawn alignments; an address that is not aligned counts as a failure
//   large      of megabytes, one word written in every page
//   lifetimes  slots picked by a skewed law: an empty one gets a block that is written, a full one is read and freed.
//              The same steps run against a void source as well (one warm buffer per thread), whose time is what the
//              workload itself costs; it flatters nobody, but it is cache-warm, so it takes off less than the touching
//              of real blocks costs.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

struct Ask {
  std::uint32_t slot;
  std::uint32_t alignment;
  std::uint32_t bytes;
};

void take_aligned(Block& block, const Ask& ask, bool posix, std::uint32_t number, Touch touch, Tally& tally) {
  void* at = nullptr;
  if (posix) {
    if (::posix_memalign(&at, ask.alignment, ask.bytes) != 0) at = nullptr;
  } else {
    at = std::aligned_alloc(ask.alignment, ask.bytes);
  }
  hide(at);
  if ((reinterpret_cast<std::uintptr_t>(at) & (ask.alignment - 1)) != 0) ++tally.misaligned;
  accept(block, at, ask.bytes, number, touch, tally);
}

double kib_of(const OwnArray<std::uint64_t>& bytes) { return std::accumulate(bytes.begin(), bytes.end(), 0.0) / 1024; }

void run_aligned(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  args.expect_power_of_two("low");
  args.expect_power_of_two("high");
  const auto [low, high] = args.range();
  const auto octaves = static_cast<std::uint64_t>(std::bit_width(high) - std::bit_width(low) + 1);
  const std::uint64_t top = args.number("top");
  const std::uint32_t live = args.number32("live");
  const std::uint64_t steps = args.number("steps");
  const bool posix = args.pick("call") == 0;
  const Touch touch = args.touch();
  OwnArray<std::uint64_t> requested(threads);
  double base_kib = 0;
  double peak_kib = 0;
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto asks = drawn(1u << 16, [&] {
      Ask ask;
      ask.slot = random.below(live);
      ask.alignment = static_cast<std::uint32_t>(low << random.below(octaves));
      ask.bytes = (random.between(1, top) + ask.alignment - 1) / ask.alignment * ask.alignment;
      return ask;
    });
    OwnArray<Block> slots(live);
    lane.alone([&] { base_kib = resident_kib(); });
    std::uint32_t number = lane.index() << 26;
    for (std::uint32_t i = 0; i < live; ++i)
      take_aligned(slots[i], asks[i & 0xFFFF], posix, number++, touch, lane.tally);
    for (const Block& slot : slots) requested[lane.index()] += slot.bytes;
    lane.alone([&] { peak_kib = resident_kib(); });
    lane.timed([&](Tally& tally) {
      for (std::uint64_t step = 0; step < steps; ++step) {
        const Ask& ask = asks[(step + live) & 0xFFFF];
        give(slots[ask.slot], touch, tally);
        take_aligned(slots[ask.slot], ask, posix, number++, touch, tally);
      }
    });
    for (auto& slot : slots) give(slot, touch, lane.tally);
  });
  add_pairs(report, timing, threads);
  report.add("memory_overhead", (peak_kib - base_kib) / kib_of(requested), "ratio", Better::lower,
             std::uint64_t{live} * threads);
  add_timing(report, timing, threads);
  report.caveat(
      "sizes are rounded up to a multiple of the alignment; memory_overhead is resident over requested when all blocks "
      "live%s",
      touch == Touch::full || touch == Touch::page ? "" : " (below 1 where pages of a block were never touched)");
}

constexpr Param kAlignedParams[] = {
    integer("low", "16", 8, 1 << 24, "B", "the smallest alignment, a power of two"),
    integer("high", "4096", 8, 1 << 24, "B", "the largest alignment; the powers of two between are equally likely"),
    integer("top", "4096", 1, 1 << 24, "B", "sizes are uniform up to this, rounded up to the alignment"),
    integer("live", "1000", 1, 1000000, "", "blocks live in each thread, replaced at random"),
    integer("steps", "200000", 1, 1000000000, "", "replacements per thread"),
    swept("threads", "1", 1, 64, "", "independent threads"),
    choice("call", "posix_memalign", "posix_memalign|aligned_alloc", "the function"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

struct Step {
  std::uint32_t slot;
  std::uint32_t bytes;
};

void run_large(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto [low, high] = args.range();
  const std::uint32_t live = args.number32("live");
  const Touch touch = args.touch();
  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto steps = drawn(args.number("steps"), [&] { return Step{random.below(live), random.between(low, high)}; });
    OwnArray<Block> slots(live);
    lane.timed([&](Tally& tally) {
      std::uint32_t number = lane.index() << 26;
      for (const Step& step : steps) {
        give(slots[step.slot], touch, tally);
        take(slots[step.slot], step.bytes, number++, touch, tally);
      }
      for (auto& slot : slots) give(slot, touch, tally);
    });
  });
  report.add("pair_us", timing.ns_each(timing.allocations) * threads / 1e3, "us", Better::lower, timing.allocations);
  add_timing(report, timing, threads);
  report.caveat(
      "what a block costs here is mostly its page faults: minor_faults tells how many pages were given back and asked "
      "for again");
}

constexpr Param kLargeParams[] = {
    integer("low", "5M", 1, std::uint64_t{1} << 31, "B", "the smallest block"),
    integer("high", "25M", 1, std::uint64_t{1} << 31, "B", "the largest block"),
    integer("live", "20", 1, 10000, "", "slots in each thread, filled and replaced at random"),
    integer("steps", "500", 1, 10000000, "", "allocations per thread"),
    swept("threads", "1", 1, 32, "", "independent threads"),
    choice("touch", "page", kTouchChoices, kTouchHelp),
};

constexpr unsigned kChunks = 32;
constexpr Touch kModes[] = {Touch::full, Touch::single, Touch::none};  // in the order of the parameter's choices

// Every request is answered with the same memory, so contents cannot be verified: reads are summed all the same.
struct Void {
  char* memory;
  void take(Block& block, std::size_t bytes, std::uint32_t number, Touch touch, Tally& tally) const {
    void* at = memory;
    hide(at);
    accept(block, at, bytes, number, touch, tally);
  }
  void give(Block& block, Touch touch, Tally& tally) const {
    inspect(block, touch, tally);
    hide(block.at);
    block.at = nullptr;
    ++tally.frees;
  }
};
struct Real {
  void take(Block& block, std::size_t bytes, std::uint32_t number, Touch touch, Tally& tally) const {
    workload::take(block, bytes, number, touch, tally);
  }
  void give(Block& block, Touch touch, Tally& tally) const { workload::give(block, touch, tally); }
};

template <class Source>
void run_steps(const Source& source, const OwnArray<Step>& steps, OwnArray<Block>& slots, std::uint32_t& number,
               Touch touch, Tally& tally, std::uint64_t& live) {
  for (const Step& step : steps) {
    Block& slot = slots[step.slot];
    if (slot.at == nullptr) {
      source.take(slot, step.bytes, number++, touch, tally);
      live += step.bytes;
    } else {
      live -= slot.bytes;
      source.give(slot, touch, tally);
    }
  }
}

void run_lifetimes(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const unsigned exponent = args.number32("exponent");
  const auto slot_count = static_cast<std::uint32_t>(args.number("slots") / threads);
  const std::uint64_t chunk_steps = args.number("steps") / kChunks;
  const bool program_law = args.pick("law") == 0;
  const bool with_void = args.yes("void");
  const Touch touch = kModes[args.pick("touch")];
  if (slot_count < FoldedSlots::kLeastSlots)
    usage_error("lifetimes", "--slots=%lu: expected at least %u per thread", args.number("slots"),
                FoldedSlots::kLeastSlots);
  if (chunk_steps == 0) usage_error("lifetimes", "--steps: expected at least %u", kChunks);
  const ArticleSizes article(exponent);
  const ProgramSizes program(exponent);
  const FoldedSlots folded(slot_count);
  OwnArray<std::uint64_t> live_of(threads);  // requested bytes
  Series& by_chunk = report.curve("memory_over_requested", kChunks + 1);
  double largest_requested = 0;
  double largest_resident = 0;
  double base_kib = 0;
  Timing void_timing;

  const Timing timing = run_team(report, threads, [&](Lane& lane) {
    Random random(args.number("seed"), lane.index());
    const auto draw_size = [&] { return program_law ? program.draw(random) : article.draw(random); };
    OwnArray<Block> slots(slot_count);
    OwnArray<Block> void_slots(with_void ? slot_count : 1);
    OwnArray<Step> steps(chunk_steps);
    lane.alone([&] { base_kib = resident_kib(); });
    std::uint32_t number = lane.index() << 26;
    std::uint32_t void_number = number;
    std::uint64_t live = 0;
    std::uint64_t void_live = 0;
    OwnArray<char> shared(with_void ? std::size_t{1} << exponent : 1);
    const Void nothing{shared.data()};
    for (std::size_t i = 0; i < slot_count; ++i) {
      if ((random.next() >> 63) == 0) continue;
      const std::uint32_t bytes = draw_size();
      Tally dropped;
      if (with_void) nothing.take(void_slots[i], bytes, void_number++, touch, dropped);
      take(slots[i], bytes, number++, touch, lane.tally);
      live += bytes;
    }
    const auto sample = [&](unsigned chunk) {
      live_of[lane.index()] = live;
      lane.alone([&] {
        const double total = kib_of(live_of);
        const double kib = std::max(0.0, resident_kib() - base_kib);
        by_chunk.add(chunk, kib / std::max(total, 1.0));
        largest_requested = std::max(largest_requested, total);
        largest_resident = std::max(largest_resident, kib);
      });
    };
    sample(0);
    for (unsigned chunk = 1; chunk <= kChunks; ++chunk) {
      for (Step& step : steps) step = {folded.draw(random), draw_size()};
      lane.timed([&](Tally& tally) { run_steps(Real{}, steps, slots, number, touch, tally, live); });
      sample(chunk);
      if (!with_void) continue;
      lane.start();
      Tally dropped;
      run_steps(nothing, steps, void_slots, void_number, touch, dropped, void_live);
      asm volatile("" ::"r"(dropped.checksum), "r"(void_live));
      lane.stop(&void_timing);
    }
    for (auto& slot : slots) give(slot, touch, lane.tally);
  });
  const double per_pair = 1e9 * threads / static_cast<double>(timing.frees);
  report.add("pair_ns", timing.seconds * per_pair, "ns", Better::lower, timing.frees);
  if (with_void) {
    report.add("void_pair_ns", void_timing.seconds * per_pair, "ns", Better::neither, timing.frees);
    report.add("net_pair_ns", (timing.seconds - void_timing.seconds) * per_pair, "ns", Better::lower, timing.frees);
  }
  report.add("memory_overhead", largest_resident / largest_requested, "ratio", Better::lower, kChunks + 1);
  report.add("requested_peak", largest_requested, "KiB", Better::neither, kChunks + 1);
  report.add("pairs_per_second", timing.per_second(timing.frees), "1/s", Better::neither, timing.frees);
  add_timing(report, timing, threads);
  report.caveat(
      "ns per pair: a pair is one allocation and one free with the writing and reading of the block, per thread; "
      "numbers are "
      "drawn outside the timed part; memory_overhead is peak resident growth over peak requested, sampled %u times",
      kChunks + 1);
  if (!program_law)
    report.caveat(
        "size law of the article: proportional to 1/size; the program that the article ran draws 1/size^2 "
        "(--law=program)");
}

constexpr Param kLifetimesParams[] = {
    choice("law", "program", "program|article",
           "sizes: P(s) falls as 1/s^2 (program) or as 1/s (article), 5 B ... 2^exponent"),
    integer("exponent", "16", 6, 24, "", "the largest size is 2 to this power"),
    swept("threads", "1", 1, 64, "", "independent threads that share the slots"),
    integer("slots", "2^18", 64, std::uint64_t{1} << 28, "", "slots in all; about half are full"),
    integer("steps", "4000000", 32, 100000000000, "", "steps per thread, in 32 chunks"),
    choice("touch", "full", "full|single|none", "bytes written and verified: all, the middle one, none"),
    choice("void", "yes", "yes|no", "run the same steps against a void source too, and subtract its time"),
};

}  // namespace

const Workload kAligned{"aligned", "blocks of drawn alignments, replaced at random", kAlignedParams, run_aligned};
const Workload kLarge{"large", "blocks of 5 to 25 MiB, replaced at random", kLargeParams, run_large};
const Workload kLifetimes{"lifetimes",
                          "random lifetimes by a folded 80/20 choice of slots, two size laws, void cost subtracted",
                          kLifetimesParams, run_lifetimes};

}  // namespace workload
