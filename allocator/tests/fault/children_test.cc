// What the children of one process have in common: the secrets, but not what is drawn (a forking server's child that
// shows an address shall not show where its siblings' blocks lie).
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "support/child.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kSizes[] = {24, 48, 120, 700, 5000, 20000, 90000, 300000};
constexpr int kChildren = 24;

pid_t fork_by_call() { return fork(); }
// Runs no handlers.
pid_t fork_barely() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

struct Way {
  const char* name;
  pid_t (*fork)();
  friend std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }
};

class Children : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!subject().is_hardened) GTEST_SKIP() << "a promise of libfreestone-hardened";
  }
};

// A heap in use, with free blocks in caches, slabs and spans.
void use_heap() {
  std::vector<void*> blocks;
  for (const size_t bytes : kSizes) {
    const size_t count = bytes < 1000 ? 3000 : bytes < 30000 ? 300 : 60;
    for (size_t k = 0; k < count; ++k) blocks.push_back(api().malloc(bytes));
  }
  for (size_t k = 0; k < blocks.size(); ++k) {
    if (k % 3 != 0) api().free(blocks[k]);
  }
}

using Addresses = std::array<uintptr_t, 64>;

// The next blocks of one size in each of some children, with frees between them.
std::vector<Addresses> next_in_children(pid_t (*make_child)(), size_t bytes) {
  std::vector<Addresses> all(kChildren);
  for (Addresses& addresses : all) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t child = make_child();
    if (child == 0) {
      // A bare child learns what it is at its first slow path.
      api().free(api().malloc(size_t{1} << 20));
      for (size_t k = 0; k < addresses.size(); ++k) {
        void* const block = api().malloc(bytes);
        addresses[k] = reinterpret_cast<uintptr_t>(block);
        if (k % 4 == 3) api().free(block);
      }
      const ssize_t written = write(ends[1], addresses.data(), sizeof addresses);
      _exit(written == sizeof addresses ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], addresses.data(), sizeof addresses) != sizeof addresses) addresses = {};
    close(ends[0]);
    waitpid(child, nullptr, 0);
  }
  return all;
}

TEST_P(Children, DrawTheirOwnBlocks) {
  use_heap();
  for (const size_t bytes : kSizes) {
    const std::vector<Addresses> all = next_in_children(GetParam().fork, bytes);
    ASSERT_EQ(all.size(), size_t{kChildren});
    const std::set<Addresses> different(all.begin(), all.end());
    EXPECT_EQ(different.size(), all.size()) << bytes << " bytes";
    EXPECT_EQ(different.count(Addresses{}), 0u) << bytes << " bytes: a child died";
    if (bytes > 700) continue;  // few blocks of a larger class wait in a cache
    std::map<uintptr_t, int> firsts;
    int most = 0;
    for (const Addresses& addresses : all) most = std::max(most, ++firsts[addresses[0]]);
    EXPECT_LE(most, kChildren / 2) << bytes << " bytes: the first block is the same in most children";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Children, testing::Values(Way{"fork", fork_by_call}, Way{"bare", fork_barely}),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace freestone_test
