#include "explore/explorer.h"

#include "base/check.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

namespace explore {
namespace {

using View = std::vector<uint32_t>;  // per location, the index of a stored value

void join(View& into, const View& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] > into[i]) into[i] = from[i];
}
uint32_t at(const View& view, size_t location) { return location < view.size() ? view[location] : 0; }
void raise(View& view, size_t location, uint32_t index) {
  if (view.size() <= location) view.resize(location + 1);
  if (index > view[location]) view[location] = index;
}

struct Stored {
  uint64_t value;
  View view;  // what a thread that acquires it has seen as well
};
struct Location {
  void* place;
  Write write;
  std::vector<Stored> history;
};

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kStepsMax = 20000;  // a longer execution is one that does not end

struct Thread {
  const std::function<void()>* body = nullptr;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  ucontext_t start{};
  jmp_buf place{};
  bool started = false;
  bool ended = false;
  bool waits = false;  // until another thread stores something
  View view;
  View fence;  // what was seen before the last fence
};

struct Choice {
  unsigned taken;
  unsigned count;
};

struct Execution {
  Bounds left;
  std::vector<Choice>* path;
  size_t depth = 0;
  std::map<void*, size_t> numbers;
  std::vector<Location> locations;
  View sequential;
  View fenced;  // what was seen before any order_all
  std::vector<Thread>* threads;
  size_t current = 0;
  size_t steps = 0;
  std::string order;
  jmp_buf scheduler{};
  bool stuck = false;
  std::string broken;  // the check that did not hold
};
Execution* running = nullptr;
unsigned looks = 0;

unsigned choose(unsigned count) {
  if (count <= 1) return 0;
  std::vector<Choice>& path = *running->path;
  if (running->depth == path.size()) path.push_back({0, count});
  if (path[running->depth].count != count) broken("explorer", "an execution can be repeated");
  return path[running->depth++].taken;
}

[[noreturn]] void enter() {
  Thread& thread = (*running->threads)[running->current];
  (*thread.body)();
  thread.ended = true;
  _longjmp(running->scheduler, 1);
}

void back_to_scheduler() {
  Thread& thread = (*running->threads)[running->current];
  if (_setjmp(thread.place) == 0) _longjmp(running->scheduler, 1);
}

std::vector<size_t> others_that_run() {
  std::vector<size_t> others;
  for (size_t t = 0; t < running->threads->size(); ++t)
    if (const Thread& thread = (*running->threads)[t]; t != running->current && !thread.ended && !thread.waits)
      others.push_back(t);
  return others;
}

void switch_to(size_t thread) {
  running->current = thread;
  running->order += std::to_string(thread + 1);
}

// Before each operation: another thread may run first.
void interruption_point() {
  if (++running->steps > kStepsMax) {
    running->stuck = true;
    back_to_scheduler();
  }
  if (running->left.preemptions == 0) return;
  const std::vector<size_t> others = others_that_run();
  const unsigned taken = choose(static_cast<unsigned>(others.size()) + 1);
  if (taken == 0) return;
  --running->left.preemptions;
  const size_t self = running->current;
  Thread& thread = (*running->threads)[self];
  if (_setjmp(thread.place) == 0) {
    switch_to(others[taken - 1]);
    _longjmp(running->scheduler, 1);
  }
}

Location& location_of(void* place, uint64_t now, Write write, size_t& number) {
  const auto [found, is_new] = running->numbers.try_emplace(place, running->locations.size());
  number = found->second;
  if (is_new) running->locations.push_back({place, write, {{now, {}}}});
  return running->locations[number];
}

bool acquires(Order order) { return order == Order::acquire || order == Order::sequential; }
bool releases(Order order) { return order == Order::release || order == Order::sequential; }

uint64_t read(Location& location, size_t number, uint32_t index, Order order) {
  Thread& thread = (*running->threads)[running->current];
  raise(thread.view, number, index);
  if (acquires(order)) join(thread.view, location.history[index].view);
  if (order == Order::sequential) raise(running->sequential, number, index);
  return location.history[index].value;
}

void append(Location& location, size_t number, uint64_t value, Order order, const View* continued) {
  Thread& thread = (*running->threads)[running->current];
  const auto index = static_cast<uint32_t>(location.history.size());
  raise(thread.view, number, index);
  View carried = releases(order) ? thread.view : thread.fence;
  if (continued != nullptr) join(carried, *continued);  // a release sequence goes on through read-modify-write
  raise(carried, number, index);
  location.history.push_back({value, carried});
  if (order == Order::sequential) raise(running->sequential, number, index);
  location.write(location.place, value);
  for (Thread& waiting : *running->threads) waiting.waits = false;
}

// One execution along the path. Returns what is wrong.
std::string run_once(const Scenario& scenario, Bounds bounds, std::vector<Choice>& path) {
  if (scenario.prepare) scenario.prepare();
  static std::vector<Thread> threads(8);
  std::vector<Thread> team(scenario.threads.size());
  for (size_t t = 0; t < team.size(); ++t) {
    team[t].stack.swap(threads[t].stack);  // reused from execution to execution
    team[t].body = &scenario.threads[t];
  }
  Execution execution;
  execution.left = bounds;
  execution.path = &path;
  execution.threads = &team;
  running = &execution;
  switch_to(choose(static_cast<unsigned>(team.size())));
  ucontext_t scheduler;
  _setjmp(execution.scheduler);
  if (!execution.stuck && execution.broken.empty()) {
    Thread* thread = &team[execution.current];
    if (thread->ended) {
      if (const std::vector<size_t> others = others_that_run(); !others.empty()) {
        switch_to(others[choose(static_cast<unsigned>(others.size()))]);
        thread = &team[execution.current];
      }
      for (const Thread& other : team) execution.stuck |= thread->ended && !other.ended;
    }
    if (!thread->ended) {
      if (thread->started) _longjmp(thread->place, 1);
      thread->started = true;
      getcontext(&thread->start);
      thread->start.uc_stack.ss_sp = thread->stack.get();
      thread->start.uc_stack.ss_size = kStackBytes;
      thread->start.uc_link = nullptr;
      makecontext(&thread->start, enter, 0);
      swapcontext(&scheduler, &thread->start);
    }
  }
  running = nullptr;
  std::string problem = execution.broken;
  if (problem.empty()) problem = execution.stuck ? "the threads wait for each other" : scenario.judge();
  if (!problem.empty()) problem += "; threads ran in the order " + execution.order;
  for (const Location& location : execution.locations) location.write(location.place, location.history[0].value);
  for (size_t t = 0; t < team.size(); ++t) team[t].stack.swap(threads[t].stack);
  return problem;
}

// Makes the path of the next execution; false when there is none.
bool advance(std::vector<Choice>& path) {
  while (!path.empty() && path.back().taken + 1 == path.back().count) path.pop_back();
  if (path.empty()) return false;
  ++path.back().taken;
  return true;
}

}  // namespace

Outcome explore(const Scenario& scenario, Bounds bounds) {
  Outcome outcome;
  std::vector<Choice> path;
  do {
    ++outcome.executions;
    outcome.problem = run_once(scenario, bounds, path);
  } while (outcome.problem.empty() && advance(path));
  return outcome;
}

bool is_running() { return running != nullptr && looks == 0; }

Look::Look() { ++looks; }
Look::~Look() { --looks; }

void broken(const char* label, const char* condition) {
  looks = 0;
  if (running == nullptr) freestone::fail_check(label, condition);
  running->broken = std::string(label) + " does not hold: " + condition;
  back_to_scheduler();
  std::abort();
}

uint64_t load(void* place, uint64_t now, Order order, Write write) {
  interruption_point();
  size_t number;
  Location& location = location_of(place, now, write, number);
  const Thread& thread = (*running->threads)[running->current];
  const auto newest = static_cast<uint32_t>(location.history.size() - 1);
  uint32_t oldest = at(thread.view, number);
  if (order == Order::sequential && at(running->sequential, number) > oldest) oldest = at(running->sequential, number);
  const unsigned back = running->left.stale > 0 ? choose(newest - oldest + 1) : 0;
  if (back > 0) --running->left.stale;
  return read(location, number, newest - back, order);
}

uint64_t modify(void* place, uint64_t now, Order order, Change change, void* context, Write write) {
  interruption_point();
  size_t number;
  Location& location = location_of(place, now, write, number);
  const auto newest = static_cast<uint32_t>(location.history.size() - 1);
  const uint64_t before = read(location, number, newest, order);
  uint64_t after = before;
  if (change(before, context, after)) {
    const View continued = location.history[newest].view;
    append(location, number, after, order, &continued);
  }
  return before;
}

void store(void* place, uint64_t now, uint64_t value, Order order, Write write) {
  interruption_point();
  size_t number;
  Location& location = location_of(place, now, write, number);
  append(location, number, value, order, nullptr);
}

void order_stores() {
  Thread& thread = (*running->threads)[running->current];
  thread.fence = thread.view;
}

void order_all() {
  interruption_point();
  Thread& thread = (*running->threads)[running->current];
  join(thread.view, running->fenced);
  running->fenced = thread.fence = thread.view;
}

void wait() {
  ++running->steps;
  (*running->threads)[running->current].waits = true;
  const std::vector<size_t> others = others_that_run();
  if (others.empty()) running->stuck = true;
  if (running->steps > kStepsMax) running->stuck = true;
  Thread& thread = (*running->threads)[running->current];
  if (_setjmp(thread.place) == 0) {
    if (!running->stuck) switch_to(others[choose(static_cast<unsigned>(others.size()))]);
    _longjmp(running->scheduler, 1);
  }
}

}  // namespace explore
