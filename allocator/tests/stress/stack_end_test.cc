// Recursion that allocates runs out of stack, often inside the heap. The handler allocates and leaves by siglongjmp,
// and the heap goes on: no lock stays taken, no block is damaged or given twice (STACK-1).
#include <gtest/gtest.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "base/stack_need.h"
#include "support/child.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr unsigned kThreads = 1500;
constexpr unsigned kHangs = 100;  // seconds; all threads together take two
constexpr size_t kStack = 64 << 10;
constexpr size_t kPage = 4096;

struct Block {
  unsigned char* bytes;
  size_t size;
  unsigned char fill;
};

void fill(Block& block) {
  std::memset(block.bytes, block.fill, std::min<size_t>(block.size, 64));
  block.bytes[block.size - 1] = block.fill;
}

bool is_whole(const Block& block) {
  const auto is_filled = [&](unsigned char byte) { return byte == block.fill; };
  return std::all_of(block.bytes, block.bytes + std::min<size_t>(block.size, 64), is_filled) &&
         block.bytes[block.size - 1] == block.fill;
}

// Some calls of each kind. What it holds is whole at any instruction, except for one block that a call has in hand.
class Caller {
 public:
  explicit Caller(uint64_t seed) : random_(seed) { blocks_.reserve(1 << 16); }

  void call() {
    if (!blocks_.empty() && random_.below(3) == 0) {
      const Block block = take();
      if (!is_whole(block)) ++damaged;
      return api().free(block.bytes);
    }
    Block block{nullptr, random_.log_uniform(8, random_.below(100) == 0 ? 3e6 : 9000),
                static_cast<unsigned char>(random_.next())};
    void* bytes = nullptr;
    switch (random_.below(6)) {
      case 0: bytes = api().calloc(1, block.size); break;
      case 1: bytes = api().realloc(blocks_.empty() ? nullptr : take().bytes, block.size); break;
      case 2:
        if (api().posix_memalign(&bytes, size_t{16} << random_.below(9), block.size) != 0) return;
        break;
      default: bytes = api().malloc(block.size);
    }
    block.bytes = static_cast<unsigned char*>(bytes);
    if (bytes == nullptr || blocks_.size() == blocks_.capacity()) return;
    fill(block);
    blocks_.push_back(block);
  }
  void free_all() {
    while (!blocks_.empty()) {
      const Block block = take();
      if (!is_whole(block)) ++damaged;
      api().free(block.bytes);
    }
  }

  unsigned damaged = 0;

 private:
  Block take() {
    const Block block = blocks_.back();
    blocks_.pop_back();
    return block;
  }

  Random random_;
  std::vector<Block> blocks_;
};

thread_local sigjmp_buf outside;

void leave(int) {
  pthread_attr_t attributes;  // glibc allocates for it
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) pthread_attr_destroy(&attributes);
  api().free(api().malloc(100));
  siglongjmp(outside, 1);
}

#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline)) int deeper(Caller& caller) {  // NOLINT(misc-no-recursion)
  std::array<volatile char, 48> room{};
  caller.call();
  return deeper(caller) + room[0];
}

struct Overflow {
  uint64_t seed;
  size_t moved;  // bytes by which the thread's frames lie lower
  unsigned damaged;
};

void* overflow(void* argument) {
  Overflow& what = *static_cast<Overflow*>(argument);
  std::vector<char> other(64 << 10);
  const stack_t stack = {.ss_sp = other.data(), .ss_flags = 0, .ss_size = other.size()};
  sigaltstack(&stack, nullptr);
  auto* const moved = static_cast<volatile char*>(__builtin_alloca(what.moved + 16));
  moved[0] = 1;
  Caller caller(what.seed);
  if (sigsetjmp(outside, 1) == 0) deeper(caller);
  caller.free_all();
  for (int i = 0; i < 3000; ++i) api().free(api().malloc(1 + i * 13 % 9000));
  what.damaged = caller.damaged;
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  sigaltstack(&none, nullptr);
  return nullptr;
}

int overflow_threads(uint64_t seed) {
  alarm(kHangs);
  struct sigaction action = {};
  action.sa_handler = leave;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  unsigned damaged = 0;
  for (size_t i = 0; i < scaled(kThreads); ++i) {
    Overflow what{seed + i, 16 * i % kPage, 0};
    pthread_t thread;
    if (pthread_create(&thread, &attributes, overflow, &what) != 0) return 2;
    pthread_join(thread, nullptr);
    damaged += what.damaged;
  }
  return damaged == 0 ? 0 : 1;
}

TEST(StackEnd, TheHeapGoesOnAfterAHandlerLeft) {
  const uint64_t seed = test_seed("stack_end");
  EXPECT_TRUE(ends_well([seed] { return overflow_threads(seed); }));
}

// The bytes of stack that one call writes, from the caller's frame down.
template <typename Call>
__attribute__((noinline)) size_t depth_of(Call call) {
  constexpr size_t kBelow = 16 << 10, kOwn = 512;
  constexpr unsigned char kMark = 0xA5;
  char* const frame = static_cast<char*>(__builtin_frame_address(0));
  volatile char* const low = frame - kBelow;
  for (size_t i = 0; i < kBelow - kOwn; ++i) low[i] = static_cast<char>(kMark);
  call();
  size_t untouched = 0;
  while (low[untouched] == static_cast<char>(kMark)) ++untouched;
  return kBelow - untouched;
}

TEST(StackEnd, NoCallNeedsMoreThanIsAskedFor) {
  size_t most = 0;
  std::thread([&most] {
    Caller caller(test_seed("stack_end"));
    for (int i = 0; i < 400'000; ++i) {
      most = std::max(most, depth_of([&] { caller.call(); }));
      if (i % 5000 == 0) caller.free_all();
    }
  }).join();
  std::printf("%zu of %zu bytes\n", most, freestone::kStackNeed);
  EXPECT_LE(most, freestone::kStackNeed);
}

TEST(StackEnd, SingleFiguresNeedLessThanAPage) {
  std::thread([] {
#if defined(__GLIBC__)
    EXPECT_LT(depth_of([] { (void)api().mallinfo2(); }), kPage);
    EXPECT_LT(depth_of([] { (void)api().mallinfo(); }), kPage);
#endif
    using Mallctl = int (*)(const char*, void*, size_t*, void*, size_t);
    const auto mallctl = reinterpret_cast<Mallctl>(dlsym(RTLD_DEFAULT, "mallctl"));
    size_t value = 0, bytes = sizeof value;
    EXPECT_LT(depth_of([&] { mallctl("stats.allocated", &value, &bytes, nullptr, 0); }), kPage);
    EXPECT_LT(depth_of([] { api().malloc_trim(0); }), kPage);
  }).join();
}

}  // namespace
}  // namespace freestone_test
