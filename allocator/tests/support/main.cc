// The main function of every GoogleTest program here: checks which allocator it runs on, and reports 77 when every case
// was skipped, so that CTest shows "skipped" and never "passed" for a program that checked nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "support/subject.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  freestone_test::require_expected_subject();
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (status == 0 && all.test_to_run_count() == all.skipped_test_count()) return 77;
  return status;
}
