#include "team.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <new>

#include "clock.h"
#include "process.h"

namespace workload {
namespace detail {

struct Crew {
  enum Gate : int { closed, open, called_off };
  std::atomic<int> gate{closed};
  pthread_barrier_t barrier{};
  OwnArray<Lane> lanes;
  void (*body)(void*, Lane&) = nullptr;
  void* context = nullptr;
  Timing timing;

  explicit Crew(unsigned threads) : lanes(threads) {
    for (unsigned i = 0; i < threads; ++i) {
      Lane& lane = *new (&lanes[i]) Lane;
      lane.index_ = i;
      lane.count_ = threads;
      lane.crew_ = this;
    }
    pthread_barrier_init(&barrier, nullptr, threads);
  }
  ~Crew() { pthread_barrier_destroy(&barrier); }

  static void* main(void* given) {
    Lane& lane = *static_cast<Lane*>(given);
    Crew& crew = *lane.crew_;
    crew.gate.wait(closed);
    if (crew.gate.load() == open) crew.body(crew.context, lane);
    return nullptr;
  }
  // Called by thread 0 while all others stand at the barrier.
  void sum_section(Timing& timing_of) {
    std::uint64_t first = lanes[0].begin_ns_;
    std::uint64_t last = lanes[0].end_ns_;
    for (const Lane& lane : lanes) {
      if (lane.begin_ns_ < first) first = lane.begin_ns_;
      if (lane.end_ns_ > last) last = lane.end_ns_;
      timing_of.cpu_seconds += lane.cpu_;
      timing_of.faults += lane.faults_;
      timing_of.allocations += lane.allocations_;
      timing_of.frees += lane.frees_;
    }
    timing_of.seconds += static_cast<double>(last - first) * 1e-9;
  }
};

}  // namespace detail

void Lane::meet() {
  if (count_ > 1) pthread_barrier_wait(&crew_->barrier);
}

void Lane::start() {
  allocations_ = tally.allocations;
  frees_ = tally.frees;
  meet();
  cpu_ = thread_cpu_seconds();
  faults_ = faults_of_thread();
  begin_ns_ = now_ns();
}

void Lane::stop(Timing* other) {
  end_ns_ = now_ns();
  faults_ = faults_of_thread() - faults_;
  cpu_ = thread_cpu_seconds() - cpu_;
  allocations_ = tally.allocations - allocations_;
  frees_ = tally.frees - frees_;
  alone([&] { crew_->sum_section(other != nullptr ? *other : crew_->timing); });
}

Timing run_team(Report& report, unsigned threads, void (*body)(void*, Lane&), void* context) {
  detail::Crew crew(threads);
  crew.body = body;
  crew.context = context;
  if (threads == 1) {
    body(context, crew.lanes[0]);
  } else {
    OwnArray<pthread_t> ids(threads);
    unsigned made = 0;
    int error = 0;
    for (; made < threads; ++made) {
      error = pthread_create(&ids[made], nullptr, detail::Crew::main, &crew.lanes[made]);
      if (error != 0) break;
    }
    crew.gate.store(error == 0 ? detail::Crew::open : detail::Crew::called_off);
    crew.gate.notify_all();
    for (unsigned i = 0; i < made; ++i) pthread_join(ids[i], nullptr);
    if (error != 0) {
      ++report.other_failures;
      report.caveat("thread %u of %u could not be made: %s", made + 1, threads, std::strerror(error));
    }
  }
  for (const Lane& lane : crew.lanes) report.tally.add(lane.tally);
  return crew.timing;
}

void add_timing(Report& report, const Timing& timing, unsigned threads, Better time) {
  report.add("time", timing.seconds, "s", time);
  report.add("timed_cpu", timing.cpu_seconds, "s", Better::neither);
  report.add("timed_faults", timing.faults, "count", Better::lower);
  report.add("timed_allocations", timing.allocations, "count", Better::neither);
  report.add("timed_frees", timing.frees, "count", Better::neither);
  if (threads > usable_cpus()) report.caveat("oversubscribed: %u threads on %u processors", threads, usable_cpus());
}

void add_pairs(Report& report, const Timing& timing, unsigned threads, Better better) {
  report.add("pair_ns", timing.ns_each(timing.allocations) * threads, "ns", better, timing.allocations);
}

NewThreads::NewThreads(Report& report, unsigned count) : report_(report), members_(count) {
  for (unsigned i = 0; i < count; ++i) members_[i].index = i;
}

unsigned NewThreads::start_all(const void* body, void* (*run)(void*)) {
  unsigned missing = 0;
  for (Member& member : members_) {
    member.body = body;
    member.tally = {};
    const int error = pthread_create(&member.id, nullptr, run, &member);
    member.running = error == 0;
    if (member.running) continue;
    ++missing;
    ++report_.other_failures;
    report_.caveat("a thread could not be made: %s", std::strerror(error));
  }
  return missing;
}

void NewThreads::join(Member& member) {
  if (member.running) pthread_join(member.id, nullptr);
  member.running = false;
}

}  // namespace workload
