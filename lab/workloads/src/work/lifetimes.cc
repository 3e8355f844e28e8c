// `lifetimes`: blocks live and die by a skewed choice of slots. A step picks a slot; an empty one gets a block that is
// written, a full one is read and freed. The same steps run against a void source as well (one warm buffer per thread),
// whose time is what the workload itself costs; it flatters nobody, but it is cache-warm, so it takes off less than the
// touching of real blocks costs.
#include <algorithm>

#include "laws.h"
#include "process.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

constexpr unsigned kChunks = 32;
constexpr Touch kModes[] = {Touch::full, Touch::single, Touch::none};  // in the order of the parameter's choices

struct Step {
  std::uint32_t slot;
  std::uint32_t bytes;
};

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

struct Load {
  std::uint64_t live = 0;  // requested bytes
};

template <class Source>
void run_steps(const Source& source, const OwnArray<Step>& steps, OwnArray<Block>& slots, std::uint32_t& number,
               Touch touch, Tally& tally, Load& load) {
  for (const Step& step : steps) {
    Block& slot = slots[step.slot];
    if (slot.at == nullptr) {
      source.take(slot, step.bytes, number++, touch, tally);
      load.live += step.bytes;
    } else {
      load.live -= slot.bytes;
      source.give(slot, touch, tally);
    }
  }
}

void run_lifetimes(const Args& args, Report& report) {
  const unsigned threads = args.threads();
  const auto exponent = static_cast<unsigned>(args.number("exponent"));
  const auto slot_count = static_cast<std::uint32_t>(args.number("slots") / threads);
  const std::uint64_t chunk_steps = args.number("steps") / kChunks;
  const bool program_law = args.pick("law") == 0;
  const bool with_void = args.yes("void");
  const auto touch = kModes[args.pick("touch")];
  if (slot_count < FoldedSlots::kLeastSlots)
    usage_error("lifetimes", "--slots=%llu: expected at least %u per thread",
                static_cast<unsigned long long>(args.number("slots")), FoldedSlots::kLeastSlots);
  if (chunk_steps == 0) usage_error("lifetimes", "--steps: expected at least %u", kChunks);
  const ArticleSizes article(exponent);
  const ProgramSizes program(exponent);
  const FoldedSlots folded(slot_count);
  OwnArray<std::uint64_t> live(threads);
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
    lane.alone([&] { base_kib = static_cast<double>(resident_exact_kib()); });
    std::uint32_t number = lane.index() << 26;
    std::uint32_t void_number = number;
    Load load;
    Load void_load;
    OwnArray<char> shared(with_void ? std::size_t{1} << exponent : 1);
    const Void nothing{shared.data()};
    for (auto& slot : slots) {
      if ((random.next() >> 63) == 0) continue;
      const std::uint32_t bytes = draw_size();
      if (with_void) {
        Tally dropped;
        Block& twin = void_slots[static_cast<std::size_t>(&slot - slots.data())];
        nothing.take(twin, bytes, void_number++, touch, dropped);
      }
      take(slot, bytes, number++, touch, lane.tally);
      load.live += bytes;
    }
    const auto sample = [&](unsigned chunk) {
      live[lane.index()] = load.live;
      lane.alone([&] {
        double total = 0;
        for (const std::uint64_t bytes : live) total += static_cast<double>(bytes) / 1024;
        const double kib = std::max(0.0, static_cast<double>(resident_exact_kib()) - base_kib);
        by_chunk.add(chunk, kib / std::max(total, 1.0));
        largest_requested = std::max(largest_requested, total);
        largest_resident = std::max(largest_resident, kib);
      });
    };
    sample(0);
    for (unsigned chunk = 1; chunk <= kChunks; ++chunk) {
      for (Step& step : steps) step = {folded.draw(random), draw_size()};
      lane.start();
      Tally tally;
      run_steps(Real{}, steps, slots, number, touch, tally, load);
      lane.tally.add(tally);
      lane.stop();
      sample(chunk);
      if (!with_void) continue;
      lane.start();
      Tally dropped;
      run_steps(nothing, steps, void_slots, void_number, touch, dropped, void_load);
      asm volatile("" ::"r"(dropped.checksum), "r"(void_load.live));
      lane.stop(&void_timing);
    }
    for (auto& slot : slots) give(slot, touch, lane.tally);
  });
  const double pairs = static_cast<double>(timing.frees);
  const double per_pair = 1e9 * threads / pairs;
  report.add("pair_ns", timing.seconds * per_pair, "ns", Better::lower, timing.frees);
  if (with_void) {
    report.add("void_pair_ns", void_timing.seconds * per_pair, "ns", Better::neither, timing.frees);
    report.add("net_pair_ns", (timing.seconds - void_timing.seconds) * per_pair, "ns", Better::lower, timing.frees);
  }
  report.add("memory_overhead", largest_resident / largest_requested, "ratio", Better::lower, kChunks + 1);
  report.add("requested_peak", largest_requested, "KiB", Better::neither, kChunks + 1);
  report.add("pairs_per_second", pairs / timing.seconds, "1/s", Better::neither, timing.frees);
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

constexpr Param kParams[] = {
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

const Workload kLifetimes{"lifetimes",
                          "random lifetimes by a folded 80/20 choice of slots, two size laws, void cost subtracted",
                          kParams, run_lifetimes};

}  // namespace workload
