// Room 4, platform: see leaving.h.

#include "platform/leaving.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>

#include "base/bits.h"
#include "config/options.h"
#include "platform/system_call.h"

namespace freestone::os {

FREESTONE_THREAD_LOCAL Keeping keeping;
constinit Atomic<u8> background_purges;

namespace {

Atomic<u32> stand_in_came_back;  // relaxed: a thread that sees it late asks once more
Atomic<u32> monitors;            // that a thread which never purges may serve; relaxed: said before it serves any

const PagesWatcher* watcher() { return sealed_page.callbacks.watcher.load_acquire(); }

// Whether a function begins with its system call, as libc's does if nobody has changed its code.
template <typename Function>
bool is_bare(Function* function, long number) {
  if (FREESTONE_SANITIZED) return true;
  const auto* at = reinterpret_cast<const char*>(function);
  u32 first;
  __builtin_memcpy(&first, at, sizeof first);
#if defined(__x86_64__)
  constexpr u32 kLandingPad = 0xfa1e0ff3;  // endbr64
  const u64 wanted = u64{0x050f} << 40 | static_cast<u64>(number) << 8 | 0xb8, mask = low_mask(56);  // mov, syscall
#else
  constexpr u32 kLandingPad = 0xd503245f;  // bti c
  const u64 wanted = u64{0xd4000001} << 32 | static_cast<u64>(number) << 5 | 0xd2800008, mask = ~u64{0};  // mov, svc
#endif
  u64 code;
  __builtin_memcpy(&code, at + (first == kLandingPad ? sizeof first : 0), sizeof code);
  return (code & mask) == wanted;
}

long outcome_of(int result) { return result == -1 ? -errno : result; }
long outcome_of(void* result) { return result == MAP_FAILED ? -errno : reinterpret_cast<long>(result); }

// `stand_in`: whom the loader or the linker found by the name.
template <typename Function, typename... Arguments>
long leave(long number, const char* name, Function* stand_in, void* address, usize bytes, Arguments... more) {
  const PagesWatcher* const told = watcher();
  Function* asked = is_bare(stand_in, number) ? nullptr : stand_in;
  const auto call = [&] { return invoke(number, address_of(address), bytes, static_cast<usize>(more)...); };
  if (FREESTONE_LIKELY(asked == nullptr && told == nullptr)) return call();
  const int errno_before = errno;
  if (told != nullptr) {
    watch_hooks.begin();
    told->tell(told->context, address, bytes);
    watch_hooks.end();
  }
  if (asked != nullptr && stand_in_came_back.load_relaxed() != 0)
    asked = function_of_libc != nullptr ? reinterpret_cast<Function*>(function_of_libc(name)) : nullptr;
  watch_hooks.begin();
  if (asked != nullptr) count_call(number);
  const long outcome = asked != nullptr ? outcome_of(asked(address, bytes, more...)) : call();
  if (watch_hooks.end()) stand_in_came_back.store_relaxed(1);
  errno = errno_before;
  return outcome;
}

Failure failure_of(long outcome) { return {is_error(outcome) ? static_cast<int>(-outcome) : 0}; }

}  // namespace

Failure purge(void* address, usize bytes) {
  return failure_of(leave(SYS_madvise, "madvise", &::madvise, address, bytes, MADV_DONTNEED));
}

Failure unmap_block(void* address, usize bytes) {
  return failure_of(leave(SYS_munmap, "munmap", &::munmap, address, bytes));
}

void* remap_block(void* address, usize old_bytes, usize new_bytes) {
  const long outcome = leave(SYS_mremap, "mremap", &::mremap, address, old_bytes, new_bytes, int{MREMAP_MAYMOVE});
  return is_error(outcome) ? nullptr : reinterpret_cast<void*>(outcome);
}

void announce_guard(void* address, usize bytes) {
  // A monitor of userfaultfd would not learn of it from the kernel.
  const bool may_watch = watcher() != nullptr || monitors.load_relaxed() != 0;
  if (FREESTONE_UNLIKELY(may_watch || !is_bare(&::madvise, SYS_madvise))) purge(address, bytes);
}

void set_never_purges(bool never) {
  if (never) monitors.store_relaxed(1);
  keeping.never_purges = never;
}

}  // namespace freestone::os
