// Room 6: what falls out of use once leaves a share; what comes back is kept the next time, as long as it does.
#include "span/retention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace freestone {
namespace {

using freestone_test::Random;
using freestone_test::scaled;
using freestone_test::test_seed;

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
  usize kept() const { return law.kept(use, kShare); }
};

TEST(span_retention, OfTheFirstFallAShareIsKept) {
  for (const u64 ticks : {0, 1, 4}) {
    Program program;
    program.go_to(1000, ticks);
    program.go_to(980, ticks);
    EXPECT_EQ(program.kept(), 20u) << "no more than it fell by";
    program.go_to(100, ticks);
    EXPECT_EQ(program.kept(), kShare);
  }
}

TEST(span_retention, WhatCameBackIsKeptTheNextTime) {
  for (const u64 ticks : {0, 1, 2, 4, 6}) {
    Program program;
    for (int k = 0; k < 2; ++k) {
      program.go_to(1000, ticks);
      program.go_to(100, ticks);
    }
    EXPECT_GE(program.kept(), 750u) << ticks;
    EXPECT_LE(program.kept(), 900u) << ticks;
    if (ticks <= 1) {
      EXPECT_EQ(program.kept(), 900u) << ticks;
    }
  }
}

// A swing of half of the use keeps half, one of a tenth a tenth.
TEST(span_retention, OnlyTheSwingIsKeptOfALargerUse) {
  for (const usize low : {500, 800, 900}) {
    Program program;
    program.go_to(1000, 1);
    for (int k = 0; k < 5; ++k) {
      program.go_to(low, 1);
      program.go_to(1000, 1);
    }
    program.go_to(low, 1);
    EXPECT_EQ(program.kept(), 1000 - low);
  }
}

TEST(span_retention, ASwingThatGoesOnStaysKept) {
  Program program;
  for (int k = 0; k < 500; ++k) {
    program.go_to(1000, 1);
    program.go_to(100, 1);
    if (k > 0) {
      ASSERT_EQ(program.kept(), 900u) << "cycle " << k;
    }
  }
}

TEST(span_retention, AProgramThatIdlesBetweenFallAndRiseDoesNotSwing) {
  for (const u64 ticks : {2, 3, 10, 100, 1000}) {
    Program program;
    for (int k = 0; k < 4; ++k) {
      program.go_to(1000, 1);
      program.go_to(100, 1);
      EXPECT_EQ(program.kept(), kShare) << "cycle " << k;
      program.idle(ticks);
    }
  }
}

TEST(span_retention, AFallFurtherThanTheSwingsIsAnEnd) {
  Program program;
  program.go_to(1000, 1);
  for (int k = 0; k < 5; ++k) {
    program.go_to(900, 1);
    program.go_to(1000, 1);
  }
  program.go_to(900, 1);
  EXPECT_EQ(program.kept(), 100u);
  program.go_to(10, 1);
  EXPECT_EQ(program.kept(), kShare);
}

// One half-life for all of it: what is kept for a swing, and the share. A tick more or less is a window's border.
TEST(span_retention, WhatIsNotSeenAgainHalvesInAHalfLife) {
  Program program;
  for (int k = 0; k < 3; ++k) {
    program.go_to(1'000'000, 1);
    program.go_to(100, 1);
  }
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

TEST(span_retention, APauseFadesAsMuchAsGoingOn) {
  for (const u64 ticks : {kTicksPerHalfLife, 2 * kTicksPerHalfLife, 5 * kTicksPerHalfLife, kMuchLater}) {
    usize kept[2];
    for (const bool pauses : {false, true}) {
      Program program;
      for (int k = 0; k < 3; ++k) {
        program.go_to(1'000'000, 1);
        program.go_to(100, 1);
      }
      pauses ? program.idle(ticks) : program.go_on(ticks);
      kept[pauses] = program.law.kept(program.use, 1'000'000);
    }
    EXPECT_NEAR(static_cast<double>(kept[1]), static_cast<double>(kept[0]), static_cast<double>(kept[0]) / 2 + 1);
  }
}

// KEEP-1, with all times and uses at random.
TEST(span_retention, UseAndWhatIsKeptNeverExceedThePeak) {
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
