// Room 6: what falls out of use once is surplus; what comes back soon is kept the next time, as long as it does.
#include "span/recent_need.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/random.h"

namespace freestone {
namespace {

using freestone_test::Random;
using freestone_test::scaled;
using freestone_test::test_seed;

// A program whose use moves in steps, on a clock of its own.
struct Program {
  RecentNeed need;
  usize use = 0;
  u64 now = 1'000'000;

  void wait(u64 ms) { now += ms; }
  void go_to(usize target, u64 ms) {
    const usize from = use;
    for (u64 step = 1; step <= 20; ++step) {
      use = target > from ? from + (target - from) * step / 20 : from - (from - target) * step / 20;
      wait(step % 2 == 0 ? ms / 10 : 0);
      need.note(use, now);
    }
  }
  usize kept() const { return need.kept(use); }
};

TEST(span_recent_need, TheFirstShrinkIsSurplus) {
  Program program;
  program.go_to(1000, 50);
  program.go_to(100, 50);
  EXPECT_EQ(program.kept(), 0u);
}

TEST(span_recent_need, WhatCameBackSoonIsKeptTheNextTime) {
  for (const u64 cycle_ms : {0, 10, 100, 500}) {
    Program program;
    program.go_to(1000, cycle_ms);
    program.go_to(100, cycle_ms);
    program.go_to(1000, cycle_ms);
    program.go_to(100, cycle_ms);
    EXPECT_EQ(program.kept(), 900u) << cycle_ms;
  }
}

TEST(span_recent_need, OnlyTheSwingIsKeptOfALargerUse) {
  Program program;
  program.go_to(1000, 20);
  for (int k = 0; k < 5; ++k) {
    program.go_to(800, 20);
    program.go_to(1000, 20);
  }
  program.go_to(800, 20);
  EXPECT_EQ(program.kept(), 200u);
}

TEST(span_recent_need, ASwingThatGoesOnStaysKept) {
  Program program;
  for (int k = 0; k < 500; ++k) {
    program.go_to(1000, 40);
    program.go_to(100, 40);
    if (k > 0) {
      ASSERT_EQ(program.kept(), 900u) << "cycle " << k;
    }
  }
}

TEST(span_recent_need, AProgramThatIdlesBetweenFallAndRiseDoesNotSwing) {
  Program program;
  for (int k = 0; k < 4; ++k) {
    program.go_to(1000, 20);
    program.go_to(100, 20);
    EXPECT_EQ(program.kept(), 0u) << "cycle " << k;
    program.wait(RecentNeed::kIdleMs + 1);
  }
}

TEST(span_recent_need, AFallFurtherThanTheSwingsIsAnEnd) {
  Program program;
  program.go_to(1000, 20);
  for (int k = 0; k < 5; ++k) {
    program.go_to(900, 20);
    program.go_to(1000, 20);
  }
  program.go_to(900, 20);
  EXPECT_EQ(program.kept(), 100u);
  program.go_to(10, 20);
  EXPECT_EQ(program.kept(), 0u);
}

TEST(span_recent_need, WhatIsNotSeenAgainFades) {
  Program program;
  for (int k = 0; k < 3; ++k) {
    program.go_to(1000, 20);
    program.go_to(100, 20);
  }
  usize last = program.kept();
  EXPECT_EQ(last, 900u);
  for (u64 ms = 0; ms < 30 * RecentNeed::kFadeMs; ms += 50) {  // the program goes on, at the same use
    program.wait(50);
    program.need.note(program.use, program.now);
    EXPECT_LE(program.kept(), last);
    last = program.kept();
  }
  EXPECT_EQ(last, 0u);
}

TEST(span_recent_need, APauseFadesAsMuchAsGoingOn) {
  Program program;
  for (int k = 0; k < 3; ++k) {
    program.go_to(1000, 20);
    program.go_to(100, 20);
  }
  program.wait(60 * RecentNeed::kFadeMs);
  program.need.note(program.use, program.now);
  EXPECT_EQ(program.kept(), 0u);
}

// NEED-1, with all times and uses at random.
TEST(span_recent_need, UseAndWhatIsKeptNeverExceedThePeak) {
  Random random(test_seed("recent_need"));
  Program program;
  usize peak = 0;
  for (u64 step = 0; step < scaled(100'000); ++step) {
    program.wait(random.below(4) == 0 ? random.below(300) : random.below(3));
    program.use = random.below(8) == 0
                      ? random.below(10'000)
                      : std::min<usize>(10'000, program.use + random.below(200) - std::min<usize>(program.use, 100));
    program.need.note(program.use, program.now);
    peak = std::max(peak, program.use);
    ASSERT_LE(program.use + program.kept(), peak);
  }
}

}  // namespace
}  // namespace freestone
