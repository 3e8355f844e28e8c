// Threads of a workload, and what is timed.
//
// `run_team` runs a body on every thread. A timed section of its Lane lies between `start()` and `stop()`: all threads
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

  std::uint64_t calls() const { return allocations + frees; }
  double ns_each(std::uint64_t count) const { return seconds * 1e9 / static_cast<double>(count); }
  double per_second(std::uint64_t count) const { return static_cast<double>(count) / seconds; }
};

namespace detail {
struct Crew;
}

class Lane {
 public:
  unsigned index() const { return index_; }
  void start();
  void stop(
      Timing* other = nullptr);  // the section counts for `other` instead of the team's timing; thread 0's is used
  // A section in which `work` counts in a Tally of its own, which stays in registers.
  template <class F>
  void timed(F work) {
    start();
    Tally counted;
    work(counted);
    tally.add(counted);
    stop();
  }
  // Waits for all threads, runs `work` on thread 0 alone, waits again.
  template <class F>
  void alone(F work) {
    meet();
    if (index_ == 0) work();
    meet();
  }
  // Each thread runs `work` when no other does.
  template <class F>
  void in_turn(F work) {
    for (unsigned turn = 0; turn < count_; ++turn) {
      if (turn == index_) work();
      meet();
    }
  }
  void meet();

  Tally tally;  // summed into the report when the body ends

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
// pair_ns: what an allocation and its free take a thread.
void add_pairs(Report& report, const Timing& timing, unsigned threads, Better better = Better::lower);

// Threads that are new each time. What they count goes to the report and to a timing without CPU time.
class NewThreads {
 public:
  NewThreads(Report& report, unsigned count);
  // Each new thread runs `body(its index, its tally)`. Answers how many could not be made (counted in the report).
  template <class F>
  unsigned start(const F& body) {
    return start_all(&body, [](void* given) -> void* {
      Member& member = *static_cast<Member*>(given);
      Tally tally;
      (*static_cast<const F*>(member.body))(member.index, tally);
      member.tally = tally;
      return nullptr;
    });
  }
  // Waits for one after the other; `after(its index, its tally)` runs here when it has ended.
  template <class F>
  void join(Timing& timing, F after) {
    for (Member& member : members_) {
      join(member);
      after(member.index, member.tally);
      report_.tally.add(member.tally);
      timing.allocations += member.tally.allocations;
      timing.frees += member.tally.frees;
    }
    timing.cpu_seconds = __builtin_nan("");
  }
  void join(Timing& timing) {
    join(timing, [](unsigned, Tally&) {});
  }

 private:
  struct Member {
    const void* body;
    unsigned index;
    bool running;
    unsigned long id;
    Tally tally;
  };
  unsigned start_all(const void* body, void* (*run)(void*));
  static void join(Member& member);

  Report& report_;
  OwnArray<Member> members_;
};

}  // namespace workload
