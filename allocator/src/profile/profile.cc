// Room 14, profile: see profile.h.

#include "profile/profile.h"

#include <cerrno>
#include <cstring>

#include "config/options.h"
#include "platform/message.h"
#include "platform/os.h"
#include "platform/own_stack.h"
#include "profile/profile_probes.h"
#include "profile/profile_report.h"
#include "profile/python_names.h"

namespace freestone {

namespace {

Atomic<u32> dump_pending;     // a signal asked for a dump
Atomic<u32> restart_pending;  // the child of a fork starts anew
Atomic<u32> dumps;

// Writes into a file or a MemoryText. Returns 0 or an errno value.
template <typename Target>
int write_locked(Target& target, ProfileFormat format) FREESTONE_REQUIRES(profile_store.lock) {
  constexpr usize kBufferBytes = 64 * kKiB;
  const usize start = profile_store.scratch_start_locked();
  auto* buffer = static_cast<char*>(profile_store.scratch_locked(kBufferBytes));
  ProfileReport report;
  int error = ENOMEM;
  if (buffer != nullptr && report.gather(static_cast<Unwind>(options.prof_unwind) == Unwind::frame_pointer)) {
    const auto view = static_cast<ProfileView>(options.prof_view);
    Output out(target, buffer, kBufferBytes);
    report.sample_bytes = profile_sample_bytes.load_relaxed();
    if (format == ProfileFormat::collapsed) {
      report.find_symbols();
      write_collapsed(report, view, out);
    } else if (format == ProfileFormat::heap_v2) {
      write_heap_v2(report, out);
    } else {
      write_pprof(report, view, out);
    }
    error = out.flush() ? 0 : EIO;
  }
  profile_store.release_scratch_locked(start);
  return error;
}

int dump_locked(const char* given) FREESTONE_REQUIRES(profile_store.lock) {
  char path[kOptionTextBytes + 64];
  char temporary[sizeof path + 4];
  const usize length = expand_profile_path(given != nullptr ? given : options.prof_file, path, sizeof path);
  std::memcpy(temporary, path, length);
  const bool in_place = os::is_device(path);
  std::memcpy(temporary + length, in_place ? "" : ".tmp", in_place ? 1 : 5);
  dumps.add_relaxed(1);
  const os::File file = os::File::create_private(temporary);
  int error = file.is_open() ? write_locked(file, static_cast<ProfileFormat>(options.prof_format)) : EIO;
  if (error == 0 && !in_place && !os::rename_file(temporary, path)) error = EIO;
  if (error != 0 && file.is_open() && !in_place) os::remove_file(temporary);
  if (error != 0) (Message() << "the profile cannot be written to " << path).write();
  return error;
}

}  // namespace

constinit Atomic<u64> profile_sample_bytes{1};

ProfileLock::ProfileLock() {
  profile_store.lock.lock();
  if (restart_pending.load_relaxed() != 0) {
    restart_pending.store_relaxed(0);
    profile_store.restart_locked(os::nanoseconds());
  }
}

// Called after the lock is given back, and after a dump was asked for.
FREESTONE_NO_ANALYSIS static void write_pending_dump() {  // the analysis cannot follow a lock through this loop
  for (;;) {
    order_all();  // either a thread that asks finds the lock free, or who gives it back sees that somebody asked
    if (dump_pending.load_relaxed() == 0 || !profile_store.lock.try_lock()) return;
    if (dump_pending.exchange_acquire(0) != 0) dump_locked(nullptr);
    profile_store.lock.unlock();
  }
}

ProfileLock::~ProfileLock() {
  profile_store.lock.unlock();
  write_pending_dump();
}

// Copies the function of each call while the thread still runs it. Drops a call if memory for its name is out. Returns
// the depth that is left.
static unsigned name_python_calls_locked(const PythonStack& python, usize* frames, unsigned depth)
    FREESTONE_REQUIRES(profile_store.lock) {
  unsigned kept = 0;
  for (unsigned k = 0; k < depth; ++k) {
    const bool call = (frames[k] & kPythonCall) != 0;
    const usize frame = call ? python_frame_locked(python.calls[frames[k] & ~kPythonCall]) : frames[k];
    if (frame != 0) frames[kept++] = frame;
  }
  return kept;
}

LiveSample* add_sample(void* block, usize bytes, double weight, bool tracked) {
  usize frames[kFramesMax];
  PythonStack python;
  python.capture();
  unsigned depth = capture_stack(frames, kFramesMax, static_cast<Unwind>(options.prof_unwind), &python);
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  if (python.call_count != 0) depth = name_python_calls_locked(python, frames, depth);
  if (tracked) {
    // A thread freed this block without seeing that it was tracked, and the heap handed it out again.
    if (LiveSample* stale = profile_store.untrack_locked(block); stale != nullptr)
      profile_store.remove_locked(*stale, now);
  }
  LiveSample* sample = profile_store.add_locked(frames, depth, block, bytes, weight, now);
  if (tracked && sample != nullptr) profile_store.track_locked(*sample);
  FREESTONE_PROBE_3("sample_allocate", block, bytes, usize{depth});
  return sample;
}

static void remove_locked(LiveSample& sample, u64 now) FREESTONE_REQUIRES(profile_store.lock) {
  FREESTONE_PROBE_2("sample_free", sample.block, sample.bytes);
  profile_store.remove_locked(sample, now);
}

void remove_sample(LiveSample* sample) {
  if (sample == nullptr) return;
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  remove_locked(*sample, now);
}

void remove_tracked_sample(void* block) {
  if (!profile_store.tracks_any()) return;
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  if (LiveSample* sample = profile_store.untrack_locked(block); sample != nullptr) remove_locked(*sample, now);
}

usize expand_profile_path(const char* pattern, char* path, usize capacity) {
  const u32 number = dumps.load_relaxed();
  return os::expand_path(pattern, path, capacity, &number);
}

void print_sample_stack(const void* block) {
  if (!profile_store.lock.try_lock()) return;
  const LiveSample* found = nullptr;
  profile_store.for_each_live([&](const LiveSample& sample) {
    if (sample.block == address_of(block)) found = &sample;
  });
  if (found != nullptr) {
    (Message(" allocated by thread ") << found->thread << ':').write();
    print_stack(found->site->frames, found->site->depth);
  }
  profile_store.lock.unlock();
}

void begin_profile() {
  const u64 now = os::nanoseconds();
  ProfileLock lock;
  profile_store.begin_locked(now);
}

unsigned capture_profile_stack(usize* frames) {
  return capture_stack(frames, kFramesMax, static_cast<Unwind>(options.prof_unwind));
}

int dump_profile(const char* path) {
  ProfileLock lock;
  return dump_locked(path);
}

int write_profile(MemoryText& text, ProfileFormat format) {
  ProfileLock lock;
  return write_locked(text, format) == 0 ? 0 : ENOMEM;
}

void dump_profile_in_signal(int) {
  dump_pending.store_relaxed(1);
  os::run_on_own_stack(write_pending_dump);
}

FREESTONE_AT_START void profile_before_fork() { profile_store.lock.hold_for_fork(); }
FREESTONE_AT_START void profile_after_fork_in_parent() {
  profile_store.lock.release_after_fork();
  write_pending_dump();
}
void profile_after_fork_in_child() {
  if (profile_store.lock.seize_in_child()) {
    profile_store.repair_locked();
    profile_store.lock.unlock();
  }
  dump_pending.store_relaxed(0);
  restart_pending.store_relaxed(1);
}

}  // namespace freestone
