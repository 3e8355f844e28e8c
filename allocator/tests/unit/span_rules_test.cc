// Room 6, without a heap. The search always names the lowest run that fits, at a cost bounded by the tree's height. Use
// that falls for the first time leaves a share; use that came back once is kept as a whole, while the pattern lasts.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "span/free_tree.h"
#include "span/retention.h"
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

constexpr usize kShare = 50;
constexpr u64 kMuchLater = 40 * kTicksPerHalfLife;

// A program whose use moves in steps, on a clock of its own.
struct Program {
  Retention law;
  usize use = 0;
  u64 now = 1'000'000;

  // Calls go on meanwhile, at the same use.
  void go_on(u64 ticks) {
    for (; ticks > 0; --ticks) law.note(use, ++now);
  }
  void idle(u64 ticks) {
    now += ticks;
    law.note(use, now);
  }
  // In 20 steps, with so many ticks in all.
  void go_to(usize target, u64 ticks) {
    const usize from = use;
    for (u64 step = 1; step <= 20; ++step) {
      use = target > from ? from + (target - from) * step / 20 : from - (from - target) * step / 20;
      now += ticks * step / 20 - ticks * (step - 1) / 20;
      law.note(use, now);
    }
  }
  void swing(usize high, usize low, u64 ticks, int times = 1) {
    for (int k = 0; k < times; ++k) {
      go_to(high, ticks);
      go_to(low, ticks);
    }
  }
  usize kept() const { return law.kept(use, kShare); }
};

TEST(span_rules, OfTheFirstFallAShareIsKept) {
  for (const u64 ticks : {0, 1, 4}) {
    Program program;
    program.go_to(1000, ticks);
    program.go_to(980, ticks);
    EXPECT_EQ(program.kept(), 20u) << "no more than it fell by";
    program.go_to(100, ticks);
    EXPECT_EQ(program.kept(), kShare);
  }
}

TEST(span_rules, WhatCameBackIsKeptTheNextTime) {
  for (const u64 ticks : {0, 1, 2, 4, 6}) {
    Program program;
    program.swing(1000, 100, ticks, 2);
    EXPECT_GE(program.kept(), 750u) << ticks;
    EXPECT_LE(program.kept(), 900u) << ticks;
    if (ticks <= 1) {
      EXPECT_EQ(program.kept(), 900u) << ticks;
    }
  }
}

// A swing of half of the use keeps half, one of a tenth a tenth.
TEST(span_rules, OnlyTheSwingIsKeptOfALargerUse) {
  for (const usize low : {500, 800, 900}) {
    Program program;
    program.swing(1000, low, 1, 6);
    EXPECT_EQ(program.kept(), 1000 - low);
  }
}

TEST(span_rules, ASwingThatGoesOnStaysKept) {
  Program program;
  for (int k = 0; k < 500; ++k) {
    program.swing(1000, 100, 1);
    ASSERT_TRUE(k == 0 || program.kept() == 900u) << "cycle " << k;
  }
}

TEST(span_rules, AProgramThatIdlesBetweenFallAndRiseDoesNotSwing) {
  for (const u64 ticks : {2, 3, 10, 100, 1000}) {
    Program program;
    for (int k = 0; k < 4; ++k) {
      program.swing(1000, 100, 1);
      EXPECT_EQ(program.kept(), kShare) << "cycle " << k;
      program.idle(ticks);
    }
  }
}

TEST(span_rules, AFallFurtherThanTheSwingsIsAnEnd) {
  Program program;
  program.swing(1000, 900, 1, 6);
  EXPECT_EQ(program.kept(), 100u);
  program.go_to(10, 1);
  EXPECT_EQ(program.kept(), kShare);
}

// One half-life for all of it: what is kept for a swing, and the share. A tick more or less is a window's border.
TEST(span_rules, WhatIsNotSeenAgainHalvesInAHalfLife) {
  Program program;
  program.swing(1'000'000, 100, 1, 3);
  program.go_on(kTicksPerHalfLife / 2);  // the window in which it was seen, and the one before
  usize last = program.kept();
  for (int k = 0; k < 10; ++k) {
    program.go_on(kTicksPerHalfLife);
    EXPECT_NEAR(static_cast<double>(program.kept()), static_cast<double>(last) / 2, static_cast<double>(last) / 8);
    last = program.kept();
  }
  program.go_on(kMuchLater);
  EXPECT_EQ(program.kept(), 0u) << "the share too";
}

TEST(span_rules, APauseFadesAsMuchAsGoingOn) {
  for (const u64 ticks : {kTicksPerHalfLife, 2 * kTicksPerHalfLife, 5 * kTicksPerHalfLife, kMuchLater}) {
    usize kept[2];
    for (const bool pauses : {false, true}) {
      Program program;
      program.swing(1'000'000, 100, 1, 3);
      pauses ? program.idle(ticks) : program.go_on(ticks);
      kept[pauses] = program.law.kept(program.use, 1'000'000);
    }
    EXPECT_NEAR(static_cast<double>(kept[1]), static_cast<double>(kept[0]), static_cast<double>(kept[0]) / 2 + 1);
  }
}

// KEEP-1, with all times and uses at random.
TEST(span_rules, UseAndWhatIsKeptNeverExceedThePeak) {
  Random random(test_seed("retention"));
  Program program;
  usize peak = 0;
  for (u64 step = 0; step < scaled(100'000); ++step) {
    program.now += random.below(4) == 0 ? random.below(60) : random.below(16) == 0 ? 1 : 0;
    program.use = random.below(8) == 0
                      ? random.below(10'000)
                      : std::min<usize>(10'000, program.use + random.below(200) - std::min<usize>(program.use, 100));
    program.law.note(program.use, program.now);
    peak = std::max(peak, program.use);
    ASSERT_LE(program.use + program.law.kept(program.use, random.below(20'000)), peak);
  }
}

}  // namespace
}  // namespace freestone
