// Room 10, insight: see profile.h.

#include "insight/profile.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <cstring>

#include "config/options.h"
#include "front/heap.h"
#include "front/sampled.h"
#include "insight/guard.h"
#include "insight/leak.h"
#include "insight/profile_math.h"
#include "insight/profile_probes.h"
#include "insight/profile_report.h"
#include "platform/message.h"
#include "platform/os.h"

namespace freestone {

namespace {

constexpr usize kTrackBelow = 64 * kKiB;  // a sampled block apart takes a unit: above this at most a quarter more address space

enum : u32 { kProfiling = 1, kGuarding = 2, kExact = 4 };
Atomic<u32> wanted;            // which of these; acquire/release with the rates
double profile_rate = 0;       // per byte; written once, at start
double guard_rate = 0;
Atomic<u32> dump_pending;      // a signal came while the lock was taken
Atomic<u32> restart_pending;   // the child of a fork starts anew
Atomic<u32> dumps;

FREESTONE_THREAD_LOCAL ThreadRandom random_numbers;
FREESTONE_THREAD_LOCAL bool sampling_now;  // a signal handler that allocates meanwhile is not sampled

ThreadRandom& thread_random() {
  if (!random_numbers.seeded()) random_numbers.seed(os::entropy());
  return random_numbers;
}

double rate_of(u32 what) { return ((what & kProfiling) != 0 ? profile_rate : 0) + ((what & kGuarding) != 0 ? guard_rate : 0); }

u64 distance(double bytes_each) {
  const u32 what = wanted.load_acquire();
  if ((what & kExact) != 0) return 1;
  const double steps = thread_random().exponential() / (bytes_each * rate_of(what));
  return steps < 0x1p60 ? static_cast<u64>(steps) + 1 : u64{1} << 60;
}
u64 next_allocations(usize block_bytes) { return distance(static_cast<double>(block_bytes)); }
i64 next_bytes() { return static_cast<i64>(distance(1)); }

double chance_for(usize bytes, double rate) { return chance_of_event(static_cast<double>(max_of<usize>(bytes, 1)) * rate); }

// The samples that stand for one allocation of `bytes`.
double weight_of(usize bytes) { return (wanted.load_relaxed() & kExact) != 0 ? 1 : 1 / chance_for(bytes, profile_rate); }

LiveSample* add_sample(void* block, usize bytes, bool tracked) {
  usize frames[kFramesMax];
  const unsigned depth = capture_profile_stack(frames);
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  if (tracked) {
    // Freed by a thread that did not see that it was tracked, and given out again.
    if (LiveSample* stale = profile_store.untrack_locked(block); stale != nullptr) profile_store.remove_locked(*stale, now);
  }
  LiveSample* sample = profile_store.add_locked(frames, depth, block, bytes, weight_of(bytes), now);
  if (tracked && sample != nullptr) profile_store.track_locked(*sample);
  FREESTONE_PROBE_3("sample_allocate", block, bytes, depth);
  return sample;
}

void remove_sample(LiveSample* sample) {
  if (sample == nullptr) return;
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  FREESTONE_PROBE_2("sample_free", sample->block, sample->bytes);
  profile_store.remove_locked(*sample, now);
}

// A block in units of its own, at an offset that differs so that sampled blocks do not compete for the same cache sets.
void* allocate_apart(usize bytes, usize alignment) {
  const usize units = bytes_to_units(max_of<usize>(bytes, 1));
  const usize page = 4 * kKiB;
  usize offset = 0;
  if (alignment <= page && bytes < page) offset = round_down(thread_random().next() % (page - bytes), max_of<usize>(alignment, 16));
  const UnitIndex first = take_sampled_units(bytes, units, max_of<usize>(alignment >> kUnitShift, 1), offset);
  if (first == kNoUnit) return nullptr;
  void* block = sampled_block(first);
  if constexpr (kMitigations.zero_on_free) std::memset(block, 0, bytes);  // what is handed out is clear there
  record_of(first).words[2].store_relaxed(address_of(add_sample(block, bytes, false)));
  return block;
}

void* on_allocate(usize bytes, usize alignment, usize counted_bytes, bool* track) {
  const u32 what = wanted.load_acquire();
  if (sampling_now || what == 0) return nullptr;
  if ((what & kExact) != 0) {
    *track = true;
    return nullptr;
  }
  // The allocation is here with the chance of its counted size under both rates together: what it is sampled for is decided so that
  // each purpose has exactly the chance of the requested size under its own rate.
  const double chance = chance_for(counted_bytes, rate_of(what));
  const bool profiled = (what & kProfiling) != 0 && thread_random().unit() * chance <= chance_for(bytes, profile_rate);
  const bool guarded = (what & kGuarding) != 0 && thread_random().unit() * chance <= chance_for(bytes, guard_rate);
  sampling_now = true;
  void* block = nullptr;
  if (guarded) {
    block = guard_allocate(bytes, alignment);
    if (block != nullptr && profiled) record_of(sampled_first_unit(block)).words[2].store_relaxed(address_of(add_sample(block, bytes, false)));
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
  add_sample(block, bytes, true);
  sampling_now = false;
}

void on_resized(void* block, usize bytes) {
  const u32 what = wanted.load_acquire();
  const bool profiled = (what & kExact) != 0 ||
                        ((what & kProfiling) != 0 && thread_random().unit() * chance_for(bytes, rate_of(what)) <= chance_for(bytes, profile_rate));
  if (profiled && !sampling_now) on_placed(block, bytes);
}

void on_deallocate(void* block, UnitIndex first) {
  if (is_guarded(first)) guard_check_free(block, first);
  remove_sample(reinterpret_cast<LiveSample*>(record_of(first).words[2].load_relaxed()));
  record_of(first).words[2].store_relaxed(0);
  if (is_guarded(first)) return guard_deallocate(first);
  return_sampled_units(first);
}

void on_freed(void* block) {
  if (!profile_store.tracks_any()) return;
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  if (LiveSample* sample = profile_store.untrack_locked(block); sample != nullptr) {
    FREESTONE_PROBE_2("sample_free", sample->block, sample->bytes);
    profile_store.remove_locked(*sample, now);
  }
}

constexpr SampleObserver kObserver = {{next_allocations, next_bytes}, on_allocate, on_placed, on_resized, on_deallocate, on_freed, guard_release_freed, guard_misused};

void want(u32 what) {
  Sampling mode = Sampling::some;
  if (what == 0) {
    mode = Sampling::off;
  } else if ((what & kExact) != 0 || ((what & kProfiling) != 0 && options.prof_sample_bytes < kTrackBelow)) {
    mode = Sampling::every_block;
  }
  wanted.store_release(what);
  sample_observer.store_release(&kObserver);
  sampling.store_release(mode);
  sampling_epoch.add_relaxed(1);
}

int dump_locked(const char* given) {
  constexpr usize kBufferBytes = 64 * kKiB;
  char path[kOptionTextBytes + 64];
  char temporary[sizeof path + 4];
  expand_path(given != nullptr ? given : options.prof_file, path, sizeof path);
  expand_path(path, temporary, sizeof path);
  std::strcat(temporary, ".tmp");
  dumps.add_relaxed(1);
  ProfileStore& store = profile_store;
  const usize mark = store.mark_locked();
  auto* buffer = static_cast<char*>(store.scratch_locked(kBufferBytes));
  ProfileReport report;
  int error = ENOMEM;
  if (buffer != nullptr && report.gather(store, static_cast<Unwind>(options.prof_unwind) == Unwind::frame_pointer)) {
    report.sample_bytes = (wanted.load_relaxed() & kExact) != 0 ? 1 : options.prof_sample_bytes;
    const auto format = static_cast<ProfileFormat>(options.prof_format);
    const auto view = static_cast<ProfileView>(options.prof_view);
    const os::File file = os::File::create(temporary);
    error = file.is_open() ? 0 : EIO;
    if (error == 0) {
      Output out(file, buffer, kBufferBytes);
      if (format == ProfileFormat::collapsed) {
        report.find_symbols();
        write_collapsed(report, view, out);
      } else if (format == ProfileFormat::heap_v2) {
        write_heap_v2(report, out);
      } else {
        write_pprof(report, view, out);
      }
      if (!out.flush() || !os::rename_file(temporary, path)) error = EIO;
      if (error != 0) os::remove_file(temporary);
    }
  }
  store.release_scratch_locked(mark);
  if (error != 0) (Message() << "the profile cannot be written to " << path).write();
  return error;
}

void on_dump_signal(int) {
  if (!profile_store.lock.try_lock()) return dump_pending.store_seq(1);
  dump_locked(nullptr);
  profile_store.lock.unlock();
}

void on_toggle_signal(int) {
  const u32 what = wanted.load_acquire();
  want(what ^ kProfiling);
}

void install(u64 number, void (*handler)(int)) {
  if (number == 0) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(static_cast<int>(number), &action, nullptr);
}

__attribute__((section(".text.startup"))) void start() {
  const u64 mean = max_of<u64>(options.prof_sample_bytes, 1);
  profile_rate = 1 / static_cast<double>(mean);
  u32 what = 0;
  if ((options.prof && options.prof_active) || static_cast<LeakMode>(options.leak) == LeakMode::report) what |= kProfiling;
  if (static_cast<LeakMode>(options.leak) == LeakMode::exact) what |= kExact;
  if (options.guard_sample != 0) {
    guard_rate = 1 / static_cast<double>(options.guard_sample);
    what |= kGuarding;
  }
  if (what != 0) want(what);
}

// Registered right after front's handlers, so nothing of the program runs between the two while the lock is held.
FREESTONE_NO_ANALYSIS void before_fork() {
  profile_store.lock.lock();
  guard_before_fork();
}
FREESTONE_NO_ANALYSIS void after_fork_in_parent() {
  guard_after_fork_in_parent();
  profile_store.lock.unlock();
  if (dump_pending.load_relaxed() != 0) ProfileLock taken;
}
void after_fork_in_child() {
  guard_after_fork_in_child();
  profile_store.lock.reset_in_child();
  dump_pending.store_relaxed(0);
  restart_pending.store_relaxed(1);
}

__attribute__((constructor(102))) void on_load() {
  if (ensure_started() != Mode::active) return;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (options.prof) {
    install(options.prof_signal, on_dump_signal);
    install(options.prof_toggle_signal, on_toggle_signal);
  }
  if ((wanted.load_relaxed() & kGuarding) != 0) guard_install_handler();
}

__attribute__((destructor(101))) void on_exit() {
  if (mode() != Mode::active) return;
  if (options.prof && options.prof_final) dump_profile(nullptr);
  if (static_cast<LeakMode>(options.leak) != LeakMode::off) report_leaks_at_exit();
}

}  // namespace

constinit const StartObservers start_observers = start;

FREESTONE_NO_ANALYSIS ProfileLock::ProfileLock() {
  profile_store.lock.lock();
  if (restart_pending.load_relaxed() != 0) {
    restart_pending.store_relaxed(0);
    profile_store.restart_locked(os::nanoseconds());
  }
}

FREESTONE_NO_ANALYSIS ProfileLock::~ProfileLock() {
  for (;;) {
    profile_store.lock.unlock();
    if (dump_pending.load_seq() == 0 || !profile_store.lock.try_lock()) return;
    if (dump_pending.exchange_seq(0) != 0) dump_locked(nullptr);
  }
}

void expand_path(const char* pattern, char* path, usize capacity) {
  usize length = 0;
  const auto put = [&](const char* text, usize bytes) {
    for (usize i = 0; i < bytes && length + 1 < capacity; ++i) path[length++] = text[i];
  };
  for (; *pattern != '\0'; ++pattern) {
    if (pattern[0] == '%' && (pattern[1] == 'p' || pattern[1] == 'n')) {
      const Message number = Message("") << (pattern[1] == 'p' ? os::process_id() : dumps.load_relaxed());
      put(number.data(), number.length());
      ++pattern;
    } else {
      put(pattern, 1);
    }
  }
  path[length] = '\0';
}

unsigned capture_profile_stack(usize* frames) { return capture_stack(frames, kFramesMax, static_cast<Unwind>(options.prof_unwind)); }

void start_profile() {
  want(wanted.load_acquire() | kProfiling);
  if (Cache* cache = ensure_cache(); cache != nullptr) renew_counting(*cache);
}

void stop_profile() {
  want(wanted.load_acquire() & ~u32{kProfiling});
  if (Cache* cache = ensure_cache(); cache != nullptr) renew_counting(*cache);
}

bool profile_is_active() { return (wanted.load_acquire() & (kProfiling | kExact)) != 0; }

int dump_profile(const char* path) {
  ProfileLock lock;
  return dump_locked(path);
}

}  // namespace freestone
