// Room 6, without a heap. The search always names the lowest run that fits, at a cost bounded by the tree's height.
// Giving memory back costs a share of the time at work.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "config/heuristics.h"
#include "region/purge_budget.h"
#include "span/free_tree.h"
#include "support/random.h"

namespace freestone {
namespace {

using freestone_test::Random;
using freestone_test::scaled;
using freestone_test::test_seed;

// A heap without memory: words and nodes in vectors. It counts what is looked at.
struct Heap {
  explicit Heap(usize units_) : units(units_), words(units_ / kWordUnits) {
    for (usize count = words.size(); nodes.size() < 2 || nodes.back().size() > 1; count = (count + kFan - 1) / kFan)
      nodes.emplace_back(count);
  }
  usize units;
  std::vector<u64> words;
  std::vector<std::vector<FreeSummary>> nodes;
  usize looks = 0;
};

struct Storage {
  Heap* heap;
  u64& free_word(usize word) const {
    ++heap->looks;
    return heap->words.at(word);
  }
  FreeSummary& node(unsigned level, usize index) const {
    ++heap->looks;
    return heap->nodes.at(level).at(index);
  }
  usize step(unsigned) const {
    heap->looks += kFan;  // asked before a node's children are looked at
    return sizeof(FreeSummary);
  }
};

struct Subject {
  // Units below `start` are not the heap's.
  explicit Subject(usize units, usize start_ = 0)
      : heap(std::make_unique<Heap>(units)), tree(Storage{heap.get()}), start(start_) {}

  void grow_to(usize end) { tree.cover(start, end); }
  void set(usize first, usize units, bool is_free) {
    for (usize unit = first; unit < first + units; ++unit) {
      u64& word = heap->words[unit / kWordUnits];
      word = is_free ? word | bit(unit % kWordUnits) : word & ~bit(unit % kWordUnits);
    }
    tree.note_changed(first / kWordUnits, (first + units - 1) / kWordUnits);
  }
  bool is_free(usize unit) const { return (heap->words[unit / kWordUnits] & bit(unit % kWordUnits)) != 0; }
  // By looking at every unit.
  usize lowest(usize units, usize alignment) const {
    usize run = 0;
    for (usize unit = 0; unit < heap->units; ++unit) {
      run = is_free(unit) ? run + 1 : 0;
      if (run >= units && (unit + 1 - units) % alignment == 0) return unit + 1 - units;
    }
    return FreeTree<Storage>::kNone;
  }

  std::unique_ptr<Heap> heap;
  FreeTree<Storage> tree;
  usize start;
};

TEST(span_rules, FindsTheLowestRunOfEveryLengthAfterRandomChanges) {
  Random random(test_seed("free_tree"));
  for (u64 round = 0; round < scaled(40); ++round) {
    const usize words = random.between(1, 200);
    const usize start = random.below(words) / 2 * kWordUnits;
    Subject subject(words * kWordUnits, start);
    usize end = start + kWordUnits;
    subject.grow_to(end);
    for (int step = 0; step < 60; ++step) {
      if (end < words * kWordUnits && random.below(4) == 0)
        subject.grow_to(end = min_of(words * kWordUnits, end + random.between(1, 30) * kWordUnits));
      const usize most = end - start;
      const usize units =
          min_of<usize>(most, random.below(3) == 0 ? random.between(1, 3 * kWordUnits + 5) : random.between(1, 9));
      subject.set(start + random.below(most - units + 1), units, random.below(3) != 0);
      ASSERT_TRUE(subject.tree.is_valid());
      for (const usize wanted :
           {usize{1}, usize{2}, usize{5}, usize{63}, usize{64}, usize{65}, usize{128}, usize{random.between(1, most)}})
        ASSERT_EQ(subject.tree.find(wanted), subject.lowest(wanted, 1)) << wanted << " units";
      for (unsigned log2 = 0; log2 <= kWordShift; ++log2) {
        const usize length = usize{1} << log2;
        ASSERT_EQ(subject.tree.find_aligned(log2), subject.lowest(length, length))
            << length << " units at a multiple of themselves";
      }
    }
  }
}

TEST(span_rules, AnEmptyTreeAndAFullHeapHaveNoRoom) {
  Subject subject(8 * kWordUnits);
  EXPECT_EQ(subject.tree.find(1), FreeTree<Storage>::kNone);
  EXPECT_EQ(subject.tree.find_aligned(0), FreeTree<Storage>::kNone);
  subject.grow_to(8 * kWordUnits);
  EXPECT_EQ(subject.tree.find(1), FreeTree<Storage>::kNone);
  EXPECT_EQ(subject.tree.find_aligned(0), FreeTree<Storage>::kNone);
}

// The heap is full of holes that are too short or lie wrongly; the one that fits is at its end, across a border of the
// largest nodes.
TEST(span_rules, SearchAndChangeCostTheHeightOfTheTreeUpTo64GiB) {
  for (usize bytes = 64 * kMiB; bytes <= 64 * kGiB; bytes *= 4) {
    const usize units = bytes >> kUnitShift;
    Subject subject(units);
    for (u64& word : subject.heap->words) word = 0x0000'0000'0000'3336;  // runs of two at odd and even places
    subject.grow_to(units);
    subject.tree.note_changed(0, units / kWordUnits - 1);
    usize height = 1;
    for (usize words = units / kWordUnits; words > 1; words /= kFan) ++height;
    const usize hole = units - units / kFan - 100;
    const usize most_looks = 4 + 2 * (kFan + 2) * height;
    for (const usize wanted : {usize{3}, usize{5}, usize{64}, usize{150}}) {
      subject.heap->looks = 0;
      subject.set(hole, 150, true);
      EXPECT_LE(subject.heap->looks, (kFan + 2) * (3 + height * 3)) << bytes;
      subject.heap->looks = 0;
      ASSERT_EQ(subject.tree.find(wanted), wanted > 2 ? hole : 1u) << bytes;
      EXPECT_LE(subject.heap->looks, most_looks) << bytes << " bytes, " << wanted << " units";
      subject.heap->looks = 0;
      ASSERT_EQ(subject.tree.find_aligned(5), round_up(hole, 32)) << bytes;
      EXPECT_LE(subject.heap->looks, most_looks) << bytes;
      subject.set(hole, 150, false);
    }
  }
}

constexpr u64 kTickMs = 10;
constexpr u64 kIdleMs = 250;

// A program on a clock of its own, which looks at it each kTickMs.
struct Program {
  PurgeBudget budget;

  void work(u64 ms, u64 percent = 1) {
    for (u64 done = 0; done < ms; done += kTickMs) budget.pass(kTickMs, kIdleMs, percent);
  }
  // Gives back and takes again until the budget is overdrawn; returns how many pieces of 1 MiB that were.
  usize swing() {
    usize pieces = 0;
    for (; budget.allows(1); ++pieces) {
      budget.went_back(kMiB);
      budget.came_again(kMiB);
    }
    return pieces;
  }
};

constexpr i64 kPieceNs = kPurgeCallNs + 256 * kMistakeNs;

TEST(span_rules, GivingBackCostsOnePercentOfTheWork) {
  Program program;
  EXPECT_EQ(program.swing(), 0u) << "nothing was earned";
  usize pieces = 0;
  for (int k = 0; k < 100; ++k) {
    program.work(1000);
    pieces += program.swing();
  }
  EXPECT_NEAR(static_cast<double>(pieces) * kPieceNs, 1e9, 1e6) << "of 100 s";
}

TEST(span_rules, WhatStaysAwayCostsItsCallsOnly) {
  Program program;
  program.work(1000);
  for (int k = 0; k < 1000; ++k) program.budget.went_back(kMiB);
  EXPECT_TRUE(program.budget.allows(1));
  program.budget.came_again(100 * kMiB);
  EXPECT_FALSE(program.budget.allows(1));
}

// What was trimmed, or never had memory, is nobody's mistake.
TEST(span_rules, NoMoreComesAgainThanWentBack) {
  Program program;
  program.work(1000);
  program.budget.went_back(4 * kMiB);
  program.budget.came_again(4 * kGiB);
  EXPECT_TRUE(program.budget.allows(1));
}

TEST(span_rules, NeitherSavingsNorDebtsGrowForEver) {
  Program program;
  program.work(1'000'000);
  EXPECT_NEAR(static_cast<double>(program.swing()) * kPieceNs, kBudgetMostNs, kPieceNs);
  program.budget.went_back(4 * kGiB);
  program.budget.came_again(4 * kGiB);
  program.work(kBudgetMostNs / 10'000 + 100);
  EXPECT_TRUE(program.budget.allows(1)) << "the debt is paid";
}

// A process that gets 10 of each 100 ms sees gaps that are no work. One that rests may give back all.
TEST(span_rules, AGapIsNoWorkAndALongOneIsRest) {
  Program program;
  EXPECT_EQ(program.budget.pass(90, kIdleMs, 1), kGapMs);
  program.swing();
  program.budget.went_back(kGiB);
  program.budget.came_again(kGiB);
  EXPECT_FALSE(program.budget.allows(1));
  EXPECT_EQ(program.budget.pass(kIdleMs, kIdleMs, 1), kIdleMs);
  program.budget.came_again(kGiB);
  EXPECT_TRUE(program.budget.allows(1)) << "what went back before the rest was right";
}

TEST(span_rules, AGreatFallMustBePaidBeforeTheNext) {
  Program program;
  EXPECT_TRUE(program.budget.may_fall(1));
  EXPECT_FALSE(program.budget.may_fall(0)) << "nothing may go";
  program.budget.fell(kGiB);
  EXPECT_FALSE(program.budget.allows(1)) << "the fall is no reason to give back the rest";
  u64 worked_ms = 0;
  for (; !program.budget.may_fall(1); worked_ms += 100) program.work(100);
  EXPECT_NEAR(static_cast<double>(worked_ms) * 1e4, double{kGiB / (4 * kKiB)} * kMistakeNs, 1e6);
  program.budget.fell(kGiB);
  program.budget.pass(kIdleMs, kIdleMs, 1);
  EXPECT_TRUE(program.budget.may_fall(1)) << "it rested";
}

TEST(span_rules, ThePercentageIsTheOneConstant) {
  for (const u64 percent : {2, 10, 50}) {
    Program program;
    program.work(100, percent);
    EXPECT_NEAR(static_cast<double>(program.swing()) * kPieceNs,
                min_of<double>(kBudgetMostNs, static_cast<double>(100 * percent) * 1e4), kPieceNs);
  }
  Program program;
  program.work(1'000'000, 0);
  EXPECT_FALSE(program.budget.allows(0));
  program.budget.went_back(4 * kGiB);
  program.budget.came_again(4 * kGiB);
  EXPECT_TRUE(program.budget.allows(kPercentAll));
}

}  // namespace
}  // namespace freestone
