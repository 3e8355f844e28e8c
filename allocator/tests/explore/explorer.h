// Runs a few threads of a scenario in every order, up to a bound, over the allocator's real code.
//
// The code is compiled with `base/atomic.h` of this folder: each atomic operation asks here who runs next and what a
// load sees. An execution is a sequence of such choices; the next one differs in the last choice that has another
// alternative, until there is none (depth-first). Two bounds keep that finite: how often a thread is interrupted
// (`preemptions`) and how many loads see an older value (`stale`).
//
// What a load may see is what the C++ orders in the code allow, as an operational model: per location the sequence of
// stored values, per thread the oldest one that it may still see; acquire takes over what the release that it reads
// from had seen; sequentially consistent operations also respect one common order. Not modelled: a load that sees a
// store which its own thread's later store made possible.
//
// To bound interruptions is the idea of CHESS (Musuvathi and Qadeer, 2007). Packaged tools (relacy) want each atomic
// made anew by the test of each execution; here they lie in the allocator's own static tables.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace explore {

enum class Order : uint8_t { relaxed, acquire, release, sequential };

struct Bounds {
  unsigned preemptions = 3;
  unsigned stale = 1;
};

struct Scenario {
  // Before each execution. All atomics that the threads touched are put back by themselves.
  std::function<void()> prepare;
  std::vector<std::function<void()>> threads;
  // After each execution: what is wrong, or an empty text.
  std::function<std::string()> judge;
};

struct Outcome {
  uint64_t executions = 0;
  std::string problem;  // of the first execution that was judged wrong, with the order in which its threads ran
};

Outcome explore(const Scenario& scenario, Bounds bounds);

// For the atomics. Outside of an execution `is_running` is false and the plain value counts.
bool is_running();
using Write = void (*)(void* place, uint64_t value);
uint64_t load(void* place, uint64_t now, Order order, Write write);
// Reads the newest value and stores what `change` makes of it; false from `change`: no store.
using Change = bool (*)(uint64_t before, void* context, uint64_t& after);
uint64_t modify(void* place, uint64_t now, Order order, Change change, void* context, Write write);
void store(void* place, uint64_t now, uint64_t value, Order order, Write write);
// All stores before it are seen before any store after it.
void order_stores();
// A fence of the common order: what a thread saw before its own is seen by each thread after a later one.
void order_all();
// While one lives, atomics are plain values.
class Look {
 public:
  Look();
  ~Look();
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;
};
// The execution is wrong.
[[noreturn]] void broken(const char* label, const char* condition);
// The thread cannot go on until another one has run.
void wait();

}  // namespace explore
