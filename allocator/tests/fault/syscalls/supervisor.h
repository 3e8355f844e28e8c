// Failing system calls, injected from outside the process: a seccomp filter hands chosen calls of a child to this
// process, which lets each go on or answers it with an error. It sees calls made by inline assembly as well as those of
// the C library.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/child.h"

namespace freestone_test {

struct SystemCall {
  pid_t process;
  long number;  // SYS_mmap, ...
  uint64_t arguments[6];
  uint64_t instruction;  // where it was made

  // Path of the mapped object that made the call.
  std::string caller() const;
};

// Returns 0 to let the call go on, or the errno it is to fail with.
using Plan = std::function<int(const SystemCall&)>;

struct SupervisedEnd {
  ChildEnd child;
  unsigned calls = 0;     // that the plan was asked about
  unsigned injected = 0;  // that it let fail
};

// Forks; the child runs body() with the calls in `numbers` under the plan, and leaves by _exit(body()). One thread or
// many: the filter holds for all of them. body() starts after the filter is in place.
SupervisedEnd run_supervised(const std::vector<int>& numbers, const Plan& plan, const ChildBody& body);

// False (with the reason) where the kernel or the sandbox refuses such filters: the tests are then skipped.
bool supervision_works(std::string& reason);

class SupervisedTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (!supervision_works(reason)) GTEST_SKIP() << reason;
  }
};

}  // namespace freestone_test
