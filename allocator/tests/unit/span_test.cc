// Room 6: spans never overlap, say truly whether they are zero, grow only into free units, and all come back.
#include "base/bits.h"
#include "config/options.h"
#include "region/account.h"
#include "span/purge.h"
#include "span/run.h"
#include "span/run_store.h"
#include "span/span_heap.h"
#include "span/span_map.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "unit/support.h"

namespace freestone {
namespace {

struct Held {
  UnitIndex first;
  usize units;
};

// No container that allocates: in most builds malloc takes spans itself.
class Spans {
 public:
  explicit Spans(Random random) : random_(random) {}

  void step() {
    if (count_ == kMost || (count_ > 0 && random_.below(2) == 0)) {
      give_back(random_.below(count_));
    } else if (count_ > 0 && random_.below(4) == 0) {
      grow(held_[random_.below(count_)]);
    } else {
      take();
    }
  }

  void finish() {
    while (count_ > 0) give_back(count_ - 1);
  }

 private:
  static constexpr usize kMost = 48;

  // The first and last word of every unit carry the span's own number: an overlap shows when the span goes back.
  static void mark(const Held& span, usize from) {
    for (usize i = from; i < span.units; ++i) {
      char* unit = unit_address(static_cast<UnitIndex>(span.first + i));
      std::memcpy(unit, &span.first, sizeof span.first);
      std::memcpy(unit + kUnitBytes - sizeof span.first, &span.first, sizeof span.first);
    }
  }

  static void expect_zero(const Held& span, usize from) {
    const char* start = unit_address(static_cast<UnitIndex>(span.first + from));
    const usize bytes = units_to_bytes(span.units - from);
    EXPECT_EQ(*start, 0);
    EXPECT_EQ(std::memcmp(start, start + 1, bytes - 1), 0) << "said to be zero";
  }

  void take() {
    const usize alignment = usize{1} << random_.below(5);
    const usize units = random_.below(8) == 0 ? random_.between(1, 200) : random_.between(1, 12);
    const Span span = take_span(units, alignment);
    ASSERT_NE(span.first, kNoUnit);
    ASSERT_EQ(span.first % alignment, 0u);
    const Held held{span.first, units};
    if (span.zeroed) expect_zero(held, 0);
    mark(held, 0);
    held_[count_++] = held;
  }

  void grow(Held& span) {
    const usize more = random_.between(1, 8);
    const Span taken = extend_span(span.first, span.units, more);
    if (taken.first == kNoUnit) return;
    const usize old = span.units;
    span.units += more;
    if (taken.zeroed) expect_zero(span, old);
    mark(span, old);
  }

  void give_back(usize index) {
    const Held span = held_[index];
    held_[index] = held_[--count_];
    for (usize i = 0; i < span.units; ++i) {
      UnitIndex words[2];
      const char* unit = unit_address(static_cast<UnitIndex>(span.first + i));
      std::memcpy(&words[0], unit, sizeof words[0]);
      std::memcpy(&words[1], unit + kUnitBytes - sizeof words[1], sizeof words[1]);
      ASSERT_TRUE(words[0] == span.first && words[1] == span.first) << "two spans overlap";
    }
    return_span(span.first, span.units, true);
  }

  Random random_;
  Held held_[kMost];
  usize count_ = 0;
};

usize units_in_use() {
  const SpanCounts counts = span_counts();
  return counts.committed_units - counts.free_units;
}

u64 bytes_given_back() {
  u64 sum = 0;
  for (const auto& bytes : traffic.back_bytes) sum += bytes.load_relaxed();
  return sum;
}

TEST(span, RandomTakesGrowthsAndReturnsKeepTheBitmapsTrue) {
  Spans spans(Random(test_seed("span")));
  const usize before = units_in_use();
  for (u64 step = 0; step < scaled(10'000); ++step) {
    spans.step();
    if (step % 100 == 0) {
      ASSERT_TRUE(spans_are_valid());
    }
    if (step % 700 == 0) purge_spans(kMiB, WentBack::trim);
  }
  spans.finish();
  EXPECT_EQ(units_in_use(), before);
  EXPECT_TRUE(spans_are_valid());
}

TEST(span, PurgedMemoryIsZeroAndCountedOnce) {
  const Span span = take_span(64, 1);
  ASSERT_NE(span.first, kNoUnit);
  std::memset(unit_address(span.first), 0xA5, units_to_bytes(64));
  const u64 purged_before = bytes_given_back();
  return_span(span.first, 64, true);
  purge_spans(0, WentBack::trim);
  EXPECT_GE(bytes_given_back() - purged_before, units_to_bytes(64));
  EXPECT_EQ(span_counts().dirty_units, 0u);
  const Span again = take_span(64, 1);
  EXPECT_TRUE(again.zeroed);
  EXPECT_EQ(*unit_address(again.first), 0);
  return_span(again.first, 64, false);
  expect_valid_heap();
}

// What is checked of a span that was in use in part (HARD-2). Beyond the 63rd unit one answer stands for all.
TEST(span, ASpanKnowsWhichOfItsUnitsWereInUse) {
  for (const usize units : {usize{8}, usize{62}, usize{64}, usize{130}}) {
    for (const usize used : {usize{0}, usize{1}, units / 2, units - 1}) {
      purge_spans(0, WentBack::trim);
      const Span span = take_span(units, 1);
      ASSERT_NE(span.first, kNoUnit);
      const auto used_unit = static_cast<UnitIndex>(span.first + used);
      return_span(used_unit, 1, true);
      {
        LockGuard guard(span_lock);
        const i64 bits = span_map.dirty_bits(span.first, units);
        for (usize k = 0; k < units; ++k) {
          const Span found{.first = span.first, .zeroed = false, .is_empty = false, .dirty = bits};
          ASSERT_EQ((bits >> min_of<usize>(k, 63) & 1) != 0, min_of<usize>(k, 63) == min_of<usize>(used, 63))
              << "unit " << k << " of " << units << ", " << used << " was in use";
          ASSERT_EQ(found.is_zero(k), (bits >> min_of<usize>(k, 63) & 1) == 0);
        }
      }
      if (used > 0) return_span(span.first, used, true);
      if (used + 1 < units) return_span(used_unit + 1, units - used - 1, true);
    }
  }
  expect_valid_heap();
}

// What is not worth keeping goes back; a program that needs it again each time does not pay for that for long.
TEST(span, MemoryThatIsTakenAgainSoonIsWorthKeeping) {
  const auto decay_ms = std::exchange(options.dirty_decay_ms, 3600000u);
  purge_spans(0, WentBack::trim);
  const usize units = bytes_to_units(20 * kMiB);
  const auto cycle = [&] {
    const u64 before = bytes_given_back();
    const Span span = take_span(units, 1);
    EXPECT_NE(span.first, kNoUnit);
    std::memset(unit_address(span.first), 1, units_to_bytes(units));
    return_span(span.first, units, true);
    return bytes_given_back() - before;
  };
  rest();
  EXPECT_GT(cycle(), 0u);
  const auto percent = std::exchange(options.give_back_percent, 0u);
  EXPECT_EQ(cycle(), 0u) << "nothing goes that nobody asked for";
  options.give_back_percent = percent;
  for (int k = 0; k < 20; ++k) cycle();
  for (int k = 0; k < 3; ++k) EXPECT_EQ(cycle(), 0u);
  EXPECT_LE(units_to_bytes(span_counts().dirty_units), 32 * kMiB);
  options.give_back_percent = kPercentAll;
  EXPECT_GT(cycle(), 0u) << "all goes, whatever it costs";
  options.give_back_percent = percent;
  const auto dirty_bytes = std::exchange(options.dirty_bytes, 0u);
  EXPECT_GT(cycle(), 0u) << "nothing is kept where nothing may be";
  options.dirty_bytes = dirty_bytes;
  options.dirty_decay_ms = decay_ms;
  purge_spans(0, WentBack::trim);
  EXPECT_TRUE(spans_are_valid());
}

// A program that ends a burst may make no call any more. The next such fall must be paid for first.
TEST(span, AGreatFallGoesThoughTheBudgetIsOverdrawn) {
  const auto decay_ms = std::exchange(options.dirty_decay_ms, 3600000u);
  purge_spans(0, WentBack::trim);
  rest();
  purge_budget.went_back(kGiB);
  purge_budget.came_again(kGiB);
  const usize units = bytes_to_units(64 * kMiB);
  for (const bool is_first : {true, false}) {
    const UnitIndex first = take_span(units, 1).first;
    ASSERT_NE(first, kNoUnit);
    const usize most = units_to_bytes(span_counts().dirty_units) + 64 * kMiB;
    const u64 before = bytes_given_back();
    for (usize from = 0; from < units; from += 64) return_span(first + static_cast<UnitIndex>(from), 64, true);
    const u64 gone = bytes_given_back() - before;
    EXPECT_EQ(gone > most / 2, is_first) << gone;
  }
  options.dirty_decay_ms = decay_ms;
  purge_spans(0, WentBack::trim);
}

// Free memory goes when nobody took it for the decay time, though it is less than may stay at once.
TEST(span, WhatNobodyTakesGoesWithTime) {
  const auto decay_ms = std::exchange(options.dirty_decay_ms, 40u);
  purge_spans(0, WentBack::trim);
  rest();
  const Span span = take_span(32, 1);
  return_span(span.first, 32, true);
  EXPECT_GE(span_counts().dirty_units, 32u);
  for (int k = 0; k < 200 && span_counts().dirty_units > 0; ++k) {
    usleep(10'000);
    decay_spans();
  }
  EXPECT_EQ(span_counts().dirty_units, 0u);
  options.dirty_decay_ms = decay_ms;
}

// A page that units in use reach into cannot go, and what the kernel refused waits until it is tried again.
TEST(span, OnlyWholeFreePagesAreTakenToBePurgedAndRefusedOnesWait) {
  constexpr unsigned kPage = 4;
  purge_spans(0, WentBack::trim);
  const Span span = take_span(kGroupUnits, kGroupUnits);
  ASSERT_NE(span.first, kNoUnit);
  constexpr u64 kUsed = bit(1) | bit(30);  // pages 0 and 7 of 16
  LockGuard guard(span_lock);
  ASSERT_EQ(span_map.dirty_units(), 0u) << "others are at work";
  for (unsigned k = 0; k < kGroupUnits; ++k)
    if ((kUsed >> k & 1) == 0) span_map.set_free(span.first + k, 1, true);
  u64 taken = 0;
  SpanMap::DirtyStretch stretch;
  while ((stretch = span_map.take_oldest_dirty(10, kPage)).first != kNoUnit) {
    EXPECT_EQ(stretch.first % kPage, 0u);
    EXPECT_EQ(stretch.units % kPage, 0u);
    EXPECT_LE(stretch.units, 10u);
    EXPECT_EQ(stretch.dirty, low_mask(static_cast<unsigned>(stretch.units)));
    EXPECT_EQ(taken & stretch.dirty << (stretch.first - span.first), 0u) << "taken twice";
    taken |= stretch.dirty << (stretch.first - span.first);
    span_map.put_back(stretch, true);
  }
  EXPECT_EQ(taken, ~(low_mask(kPage) | low_mask(kPage) << 28));
  EXPECT_EQ(span_map.dirty_units(), kGroupUnits - 2);
  EXPECT_EQ(span_map.refused_units(), kGroupUnits - 2);
  EXPECT_EQ(span_map.purgeable_units(), 0u);
  EXPECT_TRUE(span_map.is_valid());
  span_map.retry_refused();
  EXPECT_EQ(span_map.purgeable_units(), kGroupUnits - 2);
  EXPECT_NE(span_map.take_oldest_dirty(1, 1).first, kNoUnit);
  const UnitIndex top = span.first + kGroupUnits - 1;
  EXPECT_FALSE(span_map.are_free(top, 1));
  for (unsigned k = 0; k < kGroupUnits; ++k)
    if (!span_map.are_free(span.first + k, 1)) span_map.set_free(span.first + k, 1, true);
  EXPECT_TRUE(span_map.is_valid());
}

// Where the kernel keeps a locked page, the run counts as memory still. The sanitizers' own mlock locks nothing.
TEST(span, ARunThatMovesLeavesNoMemoryBehind) {
  if (kMitigations.zero_on_free) GTEST_SKIP() << "freed memory must be zero";
  constexpr usize kBytes = 2 * kMiB + kUnitBytes;
  for (const bool locks : {false, true}) {
    bool zeroed;
    const UnitIndex first = take_run(0, bytes_to_units(kBytes), 1, zeroed);
    auto* const from = unit_address(first);
    for (usize k = 0; k < kBytes; ++k) from[k] = static_cast<char>(k >> 12);
    const bool locked = locks && syscall(SYS_mlock, from, 1) == 0;
    std::vector<char> to(kBytes);
    const usize charged = account.charged.load_relaxed();
    move_run(first, to.data());
    for (usize k = 0; k < kBytes; k += 512) ASSERT_EQ(to[k], static_cast<char>(k >> 12)) << k;
    EXPECT_FALSE(return_run(0, first)) << "taken back already";
    EXPECT_EQ(account.charged.load_relaxed() + kBytes > charged, locked);
    EXPECT_EQ(from[kBytes - 1], 0) << "its memory is still there";
    if (locked) EXPECT_EQ(syscall(SYS_munlock, from, 1), 0);
    expect_valid_heap();
  }
}

// Class runs that no cache has room for wait for the next of their length. They take from what may be dirty, and go
// when nobody wants them, when clean memory would be taken instead, and where nothing may be kept.
TEST(span, ClassRunsAreKeptForTheNextOfTheirLength) {
  if (!kKeepsClassRuns) GTEST_SKIP() << "none are kept";
  constexpr usize kUnits = 4;
  const auto decay_ms = std::exchange(options.dirty_decay_ms, 3600000u);
  const auto kept = [] { return kept_units.load_relaxed(); };
  flush_stored_runs();
  purge_spans(0, WentBack::trim);  // so that there is room for more
  const UnitIndex first = take_span(kUnits, 1).first;
  ASSERT_NE(first, kNoUnit);
  EXPECT_EQ(take_stored_run(0, kUnits), kNoUnit);
  ASSERT_TRUE(store_run(0, first, kUnits));
  EXPECT_EQ(kept(), kUnits);
  EXPECT_EQ(take_stored_run(0, kUnits + 1), kNoUnit) << "another length";
  EXPECT_EQ(take_stored_run(0, kUnits), first);
  EXPECT_EQ(kept(), 0u);

  ASSERT_TRUE(store_run(0, first, kUnits));
  purge_spans(0, WentBack::trim);
  const Span clean = take_span(kUnits, 1);  // by now nothing else is dirty
  EXPECT_EQ(kept(), 0u);
  EXPECT_FALSE(clean.zeroed && first < clean.first) << "the kept memory serves as well";
  return_span(clean.first, kUnits, true);

  const UnitIndex old = take_span(kUnits, 1).first;
  ASSERT_TRUE(store_run(0, old, kUnits));
  age_stored_runs();
  EXPECT_EQ(kept(), kUnits);
  options.dirty_decay_ms = 0;
  age_stored_runs();
  EXPECT_EQ(kept(), 0u);
  EXPECT_FALSE(store_run(0, old, kUnits)) << "nothing is kept where free memory goes at once";
  options.dirty_decay_ms = decay_ms;

  purge_spans(0, WentBack::trim);
  UnitIndex spans[64];
  const usize most = options.dirty_bytes;
  usize bytes = 0;
  for (UnitIndex& span : spans) {
    span = take_span(8, 1).first;
    ASSERT_NE(span, kNoUnit);
  }
  for (unsigned k = 0; k < 64; ++k) {
    if (store_run(k, spans[k], 8)) {
      bytes += units_to_bytes(8);
    } else {
      return_spans(8, 1, &spans[k]);
    }
  }
  EXPECT_EQ(units_to_bytes(kept()), bytes);
  EXPECT_GT(bytes, most / 2);
  EXPECT_LE(bytes, most);
  flush_stored_runs();
  EXPECT_EQ(kept(), 0u);
  expect_valid_heap();
}

TEST(span, SpansTakenTogetherAreDistinctAndComeBack) {
  if (guards_spans()) GTEST_SKIP() << "not where spans have guards";
  const usize before = units_in_use();
  UnitIndex spans[16];
  unsigned count = 0;
  while (count < 16) {
    const unsigned taken = take_spans(3, 16 - count, spans + count);
    ASSERT_GT(taken, 0u);
    ASSERT_LE(taken, 16 - count);
    count += taken;
  }
  EXPECT_EQ(units_in_use(), before + 3 * count);
  return_spans(3, count, spans);
  EXPECT_EQ(units_in_use(), before);
  expect_valid_heap();
}

TEST(span, ARunThatGrowsHasRoomBehindIt) {
  if (guards_spans()) GTEST_SKIP() << "a guard lies behind each run";
  constexpr usize kUnits = 20;
  const UnitIndex first = take_run_to_grow(kUnits);
  ASSERT_NE(first, kNoUnit);
  EXPECT_TRUE(resize_run(first, 2 * kUnits));
  EXPECT_EQ(run_units(first), 2 * kUnits);
  EXPECT_TRUE(return_run(0, first));
  flush_stored_runs();
  expect_valid_heap();
}

TEST(span, ThreadsNeverShareAUnit) {
  const u64 seed = test_seed("span threads");
  run_threads(4, [&](unsigned thread) {
    Spans spans(Random(seed + thread));
    for (u64 step = 0; step < scaled(5000); ++step) spans.step();
    spans.finish();
  });
  expect_valid_heap();
}

}  // namespace
}  // namespace freestone
