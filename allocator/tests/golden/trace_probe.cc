// Prints, one line per scenario, the instructions that one call executed on its hit path, as addresses inside the library:
//   malloc_64 0x1230 0x1234 ...
// An address outside the library stands as "outside". The call is single-stepped in a child, after enough calls of the same kind to fill
// the thread's cache. Status 77 where single-stepping is not allowed.
#include <elf.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <new>
#include <string>
#include <vector>

#include "support/subject.h"

#if !defined(__x86_64__)
int main() { return 77; }
#else

namespace freestone_test {
namespace {

struct Scenario {
  const char* name;
  size_t size;
  enum Call { kMalloc, kFree, kNew, kDelete, kSizedDelete } call;
};

const Scenario kScenarios[] = {
    {"malloc_16", 16, Scenario::kMalloc},   {"malloc_64", 64, Scenario::kMalloc},     {"malloc_200", 200, Scenario::kMalloc}, {"malloc_1024", 1024, Scenario::kMalloc},
    {"free_16", 16, Scenario::kFree},       {"free_64", 64, Scenario::kFree},         {"free_200", 200, Scenario::kFree},     {"free_1024", 1024, Scenario::kFree},
    {"new_64", 64, Scenario::kNew},         {"delete_64", 64, Scenario::kDelete},     {"sized_delete_64", 64, Scenario::kSizedDelete},
};

inline void mark() { asm volatile("int3" ::: "memory"); }

[[noreturn]] void traced(const Scenario& scenario) {
  void* (*volatile allocate)(size_t) = scenario.call == Scenario::kMalloc || scenario.call == Scenario::kFree ? api().malloc : static_cast<void* (*)(size_t)>(::operator new);
  void (*volatile release)(void*) = scenario.call == Scenario::kMalloc || scenario.call == Scenario::kFree ? api().free : static_cast<void (*)(void*)>(::operator delete);
  void (*volatile release_sized)(void*, size_t) = static_cast<void (*)(void*, size_t)>(::operator delete);
  for (int round = 0; round < 50; ++round) {
    void* blocks[20];
    for (void*& block : blocks) block = allocate(scenario.size);
    for (void* block : blocks) release(block);
  }
  ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  raise(SIGSTOP);
  void* block = nullptr;
  if (scenario.call == Scenario::kMalloc || scenario.call == Scenario::kNew) {
    mark();
    block = allocate(scenario.size);
    mark();
    release(block);
  } else {
    block = allocate(scenario.size);
    mark();
    if (scenario.call == Scenario::kSizedDelete)
      release_sized(block, scenario.size);
    else
      release(block);
    mark();
  }
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

// Returns false where the child could not be traced.
bool print_trace(const Scenario& scenario) {
  const pid_t child = fork();
  if (child == 0) traced(scenario);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return false;
  const Range library = range_of(child, subject().owner);
  char own[4096] = {};
  if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) return false;
  const Range program = range_of(child, own);
  ptrace(PTRACE_CONT, child, nullptr, nullptr);
  if (!waits_for_trap(child)) return false;
  std::printf("%s", scenario.name);
  user_regs_struct registers{};
  for (;;) {
    if (ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) != 0 || !waits_for_trap(child)) return false;
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    if (program.holds(registers.rip)) {
      // The closing int3 is about to run: the byte at the instruction pointer tells.
      if ((ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr) & 0xFF) == 0xCC) break;
      continue;
    }
    if (library.holds(registers.rip))
      std::printf(" 0x%llx", registers.rip - library.from);
    else
      std::printf(" outside");
  }
  std::printf("\n");
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return true;
}

}  // namespace
}  // namespace freestone_test

int main() {
  freestone_test::require_expected_subject();
  for (const auto& scenario : freestone_test::kScenarios)
    if (!freestone_test::print_trace(scenario)) return 77;
  return 0;
}
#endif
