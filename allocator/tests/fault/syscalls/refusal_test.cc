// A request that cannot be met is refused by the one call to the kernel that asks for it, if any: nothing is given back
// for it, nothing changes, and what could be had before can be had afterwards.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>

#include "fault/syscalls/churn.h"
#include "fault/syscalls/supervisor.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kGiB = size_t{1} << 30;
constexpr int kMarker = SYS_getppid;
constexpr int kRequests = 10000;

struct Request {
  const char* name;
  void* (*make)(void* block, size_t bytes);
};

const Request kRequestKinds[] = {
    {"malloc", [](void*, size_t bytes) { return api().malloc(bytes); }},
    {"calloc", [](void*, size_t bytes) { return api().calloc(2, bytes / 2); }},
    {"aligned_alloc", [](void*, size_t bytes) { return api().aligned_alloc(4096, bytes); }},
    {"realloc", [](void* block, size_t bytes) { return api().realloc(block, bytes); }},
};

bool overcommits_always() {
  int mode = 0;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> mode;
  return mode == 1;
}

class Refusal : public SupervisedTest, public testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    SupervisedTest::SetUp();
    if (IsSkipped()) return;
    if (!subject().is_freestone) GTEST_SKIP() << "a promise of libfreestone";
    if (overcommits_always()) GTEST_SKIP() << "vm.overcommit_memory is 1: the kernel refuses nothing";
  }
};

// A heap with free memory that could be given back, and a program that goes on allocating between its requests.
int ask_again_and_again(const Request& request, size_t bytes) {
  // What goes back as time passes is no part of a refusal.
  using Mallctl = int(const char*, void*, size_t*, void*, size_t);
  ssize_t never = -1;
  if (reinterpret_cast<Mallctl*>(dlsym(RTLD_DEFAULT, "mallctl"))("arenas.dirty_decay_ms", nullptr, nullptr, &never,
                                                                 sizeof never) != 0)
    return 2;
  constexpr int kBlocks = 64;
  void* blocks[kBlocks];
  for (void*& block : blocks) {
    block = api().malloc(300000);
    std::memset(block, 1, 300000);
  }
  for (int i = 0; i < kBlocks; i += 2) api().free(blocks[i]);
  const auto small_block = [](int i) { return api().malloc(static_cast<size_t>(i % 50) * 100); };
  for (int i = 0; i < 300'000; ++i) api().free(small_block(i));  // slabs and quarantine fill before the count begins
  getppid();
  for (int i = 0; i < kRequests; ++i) {
    void* small = small_block(i);
    if (request.make(blocks[1], bytes) != nullptr) return 1;
    api().free(small);
  }
  getppid();
  return 0;
}

TEST_P(Refusal, CostsOneCallToTheKernelAtMost) {
  for (const Request& request : kRequestKinds) {
    std::map<long, unsigned> calls;
    unsigned markers = 0;
    const auto plan = [&](const SystemCall& call) {
      if (call.number == kMarker) ++markers;
      if (call.number != kMarker && markers == 1) ++calls[call.number];
      return 0;
    };
    const SupervisedEnd end =
        run_supervised({kMarker, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_mincore, SYS_brk},
                       plan, [&] { return ask_again_and_again(request, GetParam()); });
    ASSERT_TRUE(end.child.exited_with(0)) << request.name << ": " << end.child.describe();
    ASSERT_EQ(markers, 2U);
    const unsigned own = calls[SYS_mmap] + calls[SYS_mremap];
    calls.erase(SYS_mmap);
    calls.erase(SYS_mremap);
    unsigned others = 0;
    for (const auto& [number, count] : calls) others += count;
    EXPECT_LE(own, kRequests + 20U) << request.name << " of " << GetParam();
    EXPECT_LE(others, 20U) << request.name << " of " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Refusal,
                         testing::Values(size_t{1} << 37, size_t{1} << 40, size_t{1} << 46, size_t{1} << 62,
                                         SIZE_MAX / 2 - 4096, SIZE_MAX - 100000));

// The same under limits: of the library, which asks nobody, and of the kernel.
int keep_what_could_be_had() {
  const size_t before = fill(65536 - 64) / kMiB;
  for (const size_t gibibytes : {1, 2, 8, 30, 100, 900}) {
    for (int i = 0; i < 20; ++i) {
      if (api().malloc(gibibytes * kGiB) != nullptr) return 1;
      if (api().aligned_alloc(kMiB, gibibytes * kGiB) != nullptr) return 2;
      if (api().calloc(gibibytes, kGiB) != nullptr) return 3;
    }
  }
  const size_t after = fill(65536 - 64) / kMiB;
  dprintf(STDERR_FILENO, "%zu MiB before, %zu MiB after\n", before, after);
  return after + 8 >= before && before > 256 ? 0 : 4;
}

TEST(RefusalUnderLimit, LeavesWhatCouldBeHad) {
  const rlimit limit{kGiB, kGiB};
  EXPECT_TRUE(ends_well([&] { return setrlimit(RLIMIT_AS, &limit) != 0 ? 125 : keep_what_could_be_had(); }));
}

// Run by CTest with a hard limit in the options.
TEST(RefusalUnderLimit, OfTheLibraryLeavesWhatCouldBeHad) {
  const char* options = std::getenv("FREESTONE_CONF");
  if (!subject().is_freestone || options == nullptr || std::strstr(options, "limit_hard") == nullptr)
    GTEST_SKIP() << "needs FREESTONE_CONF=limit_hard:1g";
  EXPECT_TRUE(ends_well(keep_what_could_be_had));
}

}  // namespace
}  // namespace freestone_test
