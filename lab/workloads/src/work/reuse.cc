// What the addresses of freed and of fresh blocks tell an attacker, as figures:
//   small      how many requests of a size it takes until a freed address returns: alone, beside threads that work in
//              other classes, after the class rested, after the thread that freed it ended
//   large      the same alone, for blocks of 200,000 B to 3.5 MB, after 600 pairs; huge: of 48 MB
//   layout     how often the commonest distance to the next block is right; how many freed addresses come to lie in
//              blocks of another size
//   distances  this program is started again and again: how many different distances between addresses occur
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "clock.h"
#include "laws.h"
#include "points.h"
#include "registry.h"
#include "team.h"

namespace workload {
namespace {

using Address = std::uintptr_t;

constexpr Touch kTouch = Touch::ends;
constexpr unsigned kOthers = 8;                    // threads that work in other classes
constexpr std::size_t kFresh = 1000;               // blocks whose distances are guessed
constexpr std::size_t kCrossed = 16u << 20;        // bytes that are freed at once; four times as much is asked for then
constexpr std::size_t kSmall[] = {24, 500, 4000};  // B
constexpr std::size_t kLarge[] = {200'000, 900'000, 3'500'000};
constexpr std::size_t kHuge[] = {48'000'000};
constexpr std::size_t kGuessed[] = {24, 500, 4000, 100'000};
// None is within a factor of 1.6 of a size in kSmall: no allocator puts them in one class.
constexpr std::size_t kOtherSizes[] = {40,   48,   64,   72,   88,   100,    116,    130,    150,   170,  190,
                                       200,  220,  240,  800,  900,  1000,   1100,   1200,   1300,  1500, 1700,
                                       1900, 6500, 7000, 8000, 9000, 12'000, 16'000, 20'000, 25'000};

Address address_of(const Block& block) { return reinterpret_cast<Address>(block.at); }
bool holds(const Block& block, Address stale) { return stale - address_of(block) < block.bytes; }

// A stale address: a block is taken and freed.
Address freed(std::size_t bytes, Tally& tally) {
  Block block;
  take(block, bytes, 0, kTouch, tally);
  const Address at = address_of(block);
  give(block, kTouch, tally);
  return at;
}

// The number of the pair whose block holds `stale`; cap + 1 if none of `cap` pairs does.
std::uint64_t pairs_until(Address stale, std::size_t bytes, std::uint64_t cap, Tally& tally) {
  for (std::uint64_t pair = 1; pair <= cap; ++pair) {
    Block block;
    take(block, bytes, static_cast<std::uint32_t>(pair), kTouch, tally);
    const bool hit = holds(block, stale);
    give(block, kTouch, tally);
    if (hit) return pair;
  }
  return cap + 1;
}

// The same with blocks that are held until one does, at most as many as `held` has places.
std::uint64_t held_until(Address stale, std::size_t bytes, OwnArray<Block>& held, Tally& tally) {
  std::size_t count = 0;
  bool hit = false;
  for (; count < held.size() && !hit; ++count) {
    take(held[count], bytes, static_cast<std::uint32_t>(count), kTouch, tally);
    hit = holds(held[count], stale);
  }
  for (std::size_t i = 0; i < count; ++i) give(held[i], kTouch, tally);
  return hit ? count : count + 1;
}

void add_distances(Report& report, const char* how, std::size_t bytes, OwnArray<std::uint64_t> found) {
  std::sort(found.begin(), found.end());
  char name[48];
  std::snprintf(name, sizeof name, "%s_%zu_least", how, bytes);
  report.add(name, found[0], "requests", Better::higher, found.size());
  std::snprintf(name, sizeof name, "%s_%zu_median", how, bytes);
  report.add(name, found[(found.size() - 1) / 2], "requests", Better::higher, found.size());
}

// Blocks of every other class are taken and freed.
void churn(Tally& tally) {
  Block blocks[64];
  for (const std::size_t bytes : kOtherSizes) {
    for (Block& block : blocks) take(block, bytes, 0, kTouch, tally);
    for (Block& block : blocks) give(block, kTouch, tally);
  }
}

// Measures while threads work in other classes.
template <class F>
void beside_others(Report& report, F measure) {
  std::atomic<unsigned> working{0};
  std::atomic<bool> done{false};  // relaxed, as is `working`: neither publishes anything
  const auto work = [&](unsigned, Tally& tally) {
    churn(tally);
    working.fetch_add(1, std::memory_order_relaxed);
    while (!done.load(std::memory_order_relaxed)) churn(tally);
  };
  NewThreads others(report, kOthers);
  const unsigned started = kOthers - others.start(work);
  while (working.load(std::memory_order_relaxed) < started) sleep_ms(1);
  measure();
  done.store(true, std::memory_order_relaxed);
  Timing timing;
  others.join(timing);
}

std::uint64_t held_after_end(std::size_t bytes, OwnArray<Block>& held, Report& report) {
  Block block;
  take(block, bytes, 0, kTouch, report.tally);
  const Address stale = address_of(block);
  NewThreads one(report, 1);
  const auto end = [&](unsigned, Tally& tally) { give(block, kTouch, tally); };
  Timing timing;
  one.start(end);
  one.join(timing);
  return held_until(stale, bytes, held, report.tally);
}

void run_small(const Args& args, Report& report) {
  const std::uint64_t rounds = args.number("rounds");
  const std::uint64_t cap = args.number("cap");
  Tally& tally = report.tally;
  OwnArray<Block> held(cap);
  const auto all_pairs = [&](const char* how) {
    for (const std::size_t bytes : kSmall)
      add_distances(report, how, bytes,
                    drawn(rounds, [&] { return pairs_until(freed(bytes, tally), bytes, cap, tally); }));
  };
  all_pairs("alone");
  beside_others(report, [&] {
    all_pairs("beside");
    OwnArray<std::uint64_t> rested[std::size(kSmall)];
    for (auto& found : rested) found = OwnArray<std::uint64_t>(rounds);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Address stale[std::size(kSmall)];
      for (std::size_t s = 0; s < std::size(kSmall); ++s) stale[s] = freed(kSmall[s], tally);
      churn(tally);
      sleep_ms(args.number("rest"));
      for (std::size_t s = 0; s < std::size(kSmall); ++s)
        rested[s][round] = held_until(stale[s], kSmall[s], held, tally);
    }
    for (std::size_t s = 0; s < std::size(kSmall); ++s)
      add_distances(report, "rested", kSmall[s], std::move(rested[s]));
  });
  for (const std::size_t bytes : kSmall)
    add_distances(report, "ended", bytes, drawn(rounds, [&] { return held_after_end(bytes, held, report); }));
}

void run_large(const Args& args, Report& report, std::span<const std::size_t> sizes) {
  Tally& tally = report.tally;
  for (const std::size_t bytes : sizes) {
    for (unsigned i = 0; i < 600; ++i) freed(bytes, tally);
    add_distances(report, "alone", bytes, drawn(args.number("rounds"), [&] {
                    return pairs_until(freed(bytes, tally), bytes, args.number("cap"), tally);
                  }));
  }
}

void guess(std::size_t bytes, Report& report) {
  OwnArray<Block> blocks(kFresh);
  for (Block& block : blocks) take(block, bytes, 0, kTouch, report.tally);
  OwnArray<Address> steps(kFresh - 1);
  for (std::size_t i = 0; i + 1 < kFresh; ++i) steps[i] = address_of(blocks[i + 1]) - address_of(blocks[i]);
  for (Block& block : blocks) give(block, kTouch, report.tally);
  std::sort(steps.begin(), steps.end());
  std::size_t most = 1;
  for (std::size_t i = 1, run = 1; i < steps.size(); ++i) {
    run = steps[i] == steps[i - 1] ? run + 1 : 1;
    most = std::max(most, run);
  }
  char name[48];
  std::snprintf(name, sizeof name, "guessed_%zu", bytes);
  report.add(name, 100 * static_cast<double>(most) / (kFresh - 1), "%", Better::lower, kFresh - 1);
}

// Slabs empty as a whole: every block of the first size is freed.
void cross(std::size_t from, std::size_t to, const Args& args, Report& report) {
  const auto by_address = [](const Block& a, const Block& b) { return address_of(a) < address_of(b); };
  OwnArray<Block> old(kCrossed / from);
  for (Block& block : old) take(block, from, 0, kTouch, report.tally);
  Random random(args.number("seed"), 0);
  shuffle(old.data(), old.size(), random);
  OwnArray<Address> stale(old.size());
  for (std::size_t i = 0; i < old.size(); ++i) stale[i] = address_of(old[i]);
  for (Block& block : old) give(block, kTouch, report.tally);
  OwnArray<Block> fresh(4 * kCrossed / to);
  for (Block& block : fresh) take(block, to, 0, kTouch, report.tally);
  std::sort(fresh.begin(), fresh.end(), by_address);
  std::size_t hits = 0;
  for (const Address at : stale) {
    Block key;
    key.at = reinterpret_cast<void*>(at);
    const Block* above = std::upper_bound(fresh.begin(), fresh.end(), key, by_address);
    hits += above != fresh.begin() && holds(above[-1], at) ? 1 : 0;
  }
  for (Block& block : fresh) give(block, kTouch, report.tally);
  char name[48];
  std::snprintf(name, sizeof name, "crossed_%zu_%zu", from, to);
  report.add(name, 100 * static_cast<double>(hits) / static_cast<double>(stale.size()), "%", Better::lower,
             stale.size());
}

void run_layout(const Args& args, Report& report) {
  for (const std::size_t bytes : kGuessed) guess(bytes, report);  // first: its blocks are fresh
  cross(1000, 2000, args, report);
  cross(100'000, 200'000, args, report);
}

constexpr const char* kDistances[] = {"small_from_code", "huge_from_code", "small_from_large"};

void run_distances(const Args& args, Report& report) {
  const std::uint64_t rounds = args.number("rounds");
  OwnArray<double> found[std::size(kDistances)];
  for (auto& each : found) each = OwnArray<double>(rounds);
  const char* words[] = {"addresses", "--idle-ms=0"};
  for (std::uint64_t round = 0; round < rounds; ++round)
    for (const Figure& figure : run_point(words, report))
      for (std::size_t d = 0; d < std::size(kDistances); ++d)
        if (std::strcmp(figure.name, kDistances[d]) == 0) found[d][round] = figure.value;
  for (std::size_t d = 0; d < std::size(kDistances); ++d) {
    std::sort(found[d].begin(), found[d].end());
    report.add(kDistances[d], std::unique(found[d].begin(), found[d].end()) - found[d].begin(), "values",
               Better::higher, rounds);
  }
}

void run_addresses(const Args&, Report& report) {
  constexpr std::size_t kSizes[] = {24, 100'000, 64u << 20};
  Block blocks[std::size(kSizes)];
  for (std::size_t i = 0; i < std::size(kSizes); ++i) take(blocks[i], kSizes[i], 0, kTouch, report.tally);
  const auto code = reinterpret_cast<Address>(::dlsym(RTLD_DEFAULT, "getpid"));
  const Address pairs[][2] = {
      {address_of(blocks[0]), code}, {address_of(blocks[2]), code}, {address_of(blocks[0]), address_of(blocks[1])}};
  for (std::size_t d = 0; d < std::size(kDistances); ++d)
    report.add(kDistances[d], static_cast<std::int64_t>(pairs[d][0] - pairs[d][1]), "B", Better::neither);
  for (Block& block : blocks) give(block, kTouch, report.tally);
}

void run_reuse(const Args& args, Report& report) {
  switch (args.pick("part")) {
    case 0: run_small(args, report); break;
    case 1: run_large(args, report, kLarge); break;
    case 2: run_large(args, report, kHuge); break;
    case 3: run_layout(args, report); break;
    default: run_distances(args, report);
  }
  report.tally.checksum = args.number("rounds");  // how many blocks it takes depends on the allocator
  report.caveat("an address that did not return within %lu requests counts as %lu", args.number("cap"),
                args.number("cap") + 1);
}

constexpr Param kReuseParams[] = {
    choice("part", "small", "small|large|huge|layout|distances", "what is measured"),
    integer("rounds", "20", 1, 1000, "", "repetitions of each distance; of `distances`: starts"),
    integer("cap", "16384", 1, 1u << 20, "", "requests until an address counts as not returning"),
    integer("rest", "300", 0, 60000, "ms", "how long a class rests"),
};

}  // namespace

const Workload kReuse{"reuse", "what addresses tell: when they return, how they can be guessed", kReuseParams,
                      run_reuse};
const Workload kAddresses{"addresses", "one start of reuse's distances", {}, run_addresses, true};

}  // namespace workload
