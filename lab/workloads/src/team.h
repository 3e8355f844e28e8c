// Threads of a workload, and what is timed.
//
// `run_team` runs a body on every thread. Between `start()` and `stop()` of its Lane lies a timed section: all threads
// begin together, and its time runs from the first thread's start to the last one's stop. Drawing numbers, making
// tables and cleaning up stand outside. One thread means the main thread, with no other in the process: allocators know
// that case.
#pragma once

#include <cstdint>

#include "report.h"

namespace workload {

struct Timing {
  double seconds = 0;      // wall time of all sections
  double cpu_seconds = 0;  // of all threads, in the sections
  std::uint64_t faults = 0;
  std::uint64_t allocations = 0;  // calls inside the sections only
  std::uint64_t frees = 0;
};

namespace detail {
struct Crew;
}

class Lane {
 public:
  unsigned index() const { return index_; }
  unsigned count() const { return count_; }
  void start();
  void stop(
      Timing* other = nullptr);  // the section counts for `other` instead of the team's timing; thread 0's is used
  // Waits for all threads, runs `work` on thread 0 alone, waits again.
  template <class F>
  void alone(F work) {
    meet();
    if (index_ == 0) work();
    meet();
  }
  void meet();

  // Summed into the report when the body ends. A timed loop counts in a Tally of its own, which stays in registers, and
  // adds it here before `stop`.
  Tally tally;

 private:
  friend struct detail::Crew;
  unsigned index_ = 0;
  unsigned count_ = 1;
  detail::Crew* crew_ = nullptr;
  std::uint64_t begin_ns_ = 0;
  std::uint64_t end_ns_ = 0;
  double cpu_ = 0;
  std::uint64_t faults_ = 0;
  std::uint64_t allocations_ = 0;
  std::uint64_t frees_ = 0;
};

Timing run_team(Report& report, unsigned threads, void (*body)(void*, Lane&), void* context);

template <class F>
Timing run_team(Report& report, unsigned threads, F body) {
  return run_team(report, threads, [](void* context, Lane& lane) { (*static_cast<F*>(context))(lane); }, &body);
}

// The figures that every workload reports about its timed part.
// `time` has a direction where no other figure tells the speed.
void add_timing(Report& report, const Timing& timing, unsigned threads, Better time = Better::neither);

// A thread that is no member of a team. `join` answers false when it could not be made (counted in the report).
class Thread {
 public:
  bool start(Report& report, void* (*body)(void*), void* context);
  void join();

 private:
  unsigned long id_ = 0;
  bool running_ = false;
};

}  // namespace workload
