#include "writer/program.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "recorder/shared.h"
#include "writer/clock.h"

namespace freestone::trace {
namespace {

constexpr uint64_t kGraceNs = 5'000'000'000;  // supervisors wait for 10 s before they kill

volatile sig_atomic_t asked_to_end;  // how often
volatile sig_atomic_t to_pass_on;    // a signal that a process sent; 0: none

void on_signal(int number, siginfo_t* about, void*) {
  asked_to_end = asked_to_end + 1;
  if (about->si_code <= 0) to_pass_on = number;  // above 0: the terminal's, which sends it to the program too
}

// Sends the signal to all below `pid`, children before their parent: afterwards they could not be found.
void send_below(pid_t pid, int number) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/task/";
  DIR* tasks = opendir(folder.c_str());
  while (const dirent* task = tasks ? readdir(tasks) : nullptr) {
    FILE* children = task->d_name[0] == '.' ? nullptr : std::fopen((folder + task->d_name + "/children").c_str(), "re");
    for (pid_t child; children && std::fscanf(children, "%d", &child) == 1;) {
      send_below(child, number);
      kill(child, number);
    }
    if (children) std::fclose(children);
  }
  if (tasks) closedir(tasks);
}

}  // namespace

Program::Program() {
  struct sigaction action{}, before{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO;
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    if (sigaction(number, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
}

bool Program::start(char** command, const std::string& library, const std::string& shared_path) {
  child_ = fork();
  if (child_ != 0) return child_ > 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string preload = library;
  if (const char* others = std::getenv("LD_PRELOAD"); others && *others) preload += std::string(":") + others;
  setenv("LD_PRELOAD", preload.c_str(), 1);
  setenv(FSR_ENVIRONMENT, shared_path.c_str(), 1);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
  execvp(command[0], command);
  std::fprintf(stderr, "freestone-record: '%s' does not start: %s\n", command[0], std::strerror(errno));
  _exit(127);
}

void Program::look_after() {
  int status = 0;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != child_) continue;
    ended_ns_ = monotonic_ns();
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  is_alone_ = pid < 0;
  if (const int number = to_pass_on) {
    to_pass_on = 0;
    if (!kill_ns_) kill_ns_ = monotonic_ns() + kGraceNs;
    send_below(getpid(), number);
  }
  if (kill_ns_ && monotonic_ns() > kill_ns_) send_below(getpid(), SIGKILL);
}

bool Program::is_asked_to_end() const { return asked_to_end != 0; }

bool Program::is_told_to_end() const {
  if (!asked_to_end || kill_ns_ || to_pass_on) return kill_ns_ && is_alone_;
  return asked_to_end > 1 || child_ == 0 || has_ended();
}

bool Program::is_done() const { return has_ended() && (is_alone_ || !kill_ns_); }

}  // namespace freestone::trace
