// A program with known allocation calls, for the tests of the recorder: trace_program MODE [N].
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <thread>
#include <vector>

namespace {

volatile void* sink;

template <class T>
T* keep(T* block) {
  sink = block;
  return block;
}

// Makes each kind of call as often as its number below, with a size of 1000 + that number.
void every_kind() {
  for (int i = 0; i < 1; i++) free(keep(malloc(1001)));
  for (int i = 0; i < 2; i++) free(keep(calloc(2, 501)));
  for (int i = 0; i < 3; i++) free(keep(aligned_alloc(64, 1024)));
  for (int i = 0; i < 4; i++) {
    void* block = nullptr;
    if (posix_memalign(&block, 128, 1004) == 0) free(block);
  }
  for (int i = 0; i < 5; i++) free(keep(memalign(256, 1005)));
  for (int i = 0; i < 6; i++) free(keep(valloc(1006)));
  for (int i = 0; i < 7; i++) free(keep(pvalloc(1007)));
  for (int i = 0; i < 8; i++) operator delete(keep(operator new(1008)));
  for (int i = 0; i < 9; i++) operator delete[](keep(operator new[](1009)));
  for (int i = 0; i < 10; i++) operator delete(keep(operator new(1010, std::align_val_t(64))), std::align_val_t(64));
  for (int i = 0; i < 11; i++)
    operator delete[](keep(operator new[](1011, std::align_val_t(64))), std::align_val_t(64));
  for (int i = 0; i < 12; i++) free(keep(realloc(nullptr, 1012)));
  for (int i = 0; i < 13; i++) free(keep(realloc(keep(malloc(2000)), 1013)));
  for (int i = 0; i < 19; i++) operator delete(keep(operator new(1008)), std::size_t{1008});
  for (int i = 0; i < 20; i++) operator delete[](keep(operator new[](1009)), std::size_t{1009});
  for (int i = 0; i < 3; i++) free(keep(reallocarray(nullptr, 3, 1000)));
  for (int i = 0; i < 2; i++) keep(malloc(static_cast<size_t>(1) << 46));  // fails
  free(keep(malloc(size_t{5} << 30)));
  operator delete(keep(operator new(1008, std::nothrow)));
}

struct Slot {
  std::atomic<char*> block{nullptr};
};

// One thread makes N blocks, and another frees them. They go through a ring without a lock.
void handing_over(long count) {
  std::vector<Slot> ring(64);
  std::thread consumer([&] {
    for (long i = 0; i < count; i++) {
      Slot& slot = ring[static_cast<size_t>(i) % ring.size()];
      char* block = nullptr;
      while (!(block = slot.block.exchange(nullptr, std::memory_order_acquire))) std::this_thread::yield();
      free(block);
    }
  });
  for (long i = 0; i < count; i++) {
    Slot& slot = ring[static_cast<size_t>(i) % ring.size()];
    while (slot.block.load(std::memory_order_relaxed)) std::this_thread::yield();
    auto* block = static_cast<char*>(malloc(24 + static_cast<size_t>(i) % 100));
    block[0] = 1;
    slot.block.store(block, std::memory_order_release);
  }
  consumer.join();
}

// The same in turns: one thread makes N blocks, and only then another frees them; ten times.
void in_turns(long count) {
  std::vector<void*> blocks(static_cast<size_t>(count));
  for (int turn = 0; turn < 10; turn++) {
    for (void*& block : blocks) block = malloc(333);
    std::thread([&] {
      for (void* block : blocks) free(block);
    }).join();
  }
}

void many_threads(long count) {
  for (long i = 0; i < count; i++) {
    std::thread([] {
      for (int k = 0; k < 100; k++) free(keep(malloc(77)));
    }).join();
  }
}

// All of them live at once.
void threads_at_once(long count) {
  std::atomic<long> waiting{count};
  std::vector<std::thread> threads;
  for (long i = 0; i < count; i++)
    threads.emplace_back([&] {
      free(keep(malloc(77)));
      waiting--;
      while (waiting.load()) usleep(1000);
      free(keep(malloc(77)));
    });
  for (std::thread& thread : threads) thread.join();
}

// Leaves its parent twice, as daemons do, and works later.
void daemonized(long count) {
  for (int i = 0; i < 2; i++)
    if (fork()) _exit(0);
  usleep(400000);
  for (long i = 0; i < count; i++) free(keep(malloc(55)));
}

// Each child makes a call.
void many_children(long count) {
  for (long i = 0; i < count; i++) {
    const pid_t child = fork();
    if (child == 0) free(keep(malloc(77))), _exit(0);
    waitpid(child, nullptr, 0);
  }
}

// The first call comes when nothing can be opened any more.
void without_files(long count) {
  const rlimit none{0, 0};
  setrlimit(RLIMIT_NOFILE, &none);
  for (long i = 0; i < count; i++) free(keep(malloc(55)));
}

// The child frees what the parent made.
void forking(long count) {
  std::vector<void*> blocks;
  for (long i = 0; i < count; i++) blocks.push_back(malloc(333));
  const pid_t child = fork();
  if (child == 0) {
    for (void* block : blocks) free(block);
    for (int i = 0; i < 10; i++) keep(malloc(444));
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  for (void* block : blocks) free(block);
}

void churn(long count) {
  for (long i = 0; i < count; i++) free(keep(malloc(55)));
}

// Lives like a server: it waits for the order to end.
void until_told(long count) {
  static volatile sig_atomic_t told;
  signal(SIGUSR1, [](int) { told = 1; });
  puts("ready");
  fflush(stdout);
  while (!told) {
    churn(count);
    usleep(1000);
  }
}

// A signal handler that allocates interrupts the recorder between any two instructions.
void signals(long count) {
  static volatile sig_atomic_t handled;
  signal(SIGALRM, [](int) { handled = handled + 1; });
  ualarm(200, 200);
  churn(count);
  ualarm(0, 0);
}

// Uses a quarter of a large block.
void partly_used() {
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);  // otherwise the kernel fills more than the program writes
  auto* block = static_cast<char*>(malloc(size_t{16} << 20));
  memset(block, 1, size_t{4} << 20);
  usleep(400000);
  free(block);
}

struct Mode {
  const char* name;
  void (*run)(long);
};
const Mode kModes[] = {
    {"every-kind", [](long) { every_kind(); }},
    {"hand-over", handing_over},
    {"in-turns", in_turns},
    {"threads", many_threads},
    {"threads-at-once", threads_at_once},
    {"fork", forking},
    {"children", many_children},
    {"daemon", daemonized},
    {"churn", churn},
    {"killed", [](long count) { churn(count), raise(SIGKILL); }},
    {"crash", [](long count) { churn(count), abort(); }},
    {"quick-exit", [](long count) { churn(count), _exit(7); }},
    {"until-told", until_told},
    {"signals", signals},
    {"without-files", without_files},
    {"partly-used", [](long) { partly_used(); }},
};

}  // namespace

int main(int count, char** words) {
  const long number = count > 2 ? atol(words[2]) : 1000;
  for (const Mode& mode : kModes)
    if (count > 1 && !strcmp(words[1], mode.name)) return mode.run(number), 0;
  return 2;
}
