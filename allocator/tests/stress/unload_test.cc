// A plug-in that contains the allocator is closed while its threads and blocks live on.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/child.h"

namespace freestone_test {
namespace {

class Plugin {
 public:
  explicit Plugin(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << dlerror();
  }
  ~Plugin() { close(); }
  void close() {
    if (handle_ != nullptr) dlclose(std::exchange(handle_, nullptr));
  }
  template <typename Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name));
  }
  bool works() const { return find<int (*)()>("plugin_works")() != 0; }
  char* keeps(const char* text) const { return find<char* (*)(const char*)>("plugin_keeps")(text); }
  void releases(char* block) const { find<void (*)(char*)>("plugin_releases")(block); }

 private:
  void* handle_;
};

void close_before_threads_end(const std::string& path, bool remove_file = false) {
  constexpr int kThreads = 3;
  Plugin plugin(path);
  std::barrier steps(kThreads + 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      EXPECT_TRUE(plugin.works());
      steps.arrive_and_wait();
      steps.arrive_and_wait();
    });
  }
  steps.arrive_and_wait();
  if (remove_file) std::filesystem::remove(path);
  plugin.close();
  steps.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();
}

std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
}

class Unload : public testing::TestWithParam<const char*> {
 protected:
  std::string path() const { return std::string(FREESTONE_PLUGINS "/") + GetParam() + ".so"; }
};

TEST_P(Unload, ThreadsEndLater) {
  constexpr int kRounds = 400;
  std::ptrdiff_t before = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (round == kRounds / 8) before = mappings();
    close_before_threads_end(path());
  }
  EXPECT_LE(mappings(), before + 8);
}

TEST_P(Unload, OfAFileThatIsGone) {
  const std::string copy = testing::TempDir() + GetParam() + std::to_string(getpid()) + ".so";
  std::filesystem::copy_file(path(), copy);
  close_before_threads_end(copy, true);
}

TEST_P(Unload, BlocksStay) {
  constexpr const char* kText = "still here";
  char* block = nullptr;
  for (int round = 0; round < 50; ++round) {
    Plugin plugin(path());
    if (block != nullptr) plugin.releases(block);
    block = plugin.keeps(kText);
    plugin.close();
    EXPECT_STREQ(block, kText);
  }
}

TEST_P(Unload, ChildrenLoadItAgain) {
  close_before_threads_end(path());
  const ChildEnd end = run_in_child([this] {
    close_before_threads_end(path());
    return 21;
  });
  EXPECT_TRUE(end.exited_with(21)) << end.describe();
}

TEST_P(Unload, InAHandlerOfExit) {
  const ChildEnd end = run_in_child([this] {
    static std::string file;
    file = path();
    std::atexit([] {
      close_before_threads_end(file);
      _exit(21);
    });
    close_before_threads_end(file);
    std::exit(1);
    return 1;
  });
  EXPECT_TRUE(end.exited_with(21)) << end.describe();
}

INSTANTIATE_TEST_SUITE_P(Plugins, Unload, testing::Values("archive_hidden", "object_hidden", "archive_visible"),
                         [](const auto& plugin) { return std::string(plugin.param); });

}  // namespace
}  // namespace freestone_test
