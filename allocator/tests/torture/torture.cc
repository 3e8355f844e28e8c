// One program over the whole surface, for a kernel that refuses (stand_in.cc): threads that come and go, forks,
// signals, limits, other programs and libraries meanwhile. Whatever is refused, it promises no death, no hang, no
// damage and no wrong errno, and that memory comes back when the refusal ends. It uses no stdio and no exception's
// memory of the heap's, so that nothing but the library can miss a promise.
//
//   torture SEED MILLISECONDS [quiet|inner]
//
// quiet: nothing is asked for that asks the kernel for more than glibc's malloc does. inner: run by another one.
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "support/process_memory.h"
#include "surface.h"

namespace torture {
namespace {

using freestone_test::Random;
using freestone_test::resident_bytes;
using freestone_test::said_bytes;

constexpr size_t kMiB = size_t{1} << 20;
constexpr unsigned kHangSeconds = 60;  // of a child
constexpr unsigned kWorkers = 3;
constexpr const char* kInnerOptions =
    "FREESTONE_CONF=live_page:true,background_purge:true,prof:true,prof_sample_bytes:64k,prof_file:inner.%n.heap,"
    "leak:report,leak_file:inner.leaks,stats_file:inner.prom,stats_interval_ms:5,guard_sample:256k,pressure:true,"
    "limit_soft:50%";

std::atomic<bool> stop{false};
std::atomic<uint64_t> seeds;
thread_local volatile sig_atomic_t is_born = 0;  // in a handler
thread_local volatile pid_t born = 0;            // the child of a handler that nobody has waited for
thread_local unsigned signals = 0;
pthread_key_t key;
std::atomic<void*> reserve{nullptr};

uint64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

// Ends by a signal are the child's number + 1000.
void wait_for(pid_t child, const char* who) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) HOLDS(errno == EINTR, who, child);
  HOLDS(status == 0, who, WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status));
}

void become_child() {
  alone = 1;
  alarm(kHangSeconds);
}

[[noreturn]] void live_as_child(Worker& worker) {
  for (unsigned k = 0; k < 60; ++k) worker.step();
  worker.release_all();
  malloc_trim(0);
  _exit(0);
}

void fork_here(Worker& worker) {
  const pid_t child = fork();
  if (child == 0) {
    become_child();
    live_as_child(worker);
  }
  if (child > 0) wait_for(child, "a child did not come to its end");
}

// Forks in calls. The child goes on with the call that was interrupted.
void on_signal(int) {
  const int kept = errno;
  if (inside != 0 && alone == 0 && born == 0 && ++signals % 16 == 0) {
    const pid_t child = fork();
    if (child == 0) {
      become_child();
      is_born = 1;
    } else if (child > 0) {
      born = child;
    }
  }
  errno = kept;
}

void settle(Worker& worker) {
  if (is_born != 0) live_as_child(worker);
  if (born == 0) return;
  wait_for(born, "a child of a handler did not come to its end");
  born = 0;
}

void* work(void*) {
  Worker worker(seeds.fetch_add(1));
  for (unsigned k = 1; !stop; ++k) {
    worker.step();
    settle(worker);
    if (k % 512 == 0) fork_here(worker);
  }
  return nullptr;
}

// Comes and goes, with blocks in its end; cancelled here and there.
void* work_briefly(void*) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  pthread_setspecific(key, malloc(500));
  Worker worker(seeds.fetch_add(1));
  for (unsigned k = 0; k < 150; ++k) {
    worker.step();
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    pthread_testcancel();
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  }
  return nullptr;
}

void at_thread_end(void* block) {
  static thread_local int rounds = 0;
  free(block);
  Worker(seeds.fetch_add(1)).step();
  if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS + 1) pthread_setspecific(key, malloc(3000));
}

int out_of_memory(void*, size_t, unsigned) {
  void* const kept = reserve.exchange(nullptr);
  free(kept);
  return kept != nullptr ? 1 : 0;
}

class Master {
 public:
  Master(uint64_t seed, bool is_inner) : random_(seed), worker_(seed + 1), is_inner_(is_inner) {}

  void run(uint64_t milliseconds) {
    const size_t before = resident_bytes();
    // To cancel, glibc loads this, and ends a process that has no memory for it.
    can_cancel_ = dlopen("libgcc_s.so.1", RTLD_NOW) != nullptr;
    HOLDS(pthread_key_create(&key, at_thread_end) == 0, "pthread_key_create", 0);
    struct sigaction action{};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    pthread_t threads[kWorkers];
    unsigned count = 0;
    while (count < kWorkers && pthread_create(&threads[count], nullptr, work, nullptr) == 0) ++count;
    if (!is_inner_) spawn();
    const uint64_t end = now_ms() + milliseconds;
    for (unsigned round = 0; round < 24 || now_ms() < end; ++round) {
      act(round);
      for (unsigned k = 0; k < 8; ++k) {
        if (count != 0) pthread_kill(threads[random_.below(count)], SIGUSR1);
        worker_.step();
      }
    }
    stop = true;
    for (unsigned k = 0; k < count; ++k) pthread_join(threads[k], nullptr);
    if (spawned_ != 0) wait_for(spawned_, "a program that was started did not come to its end");
    lift(before);
  }

 private:
  void act(unsigned round) {
    switch (round % 8) {
      case 0:
      case 4: return thread();
      case 1: return fork_here(worker_);
      case 2: return load();
      case 3: return asks ? limit() : worker_.release_all();
      case 5: return call_back();
      case 6: return asks && is_inner_ ? report() : worker_.release_all();
      default:
        if (asks) mallctl("background_thread", nullptr, nullptr, &(background_ = !background_), sizeof background_);
    }
  }

  void thread() {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, work_briefly, nullptr) != 0) return;
    const uint64_t dice = random_.below(3);
    if (dice == 0) {
      pthread_detach(thread);
      return;
    }
    if (dice == 1 && can_cancel_) pthread_cancel(thread);
    pthread_join(thread, nullptr);
  }

  void load() {
    if (void* library = dlopen("libanl.so.1", RTLD_NOW | RTLD_LOCAL)) dlclose(library);
  }

  // Below what is held, a little above, and back.
  void limit() {
    freestone_limits first{FREESTONE_LIMITS_VERSION, 0, 0, 0};
    HOLDS(freestone_get_limits(&first) == 0, "freestone_get_limits", 0);
    freestone_stats stats;
    stats.version = FREESTONE_STATS_VERSION;
    HOLDS(freestone_get_stats(&stats) == 0, "freestone_get_stats", 0);
    freestone_limits lower = first;
    lower.hard_bytes = stats.charged_bytes + random_.below(4 * kMiB);
    lower.soft_bytes = lower.hard_bytes / 2;
    set_limits(lower);
    for (unsigned k = 0; k < 40; ++k) worker_.step();
    set_limits(first);
  }
  static void set_limits(const freestone_limits& limits) {
    const int error = freestone_set_limits(&limits);
    HOLDS(error == 0 || error == EPERM, "freestone_set_limits", error);
  }

  void call_back() {
    const freestone_callbacks callbacks{FREESTONE_CALLBACKS_VERSION, 0, nullptr, out_of_memory, nullptr};
    free(reserve.exchange(malloc(200000)));
    const int error = freestone_set_callbacks(random_.below(2) == 0 ? &callbacks : nullptr);
    HOLDS(error == 0 || error == EPERM, "freestone_set_callbacks", error);
  }

  void report() {
    freestone_leak_check();
    const int error = freestone_stats_report();
    HOLDS(error == 0 || error == EBUSY || error == EIO, "freestone_stats_report", error);
  }

  // Itself, with everything asked for that can be.
  void spawn() {
    char seed[24];
    std::snprintf(seed, sizeof seed, "%llu", static_cast<unsigned long long>(random_.next()));
    char name[] = "torture", milliseconds[] = "300", quiet[] = "quiet", inner[] = "inner";
    char* const words[] = {name, seed, milliseconds, asks ? inner : quiet, asks ? nullptr : inner, nullptr};
    constexpr size_t kVariables = 256;
    char* variables[kVariables + 2];
    size_t count = 0;
    for (char** at = environ; *at != nullptr && count < kVariables; ++at) variables[count++] = *at;
    if (asks) variables[count++] = const_cast<char*>(kInnerOptions);
    variables[count] = nullptr;
    if (posix_spawn(&spawned_, "/proc/self/exe", nullptr, nullptr, words, variables) != 0) spawned_ = 0;
  }

  // Half of a pile is freed while the kernel refuses, the rest after it.
  void lift(size_t before) {
    constexpr size_t kSmall = 6000;
    constexpr size_t kPile = kSmall + 64 + 2;
    void** const pile = static_cast<void**>(
        mmap(nullptr, kPile * sizeof(void*), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (size_t k = 0; k < kPile; ++k) {
      const size_t size = k < kSmall ? 3000 : k < kSmall + 64 ? 300000 : 40 * kMiB;
      pile[k] = malloc(size);
      if (pile[k] != nullptr) std::memset(pile[k], 1, size);
    }
    for (size_t k = 0; k < kPile; k += 2) free(pile[k]);
    stand_in_lift();
    set_limits({FREESTONE_LIMITS_VERSION, 0, 0, 0});
    freestone_set_callbacks(nullptr);
    if (asks) mallctl("background_thread", nullptr, nullptr, &(background_ = false), sizeof background_);
    for (size_t k = 1; k < kPile; k += 2) free(pile[k]);
    free(reserve.exchange(nullptr));
    worker_.release_all();
    for (const size_t size : {size_t{100}, 64 * kMiB}) {
      void* const block = malloc(size);
      HOLDS(block != nullptr, "no memory after the refusal", size);
      std::memset(block, 1, size);
      free(block);
    }
    await("a thread did not end", [] { return said_bytes("/proc/self/status", "Threads:") / 1024; }, 1);
    await(
        "memory did not come back", [] { return freestone_flush_thread(), malloc_trim(0), resident_bytes(); },
        before + kLeftBytes);
    const char* damage = "";
    HOLDS(freestone_validate(&damage) == 0, damage, 0);
  }
  template <typename Figure>
  static void await(const char* what, Figure figure, size_t bound) {
    const timespec pause{0, 20'000'000};
    size_t value = 0;
    for (const uint64_t end = now_ms() + 5000; (value = figure()) > bound && now_ms() < end;)
      nanosleep(&pause, nullptr);
    if (value > bound) freestone_stats_write(STDERR_FILENO, FREESTONE_TEXT);
    HOLDS(value <= bound, what, value);
  }

  static constexpr size_t kLeftBytes = 16 * kMiB;

  Random random_;
  Worker worker_;
  bool is_inner_;
  bool can_cancel_ = false;
  bool background_ = false;
  pid_t spawned_ = 0;
};

}  // namespace
}  // namespace torture

int main(int count, char** words) {
  const auto has = [&](const char* word) {
    for (int k = 3; k < count; ++k)
      if (std::strcmp(words[k], word) == 0) return true;
    return false;
  };
  HOLDS(count >= 3, "torture SEED MILLISECONDS [quiet|inner]", count);
  HOLDS(freestone_is_active() == 1, "the library is not the malloc here", 0);
  const uint64_t seed = std::strtoull(words[1], nullptr, 0);
  torture::asks = !has("quiet");
  torture::seeds = seed + 1000;
  torture::Master(seed, has("inner")).run(std::strtoull(words[2], nullptr, 0));
  return 0;
}
