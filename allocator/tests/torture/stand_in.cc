// A kernel that refuses, between the library and the real one. The troubled libraries have the objects of the shipped
// ones, but the files of `door` in CMakeLists.txt are compiled with this folder's system_call.h, so every call comes
// here. The environment says what happens to it; without that it goes on to the kernel:
//
//   STAND_IN         words with spaces between them
//     CALL=ERROR       calls whose name in points.def begins with CALL fail: EPERM, ENOSYS, EINVAL, ENOMEM ...
//     CALL=ELSEWHERE   a mapping lies elsewhere than where it was wanted, as if that place were taken
//     CALL=LIE         success is said, and nothing is done
//     CALL=KILL        such a call ends the process by SIGSYS, once main has begun
//       ...@N            from the Nth call on
//       ...%N            every Nth call only
//       ...>MIB          only what is longer
//       ...+MIB          only what lies so far or farther behind the first mapping that has its place
//       ...-MIB          and nearer than so far
//     page=KIB         pages have this size
//     full=N           the table of mappings is full after N mappings
//   STAND_IN_CONF    options, which the program's own FREESTONE_CONF overrides
//   STAND_IN_CENSUS  a file with a Count for each row of points.def
//   STAND_IN_FAULTS  a fault is described on standard error before it ends the program
//
// stand_in_lift() ends all refusals; pages keep their size.
//
// Any thread may come here at any time: nothing is locked or allocated.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/atomic.h"
#include "torture/address_space.h"
#include "platform/message.h"
#include "platform/os.h"

#define invoke enter
#include "../../src/platform/system_call.h"  // the real door, under another name
#undef invoke

extern "C" {
extern FREESTONE_HIDDEN const char __ehdr_start;
// Read before FREESTONE_CONF. Filled with STAND_IN_CONF.
static char options_for_all[1024];
FREESTONE_EXPORT const char* freestone_conf = options_for_all;
}

namespace freestone::os {

long invoke(long number, usize a, usize b, usize c, usize d, usize e, usize f);

namespace {

struct Point {
  const char* name;
  long number;
  unsigned argument;
  usize mask;
  usize value;
};
constexpr Point kPoints[] = {
#define POINT(name, number, argument, mask, value, need) {#name, number, argument, mask, value},
#include "torture/points.def"
#undef POINT
};
constexpr unsigned kPointCount = sizeof kPoints / sizeof kPoints[0];
static_assert(kPointCount <= 64);

struct Error {
  const char* name;
  int number;
};
constexpr int kKill = -1;
constexpr int kElsewhere = -2;
constexpr int kLie = -3;
constexpr Error kErrors[] = {{"EPERM", EPERM},   {"ENOSYS", ENOSYS}, {"EINVAL", EINVAL},         {"ENOMEM", ENOMEM},
                             {"EACCES", EACCES}, {"EAGAIN", EAGAIN}, {"ELSEWHERE", kElsewhere},
                             {"KILL", kKill},   {"LIE", kLie}};

struct Rule {
  u64 points = 0;  // a bit for each
  int error = 0;
  usize from = 1;
  usize every = 1;
  usize above = 0;
  usize behind = 0;
  usize nearer = ~usize{0};
  Atomic<usize> seen;
};
constexpr unsigned kRulesMax = 32;
Rule rules[kRulesMax];
unsigned rule_count = 0;
usize page = 0;
usize mappings_left = ~usize{0};
Atomic<u32> lifted;
Atomic<usize> mappings_made;
Atomic<usize> first_placed;  // where the first mapping lies that has its place
struct Count {
  u32 called;
  u32 refused;
};
Count* census = nullptr;
bool in_main = false;  // written before the program has a second thread
enum State : u32 { kFresh, kReading, kReady };
Atomic<u32> state;

[[noreturn]] void refuse_rule(const char* at) {
  rule_count = 0;
  state.store_release(kReady);  // the message comes here, too
  (Message("stand-in: cannot read the rule ") << at).write();
  abort_now();
}

usize read_number(const char*& at) {
  usize value = 0;
  for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<usize>(*at - '0');
  return value;
}

void read_rule(const char*& at, const char* name, usize length) {
  if (rule_count == kRulesMax) refuse_rule(name);
  Rule& rule = rules[rule_count];
  for (unsigned k = 0; k < kPointCount; ++k)
    if (std::strncmp(kPoints[k].name, name, length) == 0) rule.points |= u64{1} << k;
  for (const Error& error : kErrors) {
    const usize bytes = std::strlen(error.name);
    if (std::strncmp(at, error.name, bytes) != 0 || (at[bytes] >= 'A' && at[bytes] <= 'Z')) continue;
    rule.error = error.number;
    at += bytes;
    break;
  }
  if (rule.points == 0 || rule.error == 0) refuse_rule(name);
  for (; *at != '\0' && *at != ' ';) {
    const char what = *at++;
    const usize value = read_number(at);
    switch (what) {
      case '@': rule.from = value; break;
      case '%': rule.every = value; break;
      case '>': rule.above = value * kMiB; break;
      case '+': rule.behind = value * kMiB; break;
      case '-': rule.nearer = value * kMiB; break;
      default: refuse_rule(name);
    }
  }
  ++rule_count;
}

void read_rules(const char* text) {
  for (const char* at = text; *at != '\0';) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    const char* const name = at;
    while (*at != '=' && *at != '\0') ++at;
    if (*at == '\0') refuse_rule(name);
    const auto length = static_cast<usize>(at++ - name);
    if (length == 4 && std::strncmp(name, "page", length) == 0) {
      page = read_number(at) * kKiB;
    } else if (length == 4 && std::strncmp(name, "full", length) == 0) {
      mappings_left = read_number(at);
    } else {
      read_rule(at, name, length);
    }
  }
}

void open_census(const char* path) {
  const long file = call_kernel(SYS_openat, {{static_cast<usize>(AT_FDCWD), address_of(path), O_RDWR | O_CLOEXEC}});
  if (is_error(file)) return;
  const usize bytes = sizeof(Count) * kPointCount;
  const long got = call_kernel(SYS_mmap, {{0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, static_cast<usize>(file), 0}});
  call_kernel(SYS_close, {{static_cast<usize>(file)}});
  if (!is_error(got)) census = reinterpret_cast<Count*>(got);
}

// "stand-in: fault at ADDRESS by OBJECT+OFFSET"
void describe_fault(int number, siginfo_t* info, void* context) {
  const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  const auto instruction = static_cast<usize>(registers.gregs[REG_RIP]);
#else
  const auto instruction = static_cast<usize>(registers.pc);
#endif
  Dl_info where{};
  const bool known = dladdr(reinterpret_cast<void*>(instruction), &where) != 0 && where.dli_fname != nullptr;
  (Message("stand-in: fault at ") << info->si_addr << " by " << (known ? where.dli_fname : "?") << '+'
                                  << reinterpret_cast<void*>(instruction - address_of(where.dli_fbase)))
      .write();
  signal(number, SIG_DFL);  // the fault comes again
}

// Before the guards of the library listen: they hand on to this.
void listen_for_faults() {
  struct sigaction action {};
  action.sa_sigaction = describe_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

void prepare() {
  u32 fresh = kFresh;
  if (state.load_acquire() == kReady) return;
  if (!state.replace_acquire(fresh, kReading)) {
    while (state.load_acquire() != kReady) {
    }
    return;
  }
  if (const char* path = environment_value("STAND_IN_CENSUS"); path != nullptr) open_census(path);
  if (const char* conf = environment_value("STAND_IN_CONF"); conf != nullptr)
    std::strncpy(options_for_all, conf, sizeof options_for_all - 1);
  if (environment_value("STAND_IN_FAULTS") != nullptr) listen_for_faults();
  if (const char* text = environment_value("STAND_IN"); text != nullptr) read_rules(text);
  state.store_release(kReady);
}

unsigned point_of(long number, const Arguments& arguments) {
  for (unsigned k = 0; k < kPointCount; ++k) {
    const Point& point = kPoints[k];
    if (point.number == number && (arguments.at[point.argument] & point.mask) == point.value) return k;
  }
  (Message("stand-in: points.def has no row for system call ") << u64(number)).write();
  abort_now();
}

void note(unsigned point, u32 Count::* what) {
  if (census != nullptr) __atomic_fetch_add(&(census[point].*what), 1, __ATOMIC_RELAXED);
}

[[noreturn]] void kill_for(unsigned point, const void* caller) {
  note(point, &Count::refused);
  (Message("stand-in: killed for ") << kPoints[point].name << ", called at the library's "
                                    << reinterpret_cast<const void*>(address_of(caller) - address_of(&__ehdr_start)))
      .write();
  signal(SIGSYS, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  sigaddset(&all, SIGSYS);
  sigprocmask(SIG_UNBLOCK, &all, nullptr);
  call_kernel(SYS_tgkill, {{static_cast<usize>(getpid()), static_cast<usize>(gettid()), SIGSYS}});
  _exit(125);
}

// Whether a rule holds for this call: its error, else 0.
int error_for(unsigned point, const Arguments& arguments) {
  if (lifted.load_relaxed() != 0) return 0;
  for (unsigned k = 0; k < rule_count; ++k) {
    Rule& rule = rules[k];
    if ((rule.points >> point & 1) == 0 || (rule.error == kKill && !in_main)) continue;
    if (arguments.at[1] <= rule.above && rule.above != 0) continue;
    const usize start = first_placed.load_relaxed();
    const usize distance = arguments.at[0] - start;
    if (rule.behind != 0 && (start == 0 || distance < rule.behind || distance >= rule.nearer)) continue;
    const usize seen = rule.seen.fetch_add_relaxed(1) + 1;
    if (seen >= rule.from && seen % rule.every == 0) return rule.error;
  }
  return 0;
}

using Main = int(int, char**, char**);
Main* main_of_program = nullptr;

int begin_main(int argc, char** argv, char** variables) {
  in_main = true;
  return main_of_program(argc, argv, variables);
}

}  // namespace

long call_kernel(long number, const Arguments& arguments) {
  const usize* const at = arguments.at;
  return enter(number, at[0], at[1], at[2], at[3], at[4], at[5]);
}

__attribute__((noinline)) long invoke(long number, usize a, usize b, usize c, usize d, usize e, usize f) {
  prepare();
  const Arguments arguments{{a, b, c, d, e, f}};
  const unsigned point = point_of(number, arguments);
  note(point, &Count::called);
  if (const int error = error_for(point, arguments); error != 0) {
    if (error == kKill) kill_for(point, __builtin_return_address(0));
    note(point, &Count::refused);
    if (error == kElsewhere) return call_kernel(number, {{0, b, c, d, e, f}});
    return error == kLie ? 0 : -error;
  }
  const bool maps = number == SYS_mmap;
  if (maps && a != 0 && (d & MAP_FIXED) == 0 && first_placed.load_relaxed() == 0) first_placed.store_relaxed(a);
  const usize made = maps ? mappings_made.fetch_add_relaxed(1) : mappings_made.load_relaxed();
  if (long refused; lifted.load_relaxed() == 0 && made >= mappings_left && refuse_mapping(number, arguments, refused)) {
    note(point, &Count::refused);
    return refused;
  }
  if (page == 0) return call_kernel(number, arguments);
  note(point, &Count::refused);
  return call_with_pages(number, arguments, page);
}

usize told_value(unsigned long type) {
  prepare();
  return type == AT_PAGESZ && page != 0 ? page : kernel_value(type);
}

bool tells_vdso() {
  prepare();
  const unsigned clock = point_of(SYS_clock_gettime, {});
  for (unsigned k = 0; k < rule_count; ++k)
    if ((rules[k].points >> clock & 1) != 0 && rules[k].error != kKill) return false;
  return true;
}

}  // namespace freestone::os

extern "C" FREESTONE_EXPORT void stand_in_lift() { freestone::os::lifted.store_relaxed(1); }

// Instead of libc's, by which the library moves blocks (LEAVING-1).
extern "C" FREESTONE_HIDDEN void* mremap(void* old, size_t old_bytes, size_t bytes, int flags, ...) noexcept {
  using namespace freestone;
  const long at = os::invoke(SYS_mremap, address_of(old), old_bytes, bytes, static_cast<usize>(flags), 0, 0);
  if (!os::is_error(at)) return reinterpret_cast<void*>(at);
  errno = static_cast<int>(-at);
  return MAP_FAILED;
}

extern "C" FREESTONE_EXPORT int __libc_start_main(freestone::os::Main* program, int argc, char** argv, void (*init)(),
                                                  void (*fini)(), void (*loader_fini)(), void* stack_end) {
  using Start = int(freestone::os::Main*, int, char**, void (*)(), void (*)(), void (*)(), void*);
  freestone::os::main_of_program = program;
  auto* const start = reinterpret_cast<Start*>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(freestone::os::begin_main, argc, argv, init, fini, loader_fini, stack_end);
}
