// What main.cc settles, whatever place.py made of it: CTest runs this in the worst place.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>

TEST(Place, IsThatOfALogin) {
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGUSR1, SIGUSR2}) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    EXPECT_EQ(action.sa_handler, SIG_DFL) << number;
    EXPECT_EQ(sigismember(&blocked, number), 0) << number;
  }
  EXPECT_EQ(umask(022), 022u);
  for (int file = 0; file < 3; ++file) EXPECT_GE(fcntl(file, F_GETFD), 0) << file;
  for (const auto& [what, soft] : {std::pair{RLIMIT_NOFILE, 1024}, {RLIMIT_STACK, 8 << 20}, {RLIMIT_CORE, 0}}) {
    rlimit now{};
    getrlimit(what, &now);
    EXPECT_EQ(now.rlim_cur, std::min<rlim_t>(static_cast<rlim_t>(soft), now.rlim_max)) << what;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  size_t stack = 0;
  pthread_attr_getstacksize(&attributes, &stack);
  EXPECT_GE(stack, 8u << 20);
}
