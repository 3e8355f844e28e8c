// dlopen, throw, fork, dumps by call and by signal, threads that come and go, and allocation in between, all at once:
// storm_probe SECONDS GUEST.
// Ends with 0 when every thread made progress to the end; a watchdog ends it with 9 when one did not.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>
#include <vector>

namespace {

std::atomic<bool> over{false};
const char* guest_path;
enum Kind { kLoads, kThrows, kForks, kDumps, kSignals, kThreads, kAllocates, kKinds };
const char* const kNames[kKinds] = {"loads", "throws", "forks", "dumps", "signals", "threads", "allocates"};
std::atomic<unsigned long> progress[kKinds];
constexpr unsigned long kLeastSteps = 10;  // of each kind

struct Rare {
  char text[300];
};

__attribute__((noinline)) void throw_at(int depth) {
  std::string local(50 + depth, 'a');  // unwinding frees it
  if (depth == 0) throw Rare{};
  throw_at(depth - 1);
  asm volatile("" : : "r"(local.data()));
}

void loads() {
  void* guest = dlopen(guest_path, RTLD_NOW | RTLD_LOCAL);
  if (guest == nullptr) abort();
  const auto run = reinterpret_cast<int (*)(int)>(dlsym(guest, "storm_guest"));
  if (run(5) < 5) abort();
  dlclose(guest);
}

void throws() {
  try {
    throw_at(20);
    abort();
  } catch (const Rare&) {
  }
}

void forks() {
  const pid_t child = fork();
  if (child == 0) {
    std::vector<void*> blocks;
    for (int i = 0; i < 200; ++i) blocks.push_back(malloc(static_cast<size_t>(i) * 37));
    for (void* block : blocks) free(block);
    try {
      throw_at(3);
    } catch (const Rare&) {
    }
    _exit(0);
  }
  int status = 0;
  if (child > 0 && (waitpid(child, &status, 0) != child || status != 0)) abort();
}

void dumps() {
  static const auto dump = reinterpret_cast<int (*)(const char*)>(dlsym(RTLD_DEFAULT, "freestone_prof_dump"));
  if (dump != nullptr && dump(nullptr) != 0) abort();
  usleep(2000);
}

void signals() {
  kill(getpid(), SIGUSR2);
  if (progress[kSignals] % 16 == 0) {
    kill(getpid(), SIGUSR1);  // off
    usleep(300);
    kill(getpid(), SIGUSR1);  // on
  }
  usleep(1000);
}

void* short_thread(void*) {
  void* blocks[64];
  for (int i = 0; i < 64; ++i) blocks[i] = malloc(static_cast<size_t>(i) * 100);
  for (void* block : blocks) free(block);
  return nullptr;
}

void threads() {
  pthread_t ids[4];
  for (pthread_t& id : ids) pthread_create(&id, nullptr, short_thread, nullptr);
  for (pthread_t id : ids) pthread_join(id, nullptr);
}

void allocates() {
  static thread_local void* held[256];
  static thread_local unsigned turn = 1;
  for (int i = 0; i < 200; ++i) {
    turn = turn * 1664525u + 1013904223u;
    void*& slot = held[(turn >> 8) % 256];
    if (turn % 3 == 0) {
      slot = realloc(slot, turn % 50000 + 1);
    } else {
      free(slot);
      slot = turn % 7 == 0 ? calloc(3, turn % 9000 + 1) : malloc(turn % 2000 + 1);
    }
    if (slot != nullptr) static_cast<char*>(slot)[0] = 1;
  }
}

void* keep_going(void* argument) {
  static void (*const work[kKinds])() = {loads, throws, forks, dumps, signals, threads, allocates};
  const auto kind = static_cast<Kind>(reinterpret_cast<long>(argument));
  while (!over) {
    work[kind]();
    ++progress[kind];
  }
  return nullptr;
}

// In a thread of its own that does not allocate: a kind that makes no step for twenty minutes is stuck.
void* watch(void*) {
  unsigned long seen[kKinds] = {};
  int idle[kKinds] = {};
  while (!over) {
    for (int i = 0; i < 100 && !over; ++i) usleep(10000);
    for (int k = 0; k < kKinds; ++k) {
      idle[k] = progress[k] == seen[k] ? idle[k] + 1 : 0;
      seen[k] = progress[k];
      if (idle[k] < 1200) continue;
      char line[64];
      const int length = snprintf(line, sizeof line, "stuck: %s\n", kNames[k]);
      if (write(2, line, static_cast<size_t>(length)) != length) _exit(8);
      _exit(9);
    }
  }
  return nullptr;
}

}  // namespace

int main(int, char** arguments) {
  const int seconds = atoi(arguments[1]);
  guest_path = arguments[2];
  pthread_t ids[kKinds + 1];
  for (long k = 0; k < kKinds; ++k) pthread_create(&ids[k], nullptr, keep_going, reinterpret_cast<void*>(k));
  pthread_create(&ids[kKinds], nullptr, watch, nullptr);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  const auto each_kind_ran = [] {
    return std::all_of(std::begin(progress), std::end(progress),
                       [](const auto& steps) { return steps >= kLeastSteps; });
  };
  while (std::chrono::steady_clock::now() < end || !each_kind_ran()) usleep(10000);
  over = true;
  for (pthread_t id : ids) pthread_join(id, nullptr);
  for (int k = 0; k < kKinds; ++k) printf("%s %lu\n", kNames[k], progress[k].load());
  fflush(stdout);
  return 0;
}
