// A fork at the worst moment, enumerated: a thread is held before and after each system call of each slow path, while
// another thread forks in each way there is, ends, or cancels it. The child must get memory of all kinds and find its
// blocks and the heap whole; the parent goes on.
#include <dlfcn.h>
#include <freestone/freestone.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>

#include "stress/holder.h"
#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// What only libfreestone has.
#define OF_SUBJECT(name) reinterpret_cast<decltype(&name)>(dlsym(RTLD_DEFAULT, #name))

void set_limit(uint64_t hard) {
  const freestone_limits limits{FREESTONE_LIMITS_VERSION, 0, 0, hard};
  OF_SUBJECT(freestone_set_limits)(&limits);
}

// Blocks of all kinds, filled: what nobody changes.
class Blocks {
 public:
  void fill(unsigned seed) {
    static constexpr size_t kSizes[] = {24,      200,      2000,     9000,     30000,    60000,
                                        110000, 400000, 2 * kMiB, 5 * kMiB, 33 * kMiB};
    for (unsigned k = 0; k < kCount; ++k) {
      held_[k] = {nullptr, kSizes[k % (sizeof kSizes / sizeof *kSizes)], static_cast<unsigned char>(seed + k)};
      held_[k].start = static_cast<unsigned char*>(api().malloc(held_[k].bytes));
      for_places(held_[k], [](unsigned char& place, unsigned char mark) { return place = mark, true; });
    }
  }
  bool are_whole() const {
    for (const Block& block : held_) {
      if (block.start == nullptr ||
          !for_places(block, [](unsigned char& place, unsigned char mark) { return place == mark; }))
        return false;
    }
    return true;
  }
  void free_all() {
    for (Block& block : held_) {
      api().free(block.start);
      block.start = nullptr;
    }
  }

 private:
  static constexpr unsigned kCount = 33;
  struct Block {
    unsigned char* start;
    size_t bytes;
    unsigned char mark;
  };
  // Every byte of a small block; of others the first, the last and one in 64 KiB.
  template <typename Look>
  static bool for_places(const Block& block, Look look) {
    if (block.start == nullptr) return false;
    for (size_t at = 0; at < block.bytes; at += block.bytes < 4096 ? 1 : 65536)
      if (!look(block.start[at], block.mark)) return false;
    return look(block.start[block.bytes - 1], block.mark);
  }
  Block held_[kCount];
};

Blocks old_blocks;        // from before
bool lifts_limit = false;  // a child does so first: it is forked where there is no memory to be had

bool tell(const char* what) {
  dprintf(STDERR_FILENO, "%s\n", what);
  return false;
}

// In a child, by any of its threads, or in the parent: memory of all kinds can be had.
bool memory_can_be_had(unsigned seed) {
  static thread_local Blocks fresh;
  fresh.fill(seed);
  if (!fresh.are_whole()) return tell("a block of usual size is null or damaged");
  void* few[300];
  for (void*& block : few) {
    block = api().malloc(30000);  // more than is free: the heap must grow
    if (block == nullptr) return tell("malloc(30000) is null");
  }
  for (void* block : few) api().free(block);
  void* aligned = nullptr;
  if (api().posix_memalign(&aligned, kMiB, 3 * kMiB) != 0) return tell("posix_memalign fails");
  auto* clear = static_cast<unsigned char*>(api().calloc(1, 100000));
  if (clear == nullptr || clear[0] != 0 || clear[99999] != 0) return tell("calloc fails");
  auto* moved = static_cast<unsigned char*>(api().malloc(34 * kMiB));
  if (moved == nullptr || (moved = static_cast<unsigned char*>(api().realloc(moved, 50 * kMiB))) == nullptr)
    return tell("realloc of a mapping fails");
  api().free(moved);
  api().free(clear);
  api().free(aligned);
  if (!fresh.are_whole()) return tell("a fresh block was damaged");
  fresh.free_all();
  return true;
}

// Where no other thread runs.
bool heap_is_whole() {
  if (!old_blocks.are_whole()) return tell("an old block was damaged");
  const char* damage = nullptr;
  if (const auto validate = OF_SUBJECT(freestone_validate); validate != nullptr && validate(&damage) != 0)
    return tell(damage);
  return true;
}

int judge_child(unsigned seed) {
  if (!memory_can_be_had(seed) || !heap_is_whole()) return 1;
  old_blocks.free_all();
  api().malloc_trim(0);
  const char* damage = nullptr;
  if (const auto validate = OF_SUBJECT(freestone_validate); validate != nullptr && validate(&damage) != 0)
    return tell(damage), 1;
  return 0;
}

// Ways to fork. A raw clone takes no notice of handlers.
pid_t fork_plainly() { return fork(); }
pid_t fork_raw() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr)); }
pid_t fork_without_handlers() {
  static const auto of_libc = reinterpret_cast<pid_t (*)()>(dlsym(RTLD_DEFAULT, "_Fork"));  // since glibc 2.34
  return of_libc != nullptr ? of_libc() : fork_raw();
}

bool ends_well(pid_t child) {
  int status = 0;
  if (child < 0) return tell("no child");
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return true;
  dprintf(STDERR_FILENO, "the child ended with status %x\n", static_cast<unsigned>(status));
  return false;
}

template <typename Work>
bool in_child(pid_t (*make)(), Work work) {
  const pid_t child = make();
  if (child == 0) {
    alarm(kHangSeconds);
    if (lifts_limit) set_limit(0);
    _exit(work());
  }
  note_independent();
  return ends_well(child);
}

void* have_memory(void* seed) {
  return memory_can_be_had(static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed))) ? nullptr : seed;
}

// Threads before anything else.
int start_threads_first(unsigned seed) {
  pthread_t threads[3];
  bool good = true;
  for (uintptr_t k = 0; k < 3; ++k)
    if (pthread_create(&threads[k], nullptr, have_memory, reinterpret_cast<void*>(seed + k + 1)) != 0) return 2;
  good = memory_can_be_had(seed);
  for (const pthread_t thread : threads) {
    void* result;
    pthread_join(thread, &result);
    good = good && result == nullptr;
  }
  return good ? judge_child(seed) : 1;
}

int fork_again(unsigned seed) {
  const bool at_once = in_child(fork_raw, [=] { return judge_child(seed); });
  const bool later = memory_can_be_had(seed) && in_child(fork_plainly, [=] { return judge_child(seed); });
  return at_once && later ? judge_child(seed) : 1;
}

bool vforked_child_works() {
  const pid_t child = vfork();
  if (child == 0) {
    for (const size_t bytes : {100, 3000, 30000, 300000}) api().free(api().malloc(bytes));
    _exit(0);
  }
  return ends_well(child);
}

bool thread_comes_and_goes() {
  pthread_t thread;
  void* result = nullptr;
  return pthread_create(&thread, nullptr, have_memory, reinterpret_cast<void*>(uintptr_t{9})) == 0 &&
         pthread_join(thread, &result) == 0 && (result == nullptr || lifts_limit);
}

struct Act {
  const char* name;
  bool (*run)(unsigned seed);
};
const Act kActs[] = {
    {"fork", [](unsigned seed) { return in_child(fork_plainly, [=] { return judge_child(seed); }); }},
    {"raw clone", [](unsigned seed) { return in_child(fork_raw, [=] { return judge_child(seed); }); }},
    {"_Fork", [](unsigned seed) { return in_child(fork_without_handlers, [=] { return judge_child(seed); }); }},
    {"fork, threads first",
     [](unsigned seed) { return in_child(fork_plainly, [=] { return start_threads_first(seed); }); }},
    {"raw clone, threads first",
     [](unsigned seed) { return in_child(fork_raw, [=] { return start_threads_first(seed); }); }},
    {"raw clone that forks", [](unsigned seed) { return in_child(fork_raw, [=] { return fork_again(seed); }); }},
    {"fork, exit", [](unsigned seed) {
       return in_child(fork_plainly, [=]() -> int {
         if (!memory_can_be_had(seed)) return 1;
         exit(0);
       });
     }},
    {"vfork", [](unsigned) { return vforked_child_works(); }},
    {"end of a thread", [](unsigned) { return thread_comes_and_goes(); }},
    {"cancel", [](unsigned) { return pthread_cancel(held_thread()), true; }},
};
constexpr unsigned kActCount = sizeof kActs / sizeof *kActs;

// The same from a thread that is not the first.
struct Order {
  const Act* act;
  unsigned seed;
};
void* run_in_thread(void* order) {
  const Order& wanted = *static_cast<Order*>(order);
  return wanted.act->run(wanted.seed) ? nullptr : order;
}
class OtherThread {
 public:
  void start() { pthread_create(&thread_, nullptr, run, this); }
  bool run_there(const Act& act, unsigned seed) {
    order_ = {&act, seed};
    char result = 0;
    return write(to_[1], "g", 1) == 1 && read(from_[0], &result, 1) == 1 && result == 'y';
  }
  OtherThread() {
    if (pipe(to_) != 0 || pipe(from_) != 0) abort();
  }

 private:
  static void* run(void* self) {
    auto& other = *static_cast<OtherThread*>(self);
    for (char go; read(other.to_[0], &go, 1) == 1;) {
      const bool good = run_in_thread(&other.order_) == nullptr;
      if (write(other.from_[1], good ? "y" : "n", 1) != 1) break;
    }
    return nullptr;
  }
  pthread_t thread_;
  int to_[2];
  int from_[2];
  Order order_;
};

// The slow paths.
struct Path {
  const char* name;
  void (*prepare)();
  void (*work)();
  long expected_call;  // that must be among those held; 0: any
  bool needs_freestone;
  uint64_t seed = 0;  // 0: drawn
};

void nothing() {}
void* kept[4000];

void allocate_and_free(size_t bytes, unsigned count) {
  for (unsigned k = 0; k < count; ++k) kept[k] = api().malloc(bytes);
  for (unsigned k = 0; k < count; ++k) api().free(kept[k]);
}

void make_dirty() {
  for (unsigned k = 0; k < 12; ++k) kept[k] = api().malloc(3 * kMiB);
  for (unsigned k = 0; k < 12; ++k) memset(kept[k], 1, 3 * kMiB);
}
void free_and_trim() {
  for (unsigned k = 0; k < 12; k += 2) api().free(kept[k]);
  for (unsigned k = 1; k < 12; k += 2) api().free(kept[k]);
  api().malloc_trim(0);
}

const Path kPaths[] = {
    {"first call of a thread", nothing, [] { api().free(api().malloc(100)); }, SYS_gettid, false},
    {"growth by small blocks", nothing, [] { allocate_and_free(30000, 2000); }, SYS_mmap, false},
    {"growth by class runs", nothing, [] { allocate_and_free(120000, 3000); }, SYS_mmap, false},
    {"growth by runs", nothing, [] { allocate_and_free(1000000, 400); }, SYS_mmap, false},
    {"growth by large runs", nothing, [] { allocate_and_free(9 * kMiB, 12); }, SYS_mmap, false},
    {"own mappings", nothing, [] { allocate_and_free(40 * kMiB, 20); }, SYS_munmap, false},
    {"aligned mappings", nothing,
     [] {
       void* block = nullptr;
       if (api().posix_memalign(&block, 8 * kMiB, 40 * kMiB) == 0) api().free(block);
     },
     SYS_munmap, false},
    {"realloc of a mapping", nothing,
     [] {
       void* block = api().malloc(40 * kMiB);
       for (const size_t bytes : {60 * kMiB, 90 * kMiB, 50 * kMiB, 36 * kMiB, 70 * kMiB, 100000ul})
         block = api().realloc(block, bytes);
       api().free(block);
     },
     SYS_mremap, false},
    {"realloc of a run", nothing,
     [] {
       void* block = api().malloc(50000);
       for (size_t bytes = 60000; bytes < 60 * kMiB; bytes += bytes / 2) block = api().realloc(block, bytes);
       api().free(block);
     },
     SYS_mmap, false},
    {"purge", make_dirty,
     [] {
       for (unsigned k = 0; k < 12; ++k) api().free(kept[k]);
       allocate_and_free(100000, 40);
     },
     SYS_madvise, false},
    {"trim", make_dirty, free_and_trim, SYS_madvise, false},
    // A first thread of the child that looks for a slab in the group in which the held thread had one.
    {"trim in a known order", make_dirty, free_and_trim, SYS_madvise, false, 0xc69e4c38ba4b8787},
    {"small blocks of many sizes", nothing,
     [] {
       for (unsigned k = 0; k < 600; ++k) memset(kept[k] = api().malloc(k * 50), 1, k * 50);
       for (unsigned k = 0; k < 600; ++k) api().free(kept[k]);
     },
     0, false},
    {"start and end of a thread", nothing,
     [] {
       pthread_t thread;
       if (pthread_create(&thread, nullptr, have_memory, nullptr) == 0) pthread_join(thread, nullptr);
     },
     SYS_mmap, false},
    {"profile", nothing,
     [] {
       OF_SUBJECT(freestone_option_set)("prof_sample_bytes", "2k");
       OF_SUBJECT(freestone_prof_start)();
       allocate_and_free(1500, 200);
       OF_SUBJECT(freestone_prof_stop)();
     },
     SYS_gettid, true},
    {"heap objects", nothing,
     [] {
       freestone_heap* heap = OF_SUBJECT(freestone_heap_create)(512 * kMiB);
       for (unsigned k = 0; k < 300; ++k) OF_SUBJECT(freestone_heap_allocate)(heap, 100 + k * 5000);
       OF_SUBJECT(freestone_heap_destroy)(heap);
     },
     SYS_mmap, true},
    {"hard limit", [] { lifts_limit = true; },
     [] {
       freestone_stats stats{};
       stats.version = FREESTONE_STATS_VERSION;
       OF_SUBJECT(freestone_get_stats)(&stats);
       set_limit(stats.charged_bytes + 12 * kMiB);
       unsigned count = 0;
       while (count < 100 && (kept[count] = api().malloc(count % 2 == 0 ? 700000 : 50000)) != nullptr) ++count;
       api().malloc(40 * kMiB);
       while (count-- > 0) api().free(kept[count]);
       set_limit(uint64_t{900} << 30);
     },
     SYS_madvise, true},
};

class ForkHeld : public testing::TestWithParam<Path> {};

TEST_P(ForkHeld, AtEachSystemCallLeavesTheChildAndTheParentAWholeHeap) {
  const Path& path = GetParam();
  if (path.needs_freestone && !subject().is_freestone) GTEST_SKIP() << "a path of libfreestone";
  const uint64_t seed = path.seed != 0 ? path.seed : test_seed(path.name);
  const bool limited = subject().is_freestone && seed % 2 == 0;  // what is in flight then counts, too
  const bool all = scaled(10) > 10;
  static OtherThread* other;
  static unsigned passes;
  passes = all ? 2 * kActCount : 1;
  const Held held{
      .prepare =
          [&] {
            if (limited) set_limit(uint64_t{900} << 30);
            old_blocks.fill(1);
            path.prepare();
            other = new OtherThread;
            other->start();
          },
      .work = path.work,
      .act =
          [&](unsigned point) {
            for (unsigned pass = 0; pass < passes; ++pass) {
              const uint64_t turn = seed / 2 + point * 7 + pass;  // 7 has no divisor in common with 2 * kActCount
              const Act& act = kActs[turn % (2 * kActCount) / 2];
              const bool good = turn % 2 == 0 ? act.run(point) : other->run_there(act, point);
              if (good) continue;
              dprintf(STDERR_FILENO, "at point %u: %s from %s thread%s\n", point, act.name,
                      turn % 2 == 0 ? "the first" : "another", limited ? ", under a limit" : "");
              return false;
            }
            return true;
          },
      .judge = [] { return memory_can_be_had(77) && heap_is_whole() ? 0 : 2; },
      .all = all,
      .offset = static_cast<unsigned>(seed >> 32),
  };
  HeldEnd end = run_held(held);
  // Beside others' load an act may last longer than the rest of a short path, and few calls of a long one are held.
  const auto is_short = [&] {
    const bool taken = path.expected_call == 0 || end.calls.count(path.expected_call) != 0;
    return end.points < 6 || (subject().is_freestone && !taken);
  };
  for (unsigned again = 0; again < 5 && end.child.exited_with(0) && is_short(); ++again) end = run_held(held);
  if (!end.refused.empty()) GTEST_SKIP() << "nothing can be held here: " << end.refused;
  std::printf("%s: held at %u points of %zu kinds of calls, %u acts over before it went on\n", path.name, end.points,
              end.calls.size(), end.answered);
  EXPECT_TRUE(end.child.exited_with(0)) << end.child.describe();
  EXPECT_GE(end.points, 6u);
  EXPECT_GE(end.answered, 1u);
  if (subject().is_freestone && path.expected_call != 0) {
    EXPECT_EQ(end.calls.count(path.expected_call), 1u) << "the path was not taken";
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, ForkHeld, testing::ValuesIn(kPaths), [](const auto& path) {
  std::string name = path.param.name;
  for (char& letter : name)
    if (letter == ' ') letter = '_';
  return name;
});

}  // namespace
}  // namespace freestone_test
