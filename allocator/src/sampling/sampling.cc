// Room 17, sampling: see sampling.h.

#include "sampling/sampling.h"

#include <signal.h>

#include <cstring>

#include "config/options.h"
#include "front/fork.h"
#include "front/heap.h"
#include "front/replaced_operators.h"
#include "front/sampled.h"
#include "guards/guard.h"
#include "leaks/leak.h"
#include "platform/message.h"
#include "platform/os.h"
#include "platform/own_stack.h"
#include "profile/profile.h"
#include "profile/profile_report.h"
#include "profile/profile_store.h"
#include "sampling/chance.h"

namespace freestone {

namespace {

constexpr usize kTrackBelow =
    64 * kKiB;  // a sampled block apart takes a unit: above this at most a quarter more address space

enum : u32 { kProfiling = 1, kGuarding = 2, kExact = 4, kPassingOn = 8 };
Atomic<u32> wanted;            // which of these; acquire/release with the rates
Atomic<double> profile_rate;   // per byte; changes only while no profile runs. Relaxed: published by `wanted`
double guard_rate = 0;

FREESTONE_THREAD_LOCAL ThreadRandom random_numbers;
FREESTONE_THREAD_LOCAL bool sampling_now;  // a signal handler that allocates meanwhile is not sampled

ThreadRandom& thread_random() {
  if (!random_numbers.seeded()) random_numbers.seed(os::entropy());
  return random_numbers;
}

double rate_of(u32 what) {
  return ((what & kProfiling) != 0 ? profile_rate.load_relaxed() : 0) + ((what & kGuarding) != 0 ? guard_rate : 0);
}

FREESTONE_AT_START void set_profile_rate(u64 mean_bytes) {
  mean_bytes = max_of<u64>(mean_bytes, 1);
  profile_rate.store_relaxed(1 / static_cast<double>(mean_bytes));
  profile_sample_bytes.store_relaxed(mean_bytes);
}

u64 distance(double bytes_each) {
  const u32 what = wanted.load_acquire();
  if ((what & kExact) != 0) return 1;
  const double steps = thread_random().exponential() / (bytes_each * rate_of(what));
  return steps < 0x1p60 ? static_cast<u64>(steps) + 1 : u64{1} << 60;
}
u64 next_allocations(usize block_bytes) { return distance(static_cast<double>(block_bytes)); }
i64 next_bytes() { return static_cast<i64>(distance(1)); }

double chance_for(usize bytes, double rate) {
  return chance_of_event(static_cast<double>(max_of<usize>(bytes, 1)) * rate);
}

// The samples that stand for one allocation of `bytes`.
double weight_of(usize bytes) {
  return (wanted.load_relaxed() & kExact) != 0 ? 1 : 1 / chance_for(bytes, profile_rate.load_relaxed());
}

void attach_sample(UnitIndex first, void* block, usize bytes) {
  SampledRecord(first).sample().store_relaxed(address_of(add_sample(block, bytes, weight_of(bytes), false)));
}

// A block in units of its own, at an offset that differs so that sampled blocks do not compete for the same cache sets.
void* allocate_apart(usize bytes, usize alignment) {
  const usize units = bytes_to_units(max_of<usize>(bytes, 1));
  const usize page = 4 * kKiB;
  usize offset = 0;
  if (alignment <= page && bytes < page)
    offset = round_down(thread_random().next() % (page - bytes), max_of<usize>(alignment, 16));
  const UnitIndex first = take_sampled_units(bytes, units, max_of<usize>(alignment >> kUnitShift, 1), offset);
  if (first == kNoUnit) return nullptr;
  void* block = sampled_block(first);
  if constexpr (kMitigations.zero_on_free) std::memset(block, 0, bytes);  // what is handed out is clear there
  attach_sample(first, block, bytes);
  return block;
}

void* on_allocate(usize bytes, usize alignment, usize counted_bytes, bool* track) {
  const u32 what = wanted.load_acquire();
  if (sampling_now || what == 0) return nullptr;
  if ((what & kExact) != 0) {
    *track = true;
    return nullptr;
  }
  // The allocation is here with the chance of its counted size under both rates together: what it is sampled for is
  // decided so that each purpose has exactly the chance of the requested size under its own rate.
  const double chance = chance_for(counted_bytes, rate_of(what));
  const bool profiled =
      (what & kProfiling) != 0 && thread_random().unit() * chance <= chance_for(bytes, profile_rate.load_relaxed());
  const bool guarded = (what & kGuarding) != 0 && thread_random().unit() * chance <= chance_for(bytes, guard_rate);
  sampling_now = true;
  void* block = nullptr;
  if (guarded) {
    block = guard_allocate(bytes, alignment);
    if (block != nullptr && profiled) attach_sample(sampled_first_unit(block), block, bytes);
  }
  if (block == nullptr && profiled) {
    if (bytes > kCachedBytesMax || sampling.load_relaxed() == Sampling::every_block) {
      *track = true;
    } else {
      block = allocate_apart(bytes, alignment);
    }
  }
  sampling_now = false;
  return block;
}

void on_placed(void* block, usize bytes) {
  sampling_now = true;
  add_sample(block, bytes, weight_of(bytes), true);
  sampling_now = false;
}

void on_resized(void* block, usize bytes) {
  const u32 what = wanted.load_acquire();
  const bool profiled =
      (what & kExact) != 0 || ((what & kProfiling) != 0 && thread_random().unit() * chance_for(bytes, rate_of(what)) <=
                                                               chance_for(bytes, profile_rate.load_relaxed()));
  if (profiled && !sampling_now) on_placed(block, bytes);
}

void on_deallocate(void* block, UnitIndex first) {
  if (is_guarded(first)) guard_check_free(block, first);
  Atomic<u64>& sample = SampledRecord(first).sample();
  remove_sample(reinterpret_cast<LiveSample*>(sample.load_relaxed()));
  sample.store_relaxed(0);
  if (is_guarded(first)) return guard_deallocate(first);
  return_sampled_units(first);
}

constexpr SampleObserver kObserver = {
    {next_allocations, next_bytes}, on_allocate,         on_placed,    on_resized, on_deallocate,
    remove_tracked_sample,          guard_release_freed, guard_misused};

// A misuse is seen by a check of the heap, guarded or not: this adds who did it, and who allocated a block that was
// sampled.
void show_stacks(const void* block) {
  usize frames[kFramesMax];
  const unsigned depth = capture_profile_stack(frames);
  (Message(" at by thread ") << os::thread_id() << ':').write();
  print_stack(frames, depth);
  print_sample_stack(block);
}

void want(u32 what) {
  Sampling mode = Sampling::some;
  if (what == 0) {
    mode = Sampling::off;
  } else if ((what & (kExact | kPassingOn)) != 0 ||
             ((what & kProfiling) != 0 && profile_rate.load_relaxed() > 1.0 / kTrackBelow)) {
    mode = Sampling::every_block;
  }
  if ((what & kExact) != 0) profile_sample_bytes.store_relaxed(1);
  wanted.store_release(what);
  sample_observer.begin();
  has_witness.store_release((what & ~u32{kPassingOn}) != 0 ? 1 : 0);
  set_sampling(mode);
}

void renew_own_sampling() {
  if (Cache* cache = ensure_cache(); cache != nullptr) renew_counting(*cache);
}

void on_toggle_signal(int) {
  const u32 what = wanted.load_acquire();
  want(what ^ kProfiling);
}

FREESTONE_AT_START void start() {
  set_profile_rate(options.prof_sample_bytes);
  u32 what = 0;
  if ((options.prof && options.prof_active) || static_cast<LeakMode>(options.leak) == LeakMode::report)
    what |= kProfiling;
  if (static_cast<LeakMode>(options.leak) == LeakMode::exact) what |= kExact;
  if (options.guard_sample != 0) {
    guard_rate = 1 / static_cast<double>(options.guard_sample);
    what |= kGuarding;
  }
  if (!kChecksEveryCall && operators_pass_on(false)) what |= kPassingOn;
  if (what != 0) want(what);
}

FREESTONE_AT_START void before_fork() {
  profile_before_fork();
  guard_before_fork();
}
FREESTONE_AT_START void after_fork_in_parent() {
  guard_after_fork_in_parent();
  profile_after_fork_in_parent();
}
void after_fork_in_child() {
  guard_after_fork_in_child();
  profile_after_fork_in_child();
}

__attribute__((constructor(102))) void on_load() {
  if (ensure_started() != Mode::active) return;
  if (options.prof) {
    os::catch_signal("prof_signal", options.prof_signal, dump_profile_in_signal);
    os::catch_signal("prof_toggle_signal", options.prof_toggle_signal, on_toggle_signal);
  }
  if ((wanted.load_relaxed() & kGuarding) != 0) guard_install_handler();
}

FREESTONE_AT_START __attribute__((destructor(101))) void on_exit() {
  if (mode() != Mode::active) return;
  if (options.prof && options.prof_final) dump_profile(nullptr);
  if (static_cast<LeakMode>(options.leak) != LeakMode::off) report_leaks_at_exit();
}

}  // namespace

constinit const StartObservers start_observers = start;
constinit const FailureWitness failure_witness = show_stacks;
constinit const SampleObserver* const sample_functions = &kObserver;
constinit const ForkHooks sampling_fork_hooks = {before_fork, after_fork_in_parent, after_fork_in_child};

void start_profile_of(u64 mean_bytes) {
  const u32 before = wanted.load_acquire();
  if ((before & (kProfiling | kExact)) == 0) {
    set_profile_rate(mean_bytes);
    begin_profile();
  }
  if ((before & kProfiling) == 0) want(before | kProfiling);
}

void end_profile() {
  const u32 before = wanted.load_acquire();
  if ((before & kProfiling) != 0) want(before & ~u32{kProfiling});
}

void start_profile() {
  start_profile_of(options.prof_sample_bytes);
  renew_own_sampling();
}

void stop_profile() {
  end_profile();
  renew_own_sampling();
}

void take_slow_paths(bool always) {
  const u32 before = wanted.load_acquire();
  if (((before & kPassingOn) != 0) == always) return;
  want(before ^ kPassingOn);
  renew_own_sampling();
}

bool profile_is_active() { return (wanted.load_acquire() & (kProfiling | kExact)) != 0; }

}  // namespace freestone
