// The main function of every GoogleTest program here: checks which allocator it runs on, and reports 77 when every case
// was skipped, so that CTest shows "skipped" and never "passed" for a program that checked nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "support/subject.h"

namespace {

// What place.py says of Python: what was inherited decides no case. CTest sets the variables (patience.cmake).
void settle([[maybe_unused]] char** argv) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action{};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) signal(number, SIG_DFL);
  }
  umask(022);
  for (int file = 0; file < 3; ++file)
    if (fcntl(file, F_GETFD) < 0) open("/dev/null", O_RDWR);
  const auto limit = [](auto what, rlim_t soft) {
    rlimit now{}, then{};
    getrlimit(what, &now);
    then = {std::min(soft, now.rlim_max), now.rlim_max};
    return then.rlim_cur != now.rlim_cur && setrlimit(what, &then) == 0;
  };
  for (const auto what : {RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_NPROC})
    limit(what, RLIM_INFINITY);
  limit(RLIMIT_NOFILE, 1024);
  limit(RLIMIT_CORE, 0);
#ifndef FREESTONE_TEST_EMULATED  // the emulator accepts this limit and does not set it
  if (limit(RLIMIT_STACK, 8 << 20)) execv("/proc/self/exe", argv);  // a thread's stack is as large from the start
#endif
}

}  // namespace

int main(int argc, char** argv) {
  settle(argv);
  testing::InitGoogleTest(&argc, argv);
  freestone_test::require_expected_subject();
  const int status = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (status == 0 && all.test_to_run_count() == all.skipped_test_count()) return 77;
  return status;
}
