// Room 4, platform: the only door to the kernel. Raw system calls, because an interposed or sanitised libc wrapper must
// not see the allocator's own mappings and because errno belongs to the program.
//
// Contract: every function may be called from any thread at any time, also before libc is initialised and inside
// fork handlers; none allocates, none touches errno.
#pragma once

#include "base/units.h"

namespace freestone::os {

struct Failure {
  int error = 0;  // an errno value; 0 = success
  explicit operator bool() const { return error != 0; }
};

// System calls made through this door since the start.
enum class CallKind : unsigned { map, unmap, protect, advise, measure, remap, wait, other };
inline constexpr unsigned kCallKinds = 8;
u64 calls(CallKind kind);

// Bytes of a page of this kernel: 4, 16 or 64 KiB. Read once from the auxiliary vector.
usize page_bytes();

// Address space without memory and without access. `hint` may be 0. Null on refusal.
void* reserve(usize bytes, usize hint);
// Zeroed memory, ready to use. Null on refusal.
void* map(usize bytes);
// The same at exactly this place. EEXIST when a part of it is in use; any other error is the kernel's refusal.
Failure map_at(void* address, usize bytes);
// Grants access to reserved memory. Fails under strict overcommit, data limits or when mappings run out.
Failure commit(void* address, usize bytes);
// Withdraws access; the memory stays.
Failure protect_none(void* address, usize bytes);
// Gives addresses back. On failure (mapping limit) the range stays mapped.
Failure unmap(void* address, usize bytes);
// Gives the memory back, keeps the range: the next read sees zeros. On failure nothing is known to be zero.
Failure purge(void* address, usize bytes);
// The child of a fork finds zeros there. Fails on kernels before 4.14.
Failure wipe_on_fork(void* address, usize bytes);
// Makes the memory exist at once, as touching every page would. Nothing is lost on failure.
Failure populate(void* address, usize bytes);
// Whether each page of a range is in memory, one byte per page. A page that is not may still have contents, swapped
// out.
Failure resident_pages(void* address, usize bytes, u8* present);
// Moves a mapping, letting the kernel choose the place. Null on refusal, the old mapping is then untouched.
void* remap(void* address, usize old_bytes, usize new_bytes);
// Moves the memory of a range; the range stays, without memory. On failure the target may be unmapped.
Failure move_memory(void* from, void* to, usize bytes);
// Makes a range fault on access without a mapping of its own (kernel >= 6.13). Fails elsewhere.
Failure guard_install(void* address, usize bytes);
Failure guard_remove(void* address, usize bytes);
enum class HugePages { refuse, request };
void advise_huge_pages(void* address, usize bytes, HugePages wish);
// Whether the system's mode is to give them where they are requested, and nowhere else.
bool gives_huge_pages_on_request();

// Bytes of the process's resident set, from /proc/self. 0 when /proc is absent.
usize resident_bytes();
usize peak_resident_bytes();
// Memory of the machine.
usize physical_bytes();
// The program's name as the kernel has it, at most 15 characters; returns its length.
usize program_name(char* buffer, usize capacity);

// 64 bits nobody can guess: getrandom, else the kernel's start-up bytes mixed with the clock.
u64 entropy();
// A coarse monotonic clock (one tick is 1 to 4 ms); about 10 instructions, no system call.
u64 coarse_milliseconds();
// What RLIMIT_DATA and RLIMIT_AS allow; the highest number without a limit.
usize data_limit_bytes();
usize address_limit_bytes();
unsigned cpu_count();
unsigned thread_id();
unsigned process_id();
// True when the program runs with more rights than its caller: the environment is then not to be trusted.
bool is_privileged();
// The environment block as the program was started with; works before libc is initialised. Null if unknown.
const char* environment_value(const char* name);

// The threads of this process: calls visit(context, tid) for each.
void for_each_thread(void (*visit)(void* context, unsigned tid), void* context);
// False when the thread is gone.
bool signal_thread(unsigned tid, int signal);
void sleep_microseconds(unsigned microseconds);
// Ends the process at once, without any handler.
[[noreturn]] void exit_now(int status);

// A monotonic clock; no system call where the kernel maps its clock.
u64 nanoseconds();
// Since 1970.
u64 wall_nanoseconds();

void futex_wait(void* word, u32 expected);
// The same, at most so long.
void futex_wait_for(void* word, u32 expected, u64 milliseconds);
void futex_wake_one(void* word);

}  // namespace freestone::os
