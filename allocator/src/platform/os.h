// Room 4, platform: raw system calls, because interposed or sanitised libc wrappers must not see the allocator's own
// mappings, and because errno belongs to the program. Pages of blocks leave by the calls of leaving.h.
//
// Contract: any thread may call every function at any time, even before libc is initialised and inside fork handlers.
// None allocates, none touches errno.
#pragma once

#include "base/compiler.h"
#include "base/units.h"

namespace freestone::os {

struct Failure {
  int error = 0;  // an errno value; 0 = success
  explicit operator bool() const { return error != 0; }
};

// System calls made through this door since the start.
enum class CallKind : unsigned { map, unmap, protect, advise, remap, wait, other };
inline constexpr unsigned kCallKinds = 7;
u64 calls(CallKind kind);

// The page size of this kernel: 4, 16 or 64 KiB. Read once from the auxiliary vector.
usize page_bytes();

// Address space without memory and without access. `hint` may be 0. Null on refusal.
void* reserve(usize bytes, usize hint);
// Zeroed memory, ready to use. Null on refusal.
void* map(usize bytes);
// The same at exactly this place. EEXIST if a part of it is in use; any other error means that the kernel refused.
// `promised`: it refuses, as map does, what it could not have memory for.
Failure map_at(void* address, usize bytes, bool promised = false);
// In the child of a fork, for a map_at that another thread was in, whether it had taken place or not: makes sure of it,
// or undoes it. A mapping of somebody else, which made it fail, stays. False: it is there, or the kernel refused.
bool finish_map_at(void* address, usize bytes);
void undo_map_at(void* address, usize bytes);
// Grants access to reserved memory. Fails under strict overcommit, at a data limit, or when mappings run out.
Failure commit(void* address, usize bytes);
// Withdraws the right to write.
Failure protect_read_only(void* address, usize bytes);
// Withdraws access; the memory stays.
Failure protect_none(void* address, usize bytes);
// Gives addresses back. On failure (mapping limit) the range stays mapped.
Failure unmap(void* address, usize bytes);
// Makes the child of a fork find zeros there. Fails on kernels before 4.14.
Failure wipe_on_fork(void* address, usize bytes);
// Makes the memory exist at once, as touching every page would. A failure does no harm.
Failure populate(void* address, usize bytes);
// Moves a mapping to a place that the kernel chooses. Null on refusal, which leaves the old mapping untouched.
void* remap(void* address, usize old_bytes, usize new_bytes);
// Makes a range fault on access, without splitting its mapping (Linux 6.13 or later). Fails elsewhere, and where any
// part of it is locked; then no part faults, but its contents may be gone.
Failure guard_install(void* address, usize bytes);
// What is no guard among it may lose its contents.
Failure guard_remove(void* address, usize bytes);
enum class HugePages { refuse, request };
void advise_huge_pages(void* address, usize bytes, HugePages wish);
// Whether the system gives huge pages only where they are requested.
bool gives_huge_pages_on_request();

// Bytes of the process's resident set, from /proc. 0 when /proc is absent.
usize resident_bytes();
usize peak_resident_bytes();
// Memory of the machine.
usize physical_bytes();
// Copies the name that the program was started by, without its folder, at most 15 characters. Returns its length.
usize program_name(char* buffer, usize capacity);

// 64 bits that nobody can guess: getrandom, else the kernel's start-up bytes mixed with the clock.
u64 entropy();
// At start: finds the clock that the kernel maps into the process. Before that, and where there is none, each look at
// a clock is a system call.
void find_clock();
// A coarse monotonic clock (one tick is 1 to 4 ms); about 10 instructions.
u64 coarse_milliseconds();
// What RLIMIT_DATA and RLIMIT_AS allow; the highest number means no limit.
usize data_limit_bytes();
usize address_limit_bytes();
unsigned cpu_count();
unsigned thread_id();
unsigned process_id();
// True if the program runs with more rights than its caller. Then the environment must not be trusted.
bool is_privileged();
// A value of the auxiliary vector; 0 if it has none of this type (AT_...).
usize kernel_value(usize type);
// The environment that the program was started with. Works before libc is initialised. Null if unknown.
const char* environment_value(const char* name);

// Whether an emulator of Linux stands in for the kernel.
bool is_emulated();
// The file of the first loaded object in front of this library that defines a name; "" is the program itself. Null if
// there is none, or, if `also_behind`, if none behind this library defines it. Only the shared library for glibc has it
// (late_libc.cc); elsewhere its address is null.
FREESTONE_HIDDEN const char* object_ahead(const char* name, bool also_behind = false) __attribute__((weak));
// libc's own function, whoever stands in for it. Weak, as above.
FREESTONE_HIDDEN void* function_of_libc(const char* name) __attribute__((weak));
// Whether this address, by which everybody knows a function, is only where a program of fixed place calls it. Weak, as
// above.
FREESTONE_HIDDEN bool is_entry_of_program(const char* name, const void* address) __attribute__((weak));

// Calls visit(context, tid) for each thread of this process. False if there may be more.
bool for_each_thread(void (*visit)(void* context, unsigned tid), void* context);
Failure signal_thread(unsigned tid, int signal);
// Whether there is no such thread. A kernel that refuses to say is taken for no.
bool thread_is_gone(unsigned tid);
// Whether it is gone, or a zombie, which takes signals without handling them.
bool thread_has_ended(unsigned tid);
void sleep_microseconds(unsigned microseconds);
// Names the calling thread.
void name_thread(const char* name);
// Ends the process at once, without any handler.
[[noreturn]] void exit_now(int status);

// A monotonic clock.
u64 nanoseconds();
// Since 1970.
u64 wall_nanoseconds();

// At most so long.
void futex_wait_for(void* word, u32 expected, u64 milliseconds);
void futex_wake_one(void* word);

}  // namespace freestone::os
