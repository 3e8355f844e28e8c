// The cases of what only the hardened build promises: skipped over any other library.
#pragma once

#include <gtest/gtest.h>

#include "support/subject.h"

namespace freestone_test {

class HardenedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!subject().is_hardened) GTEST_SKIP() << "a promise of libfreestone-hardened";
  }
};

}  // namespace freestone_test
