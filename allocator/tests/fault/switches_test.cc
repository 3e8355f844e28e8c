// What would switch the hardened build's checks off with one write: options, secrets and addresses of code (SEAL-1).
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "support/child.h"
#include "support/hardened_test.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

struct Mapping {
  uintptr_t start;
  uintptr_t end;
  bool writes;
  bool runs;
  bool holds(uintptr_t address) const { return address >= start && address < end; }
};

// Those of this process. Nothing is allocated while the file is read.
std::vector<Mapping> mappings() {
  std::vector<Mapping> all;
  all.reserve(4096);
  FILE* file = std::fopen("/proc/self/maps", "r");
  char line[512];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long start = 0, end = 0;
    char rights[8] = "";
    if (std::sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3)
      all.push_back({start, end, rights[1] == 'w', rights[2] == 'x'});
  }
  if (file != nullptr) std::fclose(file);
  return all;
}

// The library's segments that are writable by its file.
std::vector<Mapping> segments() {
  std::vector<Mapping> found;
  const auto look = [](dl_phdr_info* object, size_t, void* out) {
    char real[PATH_MAX];
    if (realpath(object->dlpi_name, real) == nullptr || subject().owner != real) return 0;
    for (int k = 0; k < object->dlpi_phnum; ++k) {
      const ElfW(Phdr)& part = object->dlpi_phdr[k];
      const uintptr_t start = object->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_LOAD && (part.p_flags & PF_W) != 0)
        static_cast<std::vector<Mapping>*>(out)->push_back({start, start + part.p_memsz, true, false});
    }
    return 1;
  };
  dl_iterate_phdr(look, &found);
  return found;
}

using SetOption = int (*)(const char*, const char*);
// Found once: a child of the bare system call may find the loader's lock taken.
SetOption set_option() {
  static const auto found = reinterpret_cast<SetOption>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
  return found;
}

// An option's text by which its page is found.
char marker[] = "/a/marker/of/this/test/0";

// Whether the page with the options can be written to; -1: not found.
int options_are_writable() {
  for (const Mapping& segment : segments()) {
    const size_t length = std::strlen(marker);
    for (uintptr_t at = segment.start; at + length <= segment.end; ++at) {
      if (std::memcmp(reinterpret_cast<const void*>(at), marker, length) != 0) continue;
      for (const Mapping& mapping : mappings())
        if (mapping.holds(at)) return mapping.writes ? 1 : 0;
    }
  }
  return -1;
}

class Switches : public HardenedTest {};

TEST_F(Switches, NoWordThatCanBeWrittenLeadsToCode) {
  api().free(api().malloc(100));
  const std::vector<Mapping> all = mappings();
  size_t words = 0;
  for (const Mapping& segment : segments()) {
    for (const Mapping& part : all) {
      const uintptr_t end = std::min(part.end, segment.end);
      if (!part.writes) continue;
      for (uintptr_t at = std::max(part.start, (segment.start + 7) & ~uintptr_t{7}); at + 8 <= end; at += 8, ++words) {
        const uintptr_t word = *reinterpret_cast<const uintptr_t*>(at);
        for (const Mapping& code : all)
          EXPECT_FALSE(code.runs && code.holds(word)) << "word " << at - segment.start << " of the segment";
      }
    }
  }
  EXPECT_GT(words, 1000u);
}

TEST_F(Switches, OptionsCannotBeWrittenAfterAnyWayToSetThem) {
  ASSERT_EQ(set_option()("cgroup", marker), 0);
  EXPECT_EQ(options_are_writable(), 0);
  EXPECT_NE(set_option()("on_error", "nonsense"), 0);
  EXPECT_EQ(options_are_writable(), 0);
#if defined(__GLIBC__)
  EXPECT_EQ(api().mallopt(M_MMAP_THRESHOLD, 8 << 20), 1);
  EXPECT_EQ(options_are_writable(), 0);
#endif
  using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);
  const auto control = reinterpret_cast<Mallctl>(dlsym(RTLD_DEFAULT, "mallctl"));
  ssize_t decay = 5000;
  EXPECT_EQ(control("arenas.dirty_decay_ms", nullptr, nullptr, &decay, sizeof decay), 0);
  EXPECT_EQ(options_are_writable(), 0);
}

TEST_F(Switches, AWriteToTheOptionsFaults) {
  ASSERT_EQ(set_option()("cgroup", marker), 0);
  EXPECT_TRUE(dies_by(SIGSEGV, [] {
    for (const Mapping& segment : segments()) {
      for (uintptr_t at = segment.start; at + sizeof marker <= segment.end; ++at) {
        if (std::memcmp(reinterpret_cast<const void*>(at), marker, sizeof marker) == 0)
          *reinterpret_cast<volatile char*>(at) = 'x';
      }
    }
  }));
}

// What a sandbox would do that knows no mprotect.
bool refuse_mprotect() {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog whole{sizeof program / sizeof *program, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole) == 0;
}

TEST_F(Switches, WhereTheSealCannotBeOpenedTheOptionStaysAndTheProgramGoesOn) {
  ASSERT_EQ(set_option()("cgroup", marker), 0);
  const ChildEnd end = run_in_child([] {
    if (!refuse_mprotect()) return 77;
    if (set_option()("cgroup", "") != EPERM) return 1;
    if (options_are_writable() != 0) return 2;
#if defined(__GLIBC__)
    if (api().mallopt(M_MMAP_THRESHOLD, 8 << 20) != 0) return 3;
#endif
    for (size_t bytes = 1; bytes < (64u << 20); bytes = bytes * 3 / 2 + 1) api().free(api().malloc(bytes));
    return 0;
  });
  EXPECT_TRUE(end.exited_with(0) || end.exited_with(77)) << end.describe();
}

// A child of a thread's fork finds the seal closed, whatever another thread was at.
TEST_F(Switches, ChildrenFindTheSealClosed) {
  std::atomic<bool> over{false};
  ASSERT_EQ(set_option()("cgroup", marker), 0);
  std::thread other([&] {
    while (!over) set_option()("cgroup", marker);
  });
  for (int round = 0; round < 200; ++round) {
    // By fork, and by the bare system call, which runs no handlers.
    const pid_t child = round % 2 == 0 ? fork() : static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (size_t bytes = 1; bytes < (1u << 20); bytes = bytes * 3 / 2 + 1) api().free(api().malloc(bytes));
      const bool can_set = set_option()("cgroup", marker) == 0;
      _exit(!can_set ? 1 : options_are_writable() != 0 ? 2 : 0);
    }
    EXPECT_EQ(wait_for(child), 0) << "round " << round;
  }
  over = true;
  other.join();
}

}  // namespace
}  // namespace freestone_test
