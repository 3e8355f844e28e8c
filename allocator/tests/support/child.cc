#include "support/child.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace freestone_test {
namespace {

// An emulator says in a line of its own that a signal ended the program.
std::string without_emulator(std::string errors) {
  const size_t at = errors.find("qemu: uncaught target signal");
  if (at != std::string::npos) errors.erase(at, errors.find('\n', at) + 1 - at);
  return errors;
}

ChildEnd collect(pid_t child, int errors_file) {
  ChildEnd end;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.timed_out = end.signal == SIGALRM;
  char buffer[65536];
  const ssize_t length = pread(errors_file, buffer, sizeof buffer, 0);
  if (length > 0) end.errors = without_emulator(std::string(buffer, static_cast<size_t>(length)));
  close(errors_file);
  return end;
}

// Only async-signal-safe calls: the parent may have other threads.
void prepare_child(int errors_file) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(errors_file, STDERR_FILENO);
  signal(SIGALRM, SIG_DFL);
  alarm(kHangSeconds);
}

}  // namespace

std::string ChildEnd::describe() const {
  std::string text = timed_out     ? "ran past its time"
                     : signal != 0 ? std::string("ended by ") + strsignal(signal)
                                   : "exited with " + std::to_string(exit_status);
  return text + "; standard error:\n" + errors;
}

ChildEnd run_in_child(const ChildBody& body, const std::function<void()>& meanwhile) {
  std::fflush(nullptr);
  const int errors_file = memfd_create("child-stderr", MFD_CLOEXEC);
  const pid_t child = fork();
  if (child == 0) {
    prepare_child(errors_file);
    _exit(body());
  }
  if (meanwhile) meanwhile();
  return collect(child, errors_file);
}

testing::AssertionResult ends_well(const ChildBody& body) {
  const ChildEnd end = run_in_child(body);
  std::fputs(end.errors.c_str(), stderr);
  return testing::AssertionResult(end.exited_with(0)) << end.describe();
}

testing::AssertionResult dies_by(int signal, const char* said, const ChildBody& body) {
  const ChildEnd end = run_in_child(body);
  const bool is_said = said == nullptr || end.errors.rfind(std::string("freestone: ") + said, 0) == 0;
  return testing::AssertionResult(end.signal == signal && is_said) << end.describe();
}

ChildEnd run_program(const std::string& path, const std::string& argument, const std::string& variable) {
  return run_in_child([&] {
    std::string copy = variable;
    if (!copy.empty()) putenv(copy.data());
    execl(path.c_str(), path.c_str(), argument.c_str(), static_cast<char*>(nullptr));
    return 127;
  });
}

}  // namespace freestone_test
