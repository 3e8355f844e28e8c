// Room 4, platform: system calls for Linux on x86-64 and aarch64.

#include "platform/os.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/atomic.h"
#include "base/bits.h"
#include "base/compiler.h"

extern char** environ;
extern "C" __attribute__((weak)) void* __libc_stack_end;

namespace freestone::os {
namespace {

// Linux values that older headers lack.
constexpr int kAdvisePopulateWrite = 23;  // Linux 5.14
constexpr int kAdviseGuardInstall = 102;
constexpr int kAdviseGuardRemove = 103;
constexpr int kMapFixedNoReplace = 0x100000;  // Linux 4.17; before, the address is a hint

Atomic<u64> calls_made[kCallKinds];  // relaxed: statistics

CallKind kind_of(long number) {
  switch (number) {
    case SYS_mmap: return CallKind::map;
    case SYS_munmap: return CallKind::unmap;
    case SYS_mprotect: return CallKind::protect;
    case SYS_madvise: return CallKind::advise;
    case SYS_mincore: return CallKind::measure;
    case SYS_mremap: return CallKind::remap;
    case SYS_futex: return CallKind::wait;
    default: return CallKind::other;
  }
}

long invoke(long number, usize a = 0, usize b = 0, usize c = 0, usize d = 0, usize e = 0, usize f = 0) {
  calls_made[static_cast<unsigned>(kind_of(number))].add_relaxed(1);
#if defined(__x86_64__)
  long result;
  register usize r10 asm("r10") = d;
  register usize r8 asm("r8") = e;
  register usize r9 asm("r9") = f;
  asm volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long x8 asm("x8") = number;
  register usize x0 asm("x0") = a;
  register usize x1 asm("x1") = b;
  register usize x2 asm("x2") = c;
  register usize x3 asm("x3") = d;
  register usize x4 asm("x4") = e;
  register usize x5 asm("x5") = f;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return static_cast<long>(x0);
#else
#error "Freestone runs on Linux x86-64 and aarch64"
#endif
}

bool is_error(long result) { return result < 0 && result > -4096; }
Failure failure_of(long result) { return Failure{is_error(result) ? static_cast<int>(-result) : 0}; }

long map_call(usize bytes, usize hint, int protection, int extra_flags) {
  return invoke(SYS_mmap, hint, bytes, static_cast<usize>(protection), static_cast<usize>(MAP_PRIVATE | MAP_ANONYMOUS | extra_flags), ~usize{0}, 0);
}

void* map_with(usize bytes, usize hint, int protection, int extra_flags) {
  const long result = map_call(bytes, hint, protection, extra_flags);
  return is_error(result) ? nullptr : reinterpret_cast<void*>(result);
}

Failure advise(void* address, usize bytes, int advice) {
  return failure_of(invoke(SYS_madvise, address_of(address), bytes, static_cast<usize>(advice)));
}

Failure protect(void* address, usize bytes, int protection) {
  return failure_of(invoke(SYS_mprotect, address_of(address), bytes, static_cast<usize>(protection)));
}

}  // namespace

u64 calls(CallKind kind) { return calls_made[static_cast<unsigned>(kind)].load_relaxed(); }

usize page_bytes() {
  static Atomic<usize> cached;  // relaxed: every thread computes the same value
  usize bytes = cached.load_relaxed();
  if (FREESTONE_UNLIKELY(bytes == 0)) {
    bytes = getauxval(AT_PAGESZ);
    if (bytes == 0) bytes = 4 * kKiB;
    cached.store_relaxed(bytes);
  }
  return bytes;
}

void* reserve(usize bytes, usize hint) { return map_with(bytes, hint, PROT_NONE, MAP_NORESERVE); }
void* map(usize bytes) { return map_with(bytes, 0, PROT_READ | PROT_WRITE, 0); }

Failure map_at(void* address, usize bytes) {
  const long result = map_call(bytes, address_of(address), PROT_READ | PROT_WRITE, MAP_NORESERVE | kMapFixedNoReplace);
  if (is_error(result)) return failure_of(result);
  if (static_cast<usize>(result) == address_of(address)) return {};
  unmap(reinterpret_cast<void*>(result), bytes);
  return {EEXIST};
}

Failure commit(void* address, usize bytes) { return protect(address, bytes, PROT_READ | PROT_WRITE); }
Failure make_readable(void* address, usize bytes) { return protect(address, bytes, PROT_READ); }
Failure protect_none(void* address, usize bytes) { return protect(address, bytes, PROT_NONE); }
Failure unmap(void* address, usize bytes) { return failure_of(invoke(SYS_munmap, address_of(address), bytes)); }
Failure purge(void* address, usize bytes) { return advise(address, bytes, MADV_DONTNEED); }
Failure wipe_on_fork(void* address, usize bytes) { return advise(address, bytes, MADV_WIPEONFORK); }
Failure populate(void* address, usize bytes) { return advise(address, bytes, kAdvisePopulateWrite); }
Failure guard_install(void* address, usize bytes) { return advise(address, bytes, kAdviseGuardInstall); }
Failure guard_remove(void* address, usize bytes) { return advise(address, bytes, kAdviseGuardRemove); }

Failure resident_pages(void* address, usize bytes, u8* present) {
  return failure_of(invoke(SYS_mincore, address_of(address), bytes, address_of(present)));
}

void* remap(void* address, usize old_bytes, usize new_bytes) {
  const long result = invoke(SYS_mremap, address_of(address), old_bytes, new_bytes, MREMAP_MAYMOVE, 0);
  return is_error(result) ? nullptr : reinterpret_cast<void*>(result);
}

void advise_huge_pages(void* address, usize bytes, HugePages wish) {
  advise(address, bytes, wish == HugePages::request ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
}

usize read_file(const char* path, char* buffer, usize capacity) {
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path), O_RDONLY | O_CLOEXEC);
  if (is_error(file)) return 0;
  usize length = 0;
  while (length < capacity) {
    const long got = invoke(SYS_read, static_cast<usize>(file), address_of(buffer) + length, capacity - length);
    if (got == -EINTR) continue;
    if (got <= 0) break;
    length += static_cast<usize>(got);
  }
  invoke(SYS_close, static_cast<usize>(file));
  return length;
}

usize resident_bytes() {
  char text[128];
  const usize length = read_file("/proc/self/statm", text, sizeof text);
  usize field = 0;
  usize pages = 0;
  for (usize i = 0; i < length && field < 2; ++i) {
    if (text[i] == ' ') {
      ++field;
    } else if (field == 1) {
      pages = pages * 10 + static_cast<usize>(text[i] - '0');
    }
  }
  return pages * page_bytes();
}

usize peak_resident_bytes() {
  // Not getrusage: its maximum is that of whatever the process ran before exec.
  char text[2048];
  const usize length = read_file("/proc/self/status", text, sizeof text - 1);
  text[length] = '\0';
  const char* line = std::strstr(text, "VmHWM:");
  if (line == nullptr) return 0;
  usize kibibytes = 0;
  for (line += 6; *line == ' ' || *line == '\t'; ++line) {
  }
  for (; *line >= '0' && *line <= '9'; ++line) kibibytes = kibibytes * 10 + static_cast<usize>(*line - '0');
  return kibibytes * kKiB;
}

usize physical_bytes() {
  struct sysinfo info {};
  invoke(SYS_sysinfo, address_of(&info));
  return static_cast<usize>(info.totalram) * info.mem_unit;
}

usize program_name(char* buffer, usize capacity) {
  usize length = read_file("/proc/self/comm", buffer, capacity);
  while (length > 0 && buffer[length - 1] == '\n') --length;
  return length;
}

int create_file(const char* path) {
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  return is_error(file) ? -1 : static_cast<int>(file);
}

bool write_all(int file, const char* text, usize length) {
  while (length > 0) {
    const long done = invoke(SYS_write, static_cast<usize>(file), address_of(text), length);
    if (done == -EINTR) continue;
    if (done <= 0) return false;
    text += done;
    length -= static_cast<usize>(done);
  }
  return true;
}

void close_file(int file) { invoke(SYS_close, static_cast<usize>(file)); }

bool rename_file(const char* from, const char* to) {
  const auto here = static_cast<usize>(AT_FDCWD);
  return invoke(SYS_renameat2, here, address_of(from), here, address_of(to), 0) == 0;
}

bool is_device(const char* path) {
  struct stat status = {};
  const auto here = static_cast<usize>(AT_FDCWD);
  return !is_error(invoke(SYS_newfstatat, here, address_of(path), address_of(&status), AT_SYMLINK_NOFOLLOW)) && S_ISCHR(status.st_mode);
}

void remove_file(const char* path) { invoke(SYS_unlinkat, static_cast<usize>(AT_FDCWD), address_of(path), 0); }

void* map_shared_file(const char* path, usize bytes) {
  remove_file(path);  // of an ended process that had our number
  const long file = invoke(SYS_openat, static_cast<usize>(AT_FDCWD), address_of(path), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (is_error(file)) return nullptr;
  long result = invoke(SYS_ftruncate, static_cast<usize>(file), bytes);
  if (!is_error(result)) result = invoke(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<usize>(file), 0);
  close_file(static_cast<int>(file));
  if (!is_error(result)) return reinterpret_cast<void*>(result);
  remove_file(path);
  return nullptr;
}

namespace {

struct FileIdentity {
  u64 device = 0;
  u64 inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
int kept_stderr = -1;
FileIdentity kept_identity;

bool identify(int file, FileIdentity& identity) {
  struct stat status = {};  // written by the kernel: sanitizers and some compilers do not see that
  const usize at = static_cast<usize>(file);
  if (is_error(invoke(SYS_newfstatat, at, address_of(""), address_of(&status), AT_EMPTY_PATH))) return false;
  identity = {status.st_dev, status.st_ino};
  return true;
}

}  // namespace

void keep_stderr() {
  constexpr usize kLowest[] = {1000, 200, 10};  // what the limit of open files allows
  if (kept_stderr >= 0 || !identify(STDERR_FILENO, kept_identity)) return;
  for (const usize lowest : kLowest) {
    const long file = invoke(SYS_fcntl, STDERR_FILENO, F_DUPFD_CLOEXEC, lowest);
    if (is_error(file)) continue;
    kept_stderr = static_cast<int>(file);
    return;
  }
}

int stderr_file() {
  FileIdentity now;
  const bool usable = kept_stderr >= 0 && !identify(STDERR_FILENO, now) && identify(kept_stderr, now) && now == kept_identity;
  return usable ? kept_stderr : STDERR_FILENO;
}

void write_stderr(const char* text, usize length) { write_all(stderr_file(), text, length); }

u64 entropy() {
  u64 value = 0;
  constexpr usize kNonBlocking = 1;
  if (invoke(SYS_getrandom, address_of(&value), sizeof value, kNonBlocking) == sizeof value) return value;
  if (const auto* start_up = reinterpret_cast<const char*>(getauxval(AT_RANDOM))) std::memcpy(&value, start_up, sizeof value);
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return mix_bits(value ^ static_cast<u64>(now.tv_nsec) ^ (u64{thread_id()} << 32));
}

u64 coarse_milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<u64>(now.tv_sec) * 1000 + static_cast<u64>(now.tv_nsec) / 1'000'000;
}

static usize limit_of(unsigned resource) {
  rlimit64 limit{};
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
bool is_privileged() { return getauxval(AT_SECURE) != 0; }

const char* environment_value(const char* name) {
  char** entry = environ;
  if (entry == nullptr && &__libc_stack_end != nullptr && __libc_stack_end != nullptr) {
    // libc has not run yet: the kernel left argc, argv, null, envp at the stack's end.
    auto* words = static_cast<char**>(__libc_stack_end);
    const auto count = static_cast<usize>(*reinterpret_cast<long*>(words));
    entry = words + 1 + count + 1;
  }
  if (entry == nullptr) return nullptr;
  const usize length = std::strlen(name);
  for (; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

void futex_wait(void* word, u32 expected) { invoke(SYS_futex, address_of(word), FUTEX_WAIT_PRIVATE, expected, 0); }
void futex_wait_for(void* word, u32 expected, u64 milliseconds) {
  const timespec limit{static_cast<time_t>(milliseconds / 1000), static_cast<long>(milliseconds % 1000) * 1'000'000};
  invoke(SYS_futex, address_of(word), FUTEX_WAIT_PRIVATE, expected, address_of(&limit));
}

void futex_wake_one(void* word) { invoke(SYS_futex, address_of(word), FUTEX_WAKE_PRIVATE, 1); }

}  // namespace freestone::os
