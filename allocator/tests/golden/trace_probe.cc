// Prints, one line per scenario, the instructions that one call executed on its hit path, as addresses inside the
// library:
//   malloc_64 0x1230 0x1234 ...
// An address outside the library stands as "outside". The call is single-stepped in a child, after enough calls of the
// same kind to fill the thread's cache. Status 77 where single-stepping is not allowed.
//
// With the argument `walks` it prints two calls on their way to the kernel: the malloc for which the heap grows, and
// the free of another thread's block after which memory goes back.
#include <dlfcn.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <string>
#include <thread>

#include "support/subject.h"

#if !defined(__x86_64__)
int main() { return 77; }
#else

namespace freestone_test {
namespace {

// One call of the surface on a block of its own: `take` makes the block, `use` may do something with it, `give` ends
// it. One of the three is what is counted.
struct Scenario {
  const char* name;
  enum Counted { kTake, kUse, kGive } counted;
  void* (*take)();
  void* (*use)(void*);
  void (*give)(void*);
};

template <size_t Bytes>
void* take() {
  return api().malloc(Bytes);
}
void give(void* block) { api().free(block); }
void* keep(void* block) { return block; }

void* (*volatile operator_new)(size_t) = ::operator new;
void (*volatile operator_delete)(void*) = ::operator delete;
void (*volatile sized_delete)(void*, size_t) = ::operator delete;
void* (*volatile aligned_new)(size_t, std::align_val_t) = ::operator new;
void (*volatile aligned_delete)(void*, std::align_val_t) = ::operator delete;
void (*volatile sized_aligned_delete)(void*, size_t, std::align_val_t) = ::operator delete;

template <size_t Bytes>
void* take_new() {
  return operator_new(Bytes);
}
template <size_t Bytes, size_t Alignment>
void* take_aligned_new() {
  return aligned_new(Bytes, std::align_val_t{Alignment});
}
template <size_t Bytes, size_t Alignment>
void* take_posix() {
  void* block = nullptr;
  return api().posix_memalign(&block, Alignment, Bytes) == 0 ? block : nullptr;
}
template <size_t Bytes, size_t Alignment>
void* take_aligned() {
  return api().aligned_alloc(Alignment, Bytes);
}
template <size_t Bytes, size_t Alignment>
void* take_memalign() {
  return api().memalign(Alignment, Bytes);
}
template <size_t Bytes>
void* take_zeroed() {
  return api().calloc(1, Bytes);
}
template <size_t Bytes>
void* resize(void* block) {
  return api().realloc(block, Bytes);
}
void* ask(void* block) { return api().malloc_usable_size(block) != 0 ? block : nullptr; }

constexpr auto kTake = Scenario::kTake;
constexpr auto kUse = Scenario::kUse;
constexpr auto kGive = Scenario::kGive;

const Scenario kScenarios[] = {
    {"malloc_16", kTake, take<16>, keep, give},
    {"malloc_64", kTake, take<64>, keep, give},
    {"malloc_200", kTake, take<200>, keep, give},
    {"malloc_1024", kTake, take<1024>, keep, give},
    {"malloc_4096", kTake, take<4096>, keep, give},
    {"malloc_16000", kTake, take<16000>, keep, give},
    {"free_16", kGive, take<16>, keep, give},
    {"free_64", kGive, take<64>, keep, give},
    {"free_200", kGive, take<200>, keep, give},
    {"free_1024", kGive, take<1024>, keep, give},
    {"free_4096", kGive, take<4096>, keep, give},
    {"new_64", kTake, take_new<64>, keep, operator_delete},
    {"delete_64", kGive, take_new<64>, keep, operator_delete},
    {"sized_delete_64", kGive, take_new<64>, keep, [](void* block) { sized_delete(block, 64); }},
    {"free_sized_64", kGive, take<64>, keep, [](void* block) { api().free_sized(block, 64); }},
    {"free_aligned_sized_64", kGive, take<64>, keep, [](void* block) { api().free_aligned_sized(block, 64, 64); }},
    {"posix_memalign_64_200", kTake, take_posix<200, 64>, keep, give},
    {"posix_memalign_4096", kTake, take_posix<4096, 4096>, keep, give},
    {"aligned_alloc_64_200", kTake, take_aligned<200, 64>, keep, give},
    {"aligned_alloc_4096", kTake, take_aligned<4096, 4096>, keep, give},
    {"memalign_64_200", kTake, take_memalign<200, 64>, keep, give},
    {"memalign_4096", kTake, take_memalign<4096, 4096>, keep, give},
    {"aligned_new_64_96", kTake, take_aligned_new<96, 64>, keep,
     [](void* block) { aligned_delete(block, std::align_val_t{64}); }},
    {"aligned_new_4096", kTake, take_aligned_new<4096, 4096>, keep,
     [](void* block) { aligned_delete(block, std::align_val_t{4096}); }},
    {"aligned_delete_64", kGive, take_aligned_new<96, 64>, keep,
     [](void* block) { aligned_delete(block, std::align_val_t{64}); }},
    {"sized_aligned_delete_64", kGive, take_aligned_new<96, 64>, keep,
     [](void* block) { sized_aligned_delete(block, 96, std::align_val_t{64}); }},
    {"calloc_64", kTake, take_zeroed<64>, keep, give},
    {"calloc_4096", kTake, take_zeroed<4096>, keep, give},
    {"calloc_16000", kTake, take_zeroed<16000>, keep, give},
    {"realloc_100_to_101", kUse, take<100>, resize<101>, give},
    {"realloc_4000_to_2100", kUse, take<4000>, resize<2100>, give},
    {"reallocarray_100_to_101", kUse, take<100>, [](void* block) { return api().reallocarray(block, 101, 1); }, give},
    {"usable_64", kUse, take<64>, ask, give},
    {"usable_4096", kUse, take<4096>, ask, give},
};

inline void mark() { asm volatile("int3" ::: "memory"); }

[[noreturn]] void traced(const Scenario& scenario) {
  for (int round = 0; round < 50; ++round) {
    void* blocks[20];
    for (void*& block : blocks) block = scenario.use(scenario.take());
    for (void* block : blocks) scenario.give(block);
  }
  // So many blocks nearer to the end of what may be taken, and half as many to the end of the room.
  const char* phase = std::getenv("TRACE_PHASE");
  for (int kept = phase != nullptr ? std::atoi(phase) : 0; kept > 0; --kept) {
    void* block = scenario.use(scenario.take());
    if (kept % 2 == 0) scenario.give(block);
  }
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  raise(SIGSTOP);
  if (scenario.counted == Scenario::kTake) mark();
  void* block = scenario.take();
  if (scenario.counted != Scenario::kGive) mark();
  block = scenario.use(block);
  if (scenario.counted != Scenario::kTake) mark();
  scenario.give(block);
  mark();
  _exit(0);
}

struct Range {
  uint64_t from = UINT64_MAX;
  uint64_t to = 0;
  bool holds(uint64_t address) const { return from <= address && address < to; }
};

Range range_of(pid_t process, const std::string& object) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  Range range;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0;
    uint64_t to = 0;
    if (line.find(object) == std::string::npos || std::sscanf(line.c_str(), "%lx-%lx", &from, &to) != 2) continue;
    range.from = std::min(range.from, from);
    range.to = std::max(range.to, to);
  }
  return range;
}

bool waits_for_trap(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

// A forked child that runs `body`, which asks to be traced and then sets marks.
class Stepped {
 public:
  template <typename Body>
  explicit Stepped(Body body) : child_(fork()) {
    if (child_ == 0) {
      body();
      _exit(0);
    }
    int status = 0;
    waitpid(child_, &status, 0);
    stands_ = WIFSTOPPED(status);
    char own[4096] = {};
    if (!stands_ || readlink("/proc/self/exe", own, sizeof own - 1) < 0) return;
    library_ = range_of(child_, subject().owner);
    program_ = range_of(child_, own);
  }
  ~Stepped() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  // False where it could not be traced, or ended.
  bool run_to_mark() const {
    return stands_ && ptrace(PTRACE_CONT, child_, nullptr, nullptr) == 0 && waits_for_trap(child_);
  }
  // Runs until it makes this system call; returns how many marks it passed before. 0 where it could not be traced.
  int marks_before(uint64_t system_call) const {
    user_regs_struct registers{};
    for (int marks = 0; stands_ && ptrace(PTRACE_SYSCALL, child_, nullptr, nullptr) == 0 && waits_for_trap(child_);) {
      ptrace(PTRACE_GETREGS, child_, nullptr, &registers);
      if (program_.holds(registers.rip) && code_at(registers.rip)[-1] == 0xCC)
        ++marks;
      else if (registers.orig_rax == system_call)
        return marks;
    }
    return 0;
  }
  // Steps from the mark that was passed up to the next one, which stays to be run to. Adds the addresses.
  bool step_to_mark(std::string& addresses) const {
    user_regs_struct registers{};
    for (;;) {
      if (ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr) != 0 || !waits_for_trap(child_)) return false;
      ptrace(PTRACE_GETREGS, child_, nullptr, &registers);
      if (program_.holds(registers.rip)) {
        if (*code_at(registers.rip) == 0xCC) return true;
        continue;
      }
      char address[32] = " outside";
      if (library_.holds(registers.rip))
        std::snprintf(address, sizeof address, " 0x%llx", registers.rip - library_.from);
      addresses += address;
    }
  }

 private:
  // It has the program where we have it.
  static const unsigned char* code_at(uint64_t address) { return reinterpret_cast<const unsigned char*>(address); }

  pid_t child_;
  bool stands_ = false;
  Range library_;
  Range program_;
};

// Returns false where the child could not be traced.
bool print_trace(const Scenario& scenario) {
  const Stepped child([&] { traced(scenario); });
  std::string addresses;
  if (!child.run_to_mark() || !child.step_to_mark(addresses)) return false;
  std::printf("%s%s\n", scenario.name, addresses.c_str());
  return true;
}

// What another thread took, which lives on.
void* others_blocks[1000];
void begin_beside_another_thread() {
  int ends[2];
  if (pipe(ends) != 0) _exit(1);
  std::thread([&] {
    for (void*& block : others_blocks) block = take<8000>();
    char byte = 0;
    if (write(ends[1], &byte, 1) == 1) pause();
  }).detach();
  char byte = 0;
  if (read(ends[0], &byte, 1) != 1) _exit(1);
  give(take<100>());
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  raise(SIGSTOP);
}

void take_many() {
  begin_beside_another_thread();
  for (int k = 0; k < 2000; ++k) {
    mark();
    take<3000>();
  }
}
void give_what_another_took() {
  begin_beside_another_thread();
  for (void* block : others_blocks) {
    mark();
    give(block);
  }
}

// Prints the first of the calls that makes this system call. False where none could be traced.
bool print_walk(const char* name, void (*calls)(), uint64_t system_call) {
  static_cast<void>(Stepped(calls));  // what this process allocates for one it has for the next
  const int marks = Stepped(calls).marks_before(system_call);
  const Stepped child(calls);
  for (int mark = 0; mark < marks; ++mark)
    if (!child.run_to_mark()) return false;
  std::string addresses;
  if (marks == 0 || !child.step_to_mark(addresses)) return false;
  std::printf("%s%s\n", name, addresses.c_str());
  return true;
}

}  // namespace
// A profile that runs and ends, as one that was attached to a server. False when it sampled nothing or goes on.
bool profile_for_a_while() {
  const auto call = [](const char* name) { return reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name)); };
  const auto start = call("freestone_prof_start"), stop = call("freestone_prof_stop");
  const auto active = call("freestone_prof_is_active");
  if (start == nullptr || stop == nullptr || active == nullptr) return false;
  start();
  const bool ran = active() != 0;
  for (int i = 0; i < 20'000; ++i) api().free(api().malloc(static_cast<size_t>(i % 8192)));
  stop();
  api().malloc_trim(0);  // no slab stays sparse: blocks of ground have no hit path
  return ran && active() == 0;
}

}  // namespace freestone_test

int main(int argc, char** argv) {
  freestone_test::require_expected_subject();
  if (argc > 1 && std::string_view(argv[1]) == "walks") {
    const bool stepped = freestone_test::print_walk("malloc", freestone_test::take_many, SYS_mmap) &&
                         freestone_test::print_walk("free", freestone_test::give_what_another_took, SYS_madvise);
    return stepped ? 0 : 77;
  }
  if (argc > 1 && !freestone_test::profile_for_a_while()) return 1;
  for (const auto& scenario : freestone_test::kScenarios)
    if (!freestone_test::print_trace(scenario)) return 77;
  return 0;
}
#endif
