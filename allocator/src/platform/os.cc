// Room 4, platform: system calls for Linux on x86-64 and aarch64.

#include "platform/os.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"
#include "base/digits.h"
#include "base/places.h"
#include "platform/system_call.h"

namespace freestone::os {
namespace {

// Linux values that older headers, and those of other C libraries, lack.
constexpr usize kFutexWait = 128;  // FUTEX_WAIT_PRIVATE
constexpr usize kFutexWake = 129;
constexpr int kAdvisePopulateWrite = 23;  // Linux 5.14
constexpr int kAdviseGuardInstall = 102;
constexpr int kAdviseGuardRemove = 103;
constexpr int kAdviseNothing = 0x7fffffff;  // no kernel has it

Atomic<u64> calls_made[kCallKinds];  // relaxed: statistics

CallKind kind_of(long number) {
  switch (number) {
    case SYS_mmap: return CallKind::map;
    case SYS_munmap: return CallKind::unmap;
    case SYS_mprotect: return CallKind::protect;
    case SYS_madvise: return CallKind::advise;
    case SYS_mremap: return CallKind::remap;
    case SYS_futex: return CallKind::wait;
    default: return CallKind::other;
  }
}

Failure failure_of(long result) { return Failure{is_error(result) ? static_cast<int>(-result) : 0}; }

// With MAP_NORESERVE, neighbours that were protected and opened again are one mapping. A sandbox may refuse the flag.
long map_call(usize bytes, usize hint, int protection, int extra_flags) {
  const long result = invoke(SYS_mmap, hint, bytes, static_cast<usize>(protection),
                             static_cast<usize>(MAP_PRIVATE | MAP_ANONYMOUS | extra_flags), ~usize{0}, 0);
  if (!is_error(result) || result == -ENOMEM || (extra_flags & MAP_NORESERVE) == 0) return result;
  return map_call(bytes, hint, protection, extra_flags & ~MAP_NORESERVE);
}

void* map_with(usize bytes, usize hint, int protection, int extra_flags) {
  const long result = map_call(bytes, hint, protection, extra_flags);
  return is_error(result) ? nullptr : reinterpret_cast<void*>(result);
}

Failure advise(void* address, usize bytes, int advice) {
  return failure_of(invoke(SYS_madvise, address_of(address), bytes, static_cast<usize>(advice)));
}

// Gives advice that older kernels lack.
Failure advise_lately(void* address, usize bytes, int advice) {
  return is_emulated() ? Failure{EINVAL} : advise(address, bytes, advice);
}

Failure protect(void* address, usize bytes, int protection) {
  return failure_of(invoke(SYS_mprotect, address_of(address), bytes, static_cast<usize>(protection)));
}

// A mapping by map_at that another thread of the parent was making is there as a whole, and nothing lies behind it.
// Who refuses the advice tells nothing by it; then what can be mapped was free.
FREESTONE_SLOW bool seems_ours(void* address, usize bytes) {
  const usize page = page_bytes();
  const auto error_at = [&](usize start) {
    const Failure failure = map_at(reinterpret_cast<void*>(start), page);
    if (!failure) unmap(reinterpret_cast<void*>(start), page);
    return failure.error;
  };
  const usize end = address_of(address) + bytes;
  usize start = advise(address, bytes, MADV_NORMAL) ? address_of(address) : end;
  while (start != end && error_at(start) == EEXIST) start += page;
  if (start != end) return false;
  return advise(reinterpret_cast<void*>(end), page, MADV_NORMAL).error == ENOMEM || error_at(end) == 0;
}

}  // namespace

// qemu reports success for advice that it does not know.
bool is_emulated() {
  enum : u32 { kUnknown, kKernel, kEmulator };
  static Atomic<u32> found;  // relaxed: every thread finds the same
  if (found.load_relaxed() == kUnknown) found.store_relaxed(advise(nullptr, 0, kAdviseNothing) ? kKernel : kEmulator);
  return found.load_relaxed() == kEmulator;
}

void count_call(long number) { calls_made[static_cast<unsigned>(kind_of(number))].add_relaxed(1); }
u64 calls(CallKind kind) { return calls_made[static_cast<unsigned>(kind)].load_relaxed(); }

usize page_bytes() {
  static Atomic<usize> cached;  // relaxed: all threads compute the same value
  usize bytes = cached.load_relaxed();
  if (FREESTONE_UNLIKELY(bytes == 0)) {
    bytes = kernel_value(AT_PAGESZ);
    if (bytes == 0) bytes = 4 * kKiB;
    cached.store_relaxed(bytes);
  }
  return bytes;
}

void* reserve(usize bytes, usize hint) { return map_with(bytes, hint, PROT_NONE, MAP_NORESERVE); }
void* map(usize bytes) { return map_with(bytes, 0, PROT_READ | PROT_WRITE, 0); }

// By a hint, which the kernel follows if the place is free: filters of system calls know MAP_FIXED_NOREPLACE as little
// as older kernels do.
Failure map_at(void* address, usize bytes, bool promised) {
  const int flags = promised ? 0 : MAP_NORESERVE;
  const long result = map_call(bytes, address_of(address), PROT_READ | PROT_WRITE, flags);
  if (is_error(result)) return failure_of(result);
  if (static_cast<usize>(result) == address_of(address)) return {};
  unmap(reinterpret_cast<void*>(result), bytes);
  return {EEXIST};
}

FREESTONE_SLOW bool finish_map_at(void* address, usize bytes) {
  return !map_at(address, bytes) || seems_ours(address, bytes);
}
FREESTONE_SLOW void undo_map_at(void* address, usize bytes) {
  if (!map_at(address, bytes) || seems_ours(address, bytes)) unmap(address, bytes);
}

Failure commit(void* address, usize bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }
Failure protect_read_only(void* address, usize bytes) { return protect(address, bytes, PROT_READ); }
Failure protect_none(void* address, usize bytes) { return protect(address, bytes, PROT_NONE); }
Failure unmap(void* address, usize bytes) { return failure_of(invoke(SYS_munmap, address_of(address), bytes)); }
Failure wipe_on_fork(void* address, usize bytes) { return advise(address, bytes, MADV_WIPEONFORK); }
Failure populate(void* address, usize bytes) { return advise_lately(address, bytes, kAdvisePopulateWrite); }
Failure guard_install(void* address, usize bytes) {
  const Failure failure = advise_lately(address, bytes, kAdviseGuardInstall);
  if (!failure) return {};
  // It may have stopped halfway, at locked memory. Who refuses both in the same way has done nothing.
  const Failure kept = advise_lately(address, bytes, kAdviseGuardRemove);
  if (kept && kept.error != failure.error) guard_remove(address, bytes);
  return failure;
}
Failure guard_remove(void* address, usize bytes) {
  const Failure failure = advise_lately(address, bytes, kAdviseGuardRemove);
  if (!failure) return {};
  // A filter of system calls that came after the guards may refuse the advice. Fresh memory does as well.
  return failure_of(map_call(bytes, address_of(address), PROT_READ | PROT_WRITE, MAP_NORESERVE | MAP_FIXED));
}

void* remap(void* address, usize old_bytes, usize new_bytes) {
  const long result = invoke(SYS_mremap, address_of(address), old_bytes, new_bytes, MREMAP_MAYMOVE, 0);
  return is_error(result) ? nullptr : reinterpret_cast<void*>(result);
}

void advise_huge_pages(void* address, usize bytes, HugePages wish) {
  advise(address, bytes, wish == HugePages::request ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

usize physical_bytes() {
  struct sysinfo info{};
  invoke(SYS_sysinfo, address_of(&info));
  return static_cast<usize>(info.totalram) * info.mem_unit;
}

u64 entropy() {
  u64 value = 0;
  constexpr usize kNonBlocking = 1;
  if (invoke(SYS_getrandom, address_of(&value), sizeof value, kNonBlocking) == sizeof value) return value;
  if (const auto* start_up = reinterpret_cast<const char*>(kernel_value(AT_RANDOM)))
    std::memcpy(&value, start_up, sizeof value);
  return mix_bits(value ^ nanoseconds() ^ (u64{thread_id()} << 32));
}

static usize limit_of(unsigned resource) {
  rlimit limit{};  // 64 bits, as the kernel's
  if (is_error(invoke(SYS_prlimit64, 0, resource, 0, address_of(&limit)))) return ~usize{0};
  return limit.rlim_cur;
}

usize data_limit_bytes() { return limit_of(RLIMIT_DATA); }
usize address_limit_bytes() { return limit_of(RLIMIT_AS); }

unsigned cpu_count() {
  u64 mask[64] = {};  // 4096 CPUs
  const long bytes = invoke(SYS_sched_getaffinity, 0, sizeof mask, address_of(mask));
  unsigned count = 0;
  for (long i = 0; i * 8 < bytes; ++i) count += count_bits(mask[i]);
  return max_of(count, 1U);
}

unsigned thread_id() { return static_cast<unsigned>(invoke(SYS_gettid)); }
unsigned process_id() { return static_cast<unsigned>(invoke(SYS_getpid)); }
bool is_privileged() { return kernel_value(AT_SECURE) != 0; }

Failure signal_thread(unsigned tid, int signal) {
  return failure_of(invoke(SYS_tgkill, process_id(), tid, static_cast<usize>(signal)));
}
bool thread_is_gone(unsigned tid) { return signal_thread(tid, 0).error == ESRCH; }

void name_thread(const char* name) { invoke(SYS_prctl, PR_SET_NAME, address_of(name)); }

void sleep_microseconds(unsigned microseconds) {
  const timespec time{microseconds / 1'000'000, static_cast<long>(microseconds % 1'000'000) * 1000};
  invoke(SYS_nanosleep, address_of(&time));
}

void exit_now(int status) {
  for (;;) invoke(SYS_exit_group, static_cast<usize>(status));
}

void futex_wait_for(void* word, u32 expected, u64 milliseconds) {
  const timespec limit{static_cast<time_t>(milliseconds / 1000), static_cast<long>(milliseconds % 1000) * 1'000'000};
  invoke(SYS_futex, address_of(word), kFutexWait, expected, address_of(&limit));
}

void futex_wake_one(void* word) { invoke(SYS_futex, address_of(word), kFutexWake, 1); }

}  // namespace freestone::os

constinit freestone::Places freestone::call_places = {freestone::os::calls_made};
