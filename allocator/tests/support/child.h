// Runs a function in a forked child and tells how it ended: most properties of an allocator that are worth testing end
// a process or change it for good.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>

namespace freestone_test {

struct ChildEnd {
  int exit_status = -1;  // of a child that exited, else -1
  int signal = 0;        // that ended the child, else 0
  bool timed_out = false;
  std::string errors;  // what it wrote to standard error, up to 64 KiB

  bool exited_with(int status) const { return signal == 0 && exit_status == status; }
  std::string describe() const;
};

// A child that runs longer hangs: none needs a hundredth of it.
constexpr unsigned kHangSeconds = 1200;

// What a child does; without a result it is 0.
struct ChildBody : std::function<int()> {
  template <class Body>
  ChildBody(Body body)
      : function([body = std::move(body)] {
          if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return 0;
          } else {
            return body();
          }
        }) {}
};

// The child leaves by _exit(body()); it is killed after kHangSeconds. `meanwhile` runs in the parent before it waits.
ChildEnd run_in_child(const ChildBody& body, const std::function<void()>& meanwhile = nullptr);

// What a child exits with, or 1000 and the signal that ended it.
inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
// The same of a plain fork whose child runs `work`, with nothing allocated or redirected on the way.
template <typename Work>
int fork_and(Work work) {
  const pid_t child = fork();
  if (child != 0) return wait_for(child);
  alarm(kHangSeconds);
  _exit(work());
}

// For EXPECT_TRUE: whether a child ends by status 0 (what it wrote to standard error is shown), or by this signal (0:
// by none) after a line "freestone: SAID..." on standard error.
testing::AssertionResult ends_well(const ChildBody& body);
testing::AssertionResult dies_by(int signal, const char* said, const ChildBody& body);
inline testing::AssertionResult dies_by(int signal, const ChildBody& body) { return dies_by(signal, nullptr, body); }

// Forks and execs argv[0] (with the environment as it is, plus `variables`, each "NAME=value").
ChildEnd run_program(const std::string& path, const std::string& argument, const std::string& variable = "");

}  // namespace freestone_test
