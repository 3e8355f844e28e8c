#include "replayer/run.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "replayer/calls.h"
#include "replayer/order.h"

namespace freestone::trace {
namespace {

constexpr uintptr_t kNoMemory = 1;  // in a slot: the call returned no memory
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLineBytes = 64;
constexpr size_t kStackBytes = 256 << 10;

uint64_t cycles() {
#if defined(__x86_64__)
  // Earlier instructions must be done and later ones not begun. Otherwise a short call hides behind the reading.
  __builtin_ia32_lfence();
  const uint64_t count = __builtin_ia32_rdtsc();
  __builtin_ia32_lfence();
  return count;
#else
  uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#endif
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

void sleep_until(uint64_t ns) {
  const timespec at{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
}

// Shared and resident from the start. Being shared tells the replay's own memory from the allocator's.
template <class T>
T* own_array(size_t count) {
  void* memory = mmap(nullptr, std::max<size_t>(1, count * sizeof(T)), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw Error("no memory for the replay itself");
  return static_cast<T*>(memory);
}

// A line "NAME: N kB" of /proc/self/status.
double status_kib(const char* name) {
  char text[8192];
  const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  const ssize_t count = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[std::max<ssize_t>(0, count)] = 0;
  const char* line = std::strstr(text, name);
  return line ? std::atof(line + std::strlen(name)) : 0;
}

struct PerThread {
  Histogram births;
  Histogram deaths;
  uint64_t checksum;
  uint64_t failures;
};

class Runner;

struct Copy {
  std::atomic<uintptr_t>* slots = nullptr;
  Windows windows;
  std::atomic<uint32_t> next_to_start{1};
  std::atomic<uint32_t> running{0};
  PerThread* threads = nullptr;
};

struct Start {
  Runner* runner;
  uint32_t copy;
  uint32_t thread;
};

class Runner {
 public:
  Runner(const Plan& plan, const RunOptions& options)
      : plan_(plan), options_(options), copies_(own_array<Copy>(options.copies)) {
    const auto windows = static_cast<uint32_t>(plan.header().windows);
    const size_t threads = plan.threads().size();
    starts_ = own_array<Start>(threads * options.copies);
    resident_ = own_array<double>(windows);
    for (uint32_t c = 0; c < options.copies; c++) {
      Copy& copy = *new (&copies_[c]) Copy();
      copy.slots = own_array<std::atomic<uintptr_t>>(plan.header().slots);
      auto* remaining = own_array<std::atomic<uint32_t>>(windows);
      for (uint32_t i = 0; i < windows; i++) remaining[i] = plan.windows()[i].threads;
      copy.windows.set(remaining, windows);
      copy.threads = own_array<PerThread>(threads);
      for (uint32_t i = 0; i < threads; i++) starts_[c * threads + i] = {this, c, i};
    }
    statm_ = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    pthread_attr_init(&attributes_);
    pthread_attr_setstacksize(&attributes_, kStackBytes);
    pthread_attr_setdetachstate(&attributes_, PTHREAD_CREATE_DETACHED);
  }

  Outcome run() {
    Outcome outcome;
    outcome.clock_cycles = clock_cost();
    rusage before{}, after{};
    outcome.begin_kib = anonymous_kib();
    base_kib_ = options_.own_kib < 0 ? outcome.begin_kib : options_.own_kib;
    getrusage(RUSAGE_SELF, &before);
    started_ns_ = now_ns();
    const double used_before = cpu_seconds();
    const uint64_t started = cycles();
    for (uint32_t c = 1; c < options_.copies; c++) create(c, 0);
    copies_[0].running.fetch_add(1);
    replay(0, 0);
    for (uint32_t c = 0; c < options_.copies; c++) {
      copies_[c].windows.wait(copies_[c].windows.count());
      while (copies_[c].running.load()) sched_yield();
    }
    const uint64_t ended_ns = now_ns();
    outcome.cpu_s = cpu_seconds() - used_before;
    outcome.cycles_per_ns =
        static_cast<double>(cycles() - started) / static_cast<double>(std::max<uint64_t>(1, ended_ns - started_ns_));
    outcome.wall_s = static_cast<double>(ended_ns - started_ns_) / 1e9;
    getrusage(RUSAGE_SELF, &after);
    outcome.faults = static_cast<uint64_t>(after.ru_minflt - before.ru_minflt);
    outcome.peak_kib =
        std::max(0.0, status_kib("VmHWM:") - status_kib("RssFile:") - status_kib("RssShmem:") - base_kib_);
    sleep_until(now_ns() + uint64_t{options_.idle_ms} * 1'000'000);
    outcome.idle_kib = std::max(0.0, anonymous_kib() - base_kib_);
    gather(outcome);
    return outcome;
  }

 private:
  // Measures what the two reads of the counter around a call cost by themselves.
  static double clock_cost() {
    std::array<uint64_t, 1001> found;
    for (uint64_t& one : found) {
      const uint64_t begin = cycles();
      one = cycles() - begin;
    }
    std::nth_element(found.begin(), found.begin() + 500, found.end());
    return static_cast<double>(found[500]);
  }

  double anonymous_kib() const {
    char text[128];
    const ssize_t count = pread(statm_, text, sizeof text - 1, 0);
    text[std::max<ssize_t>(0, count)] = 0;
    unsigned long long size = 0, resident = 0, shared = 0;
    std::sscanf(text, "%llu %llu %llu", &size, &resident, &shared);
    return static_cast<double>(resident - std::min(resident, shared)) * static_cast<double>(kPageBytes) / 1024;
  }

  void create(uint32_t copy, uint32_t thread) {
    copies_[copy].running.fetch_add(1);
    pthread_t made;
    if (pthread_create(&made, &attributes_, begin, &starts_[copy * plan_.threads().size() + thread]) != 0) {
      std::fprintf(stderr, "freestone-replay: a thread could not be started\n");
      std::_Exit(1);
    }
  }

  static void* begin(void* argument) {
    const Start& start = *static_cast<Start*>(argument);
    start.runner->replay(start.copy, start.thread);
    return nullptr;
  }

  // Starts the threads whose first window is `window` or earlier. The first thread to come here does it.
  void start_threads(uint32_t copy_number, uint64_t window) {
    Copy& copy = copies_[copy_number];
    const auto threads = plan_.threads();
    for (uint32_t next = copy.next_to_start.load(); next < threads.size() && threads[next].start_window <= window;) {
      if (copy.next_to_start.compare_exchange_weak(next, next + 1)) create(copy_number, next++);
    }
  }

  void replay(uint32_t copy_number, uint32_t number) {
    if (options_.null)
      replay_with<Null>(copy_number, number);
    else
      replay_with<Real>(copy_number, number);
    Copy& copy = copies_[copy_number];
    const bool waits = !plan_.threads()[number].ends && number != 0;
    copy.running.fetch_sub(1);
    if (waits || (number == 0 && copy_number != 0))
      for (;;) pause();  // it lives until the end, as in the program
  }

  template <class Allocator>
  void replay_with(uint32_t copy_number, uint32_t number) {
    Copy& copy = copies_[copy_number];
    PerThread& self = copy.threads[number];
    uint32_t window = kAll;
    for (const Op& op : plan_.ops(plan_.threads()[number])) {
      if (op.code == kWindow) {
        change_window(copy_number, window, op.size);
        window = static_cast<uint32_t>(op.size);
        continue;
      }
      if (op.code == kTouch) {
        touch<Allocator>(copy.slots[op.slot].load(std::memory_order_relaxed), op);  // this thread put it there
        continue;
      }
      self.checksum = (self.checksum ^ (op.code + (op.size << 8) + (uint64_t{op.align_log2} << 56) + op.flags)) *
                      0x9e3779b97f4a7c15u;
      if (fst_is_death(op.code))
        end<Allocator>(copy, self, op);
      else
        make<Allocator>(copy, self, op);
    }
    change_window(copy_number, window, copy.windows.count());
  }

  void change_window(uint32_t copy_number, uint32_t from, uint64_t to) {
    Copy& copy = copies_[copy_number];
    start_threads(copy_number, to);
    if (from != kAll)
      copy.windows.finish(from, [&](uint32_t passed) { look(copy_number, passed); });
    else
      copy.windows.advance([&](uint32_t passed) { look(copy_number, passed); });
    if (to >= copy.windows.count()) return;
    if (to >= 2) copy.windows.wait(static_cast<uint32_t>(to - 1));  // PLAN-2
    if (options_.pace > 0)
      sleep_until(started_ns_ +
                  static_cast<uint64_t>(static_cast<double>(plan_.windows()[to].time_ns) / options_.pace));
  }

  void look(uint32_t copy_number, uint32_t window) {
    if (copy_number == 0) resident_[window] = anonymous_kib();
  }

  template <class Allocator>
  static void touch(uintptr_t block, const Op& op) {
    if (block == kNoMemory || block == 0) return;
    const uint64_t unit = op.size <= kPageBytes ? kLineBytes : kPageBytes;
    const uint64_t end = std::min(uint64_t{op.touch_end} * unit, op.size);
    auto* bytes = reinterpret_cast<volatile char*>(block);
    for (uint64_t at = uint64_t{op.touch_begin} * unit; at < end; at += unit) bytes[at & Allocator::kTouchMask] = 1;
  }

  template <class Call>
  static void count(Histogram& of, Call call) {
    if (of.calls++ % kTimedEvery) return call();
    const uint64_t begin = cycles();
    call();
    of.add(cycles() - begin);
  }

  template <class Allocator>
  void make(Copy& copy, PerThread& self, const Op& op) {
    void* block = nullptr;
    count(self.births, [&] { block = Allocator::make(op); });
    if (op.flags & kFailed) {
      if (block) free_plain<Allocator>(block);
      return;
    }
    put<Allocator>(copy, self, op, block);
  }

  template <class Allocator>
  static void put(Copy& copy, PerThread& self, const Op& op, const void* block) {
    if (!block && op.size) self.failures++;
    touch<Allocator>(reinterpret_cast<uintptr_t>(block), op);
    copy.slots[op.slot].store(block ? reinterpret_cast<uintptr_t>(block) : kNoMemory,
                              std::memory_order_release);  // PLAN-1
  }

  template <class Allocator>
  static void free_plain(void* block) {
    Op plain{};
    plain.code = FST_FREE;
    Allocator::end(plain, block);
  }

  template <class Allocator>
  void end(Copy& copy, PerThread& self, const Op& op) {
    std::atomic<uintptr_t>& slot = copy.slots[op.old_slot];
    const uintptr_t found =
        op.flags & kWait ? wait_for(slot) : slot.load(std::memory_order_relaxed);  // else this thread put it there
    void* block = found == kNoMemory ? nullptr : reinterpret_cast<void*>(found);
    if (op.code != FST_REALLOC) {
      if (block && op.size && op.size <= kPageBytes)  // a program often uses a block shortly before it ends
        static_cast<void>(*static_cast<volatile char*>(block));
      slot.store(0, std::memory_order_relaxed);  // only this thread reads it within the next two windows
      count(self.deaths, [&] { Allocator::end(op, block); });
      return;
    }
    void* moved = nullptr;
    count(self.births, [&] { moved = Allocator::change(block, op.size); });
    if (op.flags & kFailed) {
      if (moved) slot.store(reinterpret_cast<uintptr_t>(moved), std::memory_order_relaxed);  // as above
      return;
    }
    if (op.old_slot != op.slot) slot.store(0, std::memory_order_relaxed);  // as above
    put<Allocator>(copy, self, op, moved);
  }

  void gather(Outcome& outcome) {
    for (uint32_t c = 0; c < options_.copies; c++)
      for (size_t i = 0; i < plan_.threads().size(); i++) {
        const PerThread& one = copies_[c].threads[i];
        outcome.births.merge(one.births);
        outcome.deaths.merge(one.deaths);
        outcome.checksum += one.checksum * (plan_.threads()[i].recorded * 2 + 1);
        outcome.failures += one.failures;
      }
    const auto windows = plan_.windows();
    double resident = 0, live = 0;
    outcome.resident_kib = {resident_, windows.size()};
    for (size_t i = 0; i < windows.size(); i++) {
      resident_[i] = std::max(0.0, resident_[i] - base_kib_);
      resident += resident_[i];
      live += static_cast<double>(windows[i].live_bytes) / 1024;
    }
    outcome.mean_kib = resident / static_cast<double>(windows.size());
    outcome.live_mean_kib = live / static_cast<double>(windows.size());
  }

  const Plan& plan_;
  const RunOptions& options_;
  Copy* copies_;
  Start* starts_;
  double* resident_;
  int statm_;
  pthread_attr_t attributes_;
  double base_kib_ = 0;
  uint64_t started_ns_ = 0;
};

}  // namespace

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < counts.size(); i++) counts[i] += other.counts[i];
  sum += other.sum;
  timed += other.timed;
  calls += other.calls;
}

double Histogram::percentile(double share) const {
  const auto wanted = static_cast<uint64_t>(static_cast<double>(timed) * share);
  uint64_t seen = 0;
  for (unsigned i = 0; i < kBuckets; i++)
    if ((seen += counts[i]) > wanted) return static_cast<double>(lower_edge(i));
  return 0;
}

Plan::Plan(std::span<const uint8_t> bytes) {
  const auto wrong = [](const char* text) { throw Error(std::string("no plan of this replayer: ") + text); };
  if (bytes.size() < sizeof(PlanHeader)) wrong("too short");
  header_ = reinterpret_cast<const PlanHeader*>(bytes.data());
  if (header_->magic != kPlanMagic || header_->bytes != bytes.size()) wrong("its header does not fit");
  const uint32_t front = crc32c(header_, offsetof(PlanHeader, crc));
  if ((front ^ crc32c(bytes.data() + sizeof(PlanHeader), bytes.size() - sizeof(PlanHeader))) != header_->crc)
    wrong("its checksum is wrong");
  threads_ = reinterpret_cast<const PlanThread*>(header_ + 1);
  windows_ = reinterpret_cast<const PlanWindow*>(threads_ + header_->threads);
  ops_ = reinterpret_cast<const Op*>(windows_ + header_->windows);
}

Outcome run_plan(const Plan& plan, const RunOptions& options) {
  Outcome outcome = Runner(plan, options).run();
  if (options.null) return outcome;
  RunOptions alone{};  // after the measured one, whose heap it would change: threads that it starts may allocate
  alone.copies = options.copies;
  alone.null = true;
  alone.idle_ms = 0;
  outcome.own_s = Runner(plan, alone).run().cpu_s;
  return outcome;
}

}  // namespace freestone::trace
