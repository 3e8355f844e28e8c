// Runs a function in a forked child and tells how it ended: most properties of an allocator that are worth testing end
// a process or change it for good.
#pragma once

#include <functional>
#include <string>

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

// The child leaves by _exit(body()); it is killed after kHangSeconds. `meanwhile` runs in the parent before it waits.
ChildEnd run_in_child(const std::function<int()>& body, const std::function<void()>& meanwhile = nullptr);

// Forks and execs argv[0] (with the environment as it is, plus `variables`, each "NAME=value").
ChildEnd run_program(const std::string& path, const std::string& argument, const std::string& variable = "");

}  // namespace freestone_test
