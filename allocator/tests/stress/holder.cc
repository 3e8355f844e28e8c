#include "stress/holder.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace freestone_test {
namespace {

constexpr int kMarker = SYS_getppid;  // where `work` begins
constexpr int kPatienceMs = 300;
constexpr int kStepMs = 5;  // between the calls of a thread that an act waited for
constexpr char kOver = 'o';
constexpr char kIndependent = 'i';
constexpr unsigned kEnd = ~0U;

// Of the kernel, which older headers lack (Linux 5.3).
constexpr int kGetSyscallInfo = 0x420e;
constexpr uint8_t kOnEntry = 1;
struct SyscallInfo {
  uint8_t where;
  uint32_t architecture;
  uint64_t instruction;
  uint64_t stack;
  uint64_t number;
  uint64_t arguments[6];
  uint64_t more;
};

template <typename Value>
void send(int file, Value value) {
  while (write(file, &value, sizeof value) < 0 && errno == EINTR) {
  }
}
template <typename Value>
bool receive(int file, Value& value) {
  ssize_t got;
  while ((got = read(file, &value, sizeof value)) < 0 && errno == EINTR) {
  }
  return got == sizeof value;
}

struct Pipe {
  int ends[2];
  Pipe() {
    if (pipe(ends) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    shut(0);
    shut(1);
  }
  void shut(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
};
// To the child: where to act. From it: the number of its thread, then answers.
struct Lines {
  Pipe start;
  Pipe points;
  Pipe answers;
};

const Held* held_now;
Lines* lines_now;
pthread_t thread_now;

void* run_thread(void*) {
  send(lines_now->answers.ends[1], static_cast<pid_t>(syscall(SYS_gettid)));
  char go;
  if (!receive(lines_now->start.ends[0], go)) _exit(3);
  syscall(kMarker);
  held_now->work();
  pthread_testcancel();
  return nullptr;
}

int run_body(const Held& held, Lines& lines) {
  lines.start.shut(1);  // so that the end of the parent ends the child
  lines.points.shut(1);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &children, nullptr);
  held_now = &held;
  lines_now = &lines;
  held.prepare();
  if (pthread_create(&thread_now, nullptr, run_thread, nullptr) != 0) return 4;
  for (unsigned point; receive(lines.points.ends[0], point) && point != kEnd;) {
    if (!held.act(point)) return 1;
    send(lines.answers.ends[1], kOver);
  }
  pthread_join(thread_now, nullptr);
  return held.judge();
}

// Whether the act is over, or the child gone.
bool is_over(Lines& lines, int patience_ms) {
  for (;;) {
    pollfd waiting{lines.answers.ends[0], POLLIN, 0};
    const int ready = poll(&waiting, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    char answer = kOver;
    if (!receive(lines.answers.ends[0], answer) || answer == kOver) return true;
    patience_ms = -1;
  }
}

class Tracer {
 public:
  Tracer(const Held& held, pid_t thread, Lines& lines, HeldEnd& end)
      : held_(held), thread_(thread), lines_(lines), end_(end) {}

  void run() {
    if (ptrace(PTRACE_SEIZE, thread_, nullptr, PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) != 0) {
      end_.refused = std::string("ptrace: ") + std::strerror(errno);
      return;
    }
    send(lines_.start.ends[1], 'g');
    bool begun = false;
    for (int status; (status = next_stop()) >= 0;) {
      if (status >> 8 == (SIGTRAP | 0x80)) {
        SyscallInfo call{};
        if (ptrace(static_cast<__ptrace_request>(kGetSyscallInfo), thread_, sizeof call, &call) <= 0) {
          if (end_.points == 0) end_.refused = "the kernel does not tell which call it is";
        } else if (call.where == kOnEntry) {
          number_ = static_cast<long>(call.number);
          if (number_ == kMarker) begun = true;
          if (begun && number_ != kMarker) ++end_.calls[number_];
        }
        if (is_acting_ && is_over(lines_, kStepMs)) is_acting_ = false;
        if (begun && number_ != kMarker && !is_acting_ && is_wanted(call.where == kOnEntry)) hold();
      }
      const int signal = WSTOPSIG(status);
      const bool is_event = status >> 16 != 0 || signal == (SIGTRAP | 0x80);
      ptrace(PTRACE_SYSCALL, thread_, nullptr, is_event ? 0 : signal);
    }
    if (is_acting_) is_over(lines_, -1);
  }

 private:
  // -1: the thread has ended. Meanwhile an act may come to its end.
  int next_stop() {
    for (;;) {
      int status = 0;
      const pid_t got = waitpid(thread_, &status, __WALL | (is_acting_ ? WNOHANG : 0));
      if (got == thread_) return WIFSTOPPED(status) ? status : -1;
      if (got < 0 && errno != EINTR) return -1;
      if (is_acting_ && is_over(lines_, 1)) is_acting_ = false;
    }
  }
  // Calls like those before are many.
  bool is_wanted(bool before) {
    if (held_.all) return true;
    const unsigned seen = seen_[{number_, before}]++;
    return seen < kFirst || (seen + held_.offset) % 0x10001 * 0x9E3779B1u % seen == 0;
  }
  void hold() {
    send(lines_.points.ends[1], end_.points++);
    is_acting_ = !is_over(lines_, kPatienceMs);
    if (!is_acting_) ++end_.answered;
  }

  static constexpr unsigned kFirst = 3;

  const Held& held_;
  pid_t thread_;
  Lines& lines_;
  HeldEnd& end_;
  std::map<std::pair<long, bool>, unsigned> seen_;
  long number_ = 0;
  bool is_acting_ = false;
};

}  // namespace

void note_independent() { send(lines_now->answers.ends[1], kIndependent); }

pthread_t held_thread() { return thread_now; }

HeldEnd run_held(const Held& held) {
  HeldEnd end;
  Lines lines;
  end.child = run_in_child([&] { return run_body(held, lines); },
                           [&] {
                             signal(SIGPIPE, SIG_IGN);
                             lines.answers.shut(1);  // so that the end of the child is seen
                             pid_t thread;
                             if (receive(lines.answers.ends[0], thread)) Tracer(held, thread, lines, end).run();
                             if (!end.refused.empty()) send(lines.start.ends[1], 'g');
                             send(lines.points.ends[1], kEnd);
                           });
  return end;
}

}  // namespace freestone_test
