// A library that registers fork handlers from its constructor, as loggers and language runtimes do, and lets the test
// say what they do.
#include "stress/fork_handler_library.h"

#include <pthread.h>

#include <cstdlib>
#include <cstring>

namespace {

ForkHandlerAction actions[kForkHandlerMoments] = {};
void* kept[256];
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int runs = 0;

void* use_heap(void*) {
  for (size_t i = 0; i < 300; ++i) {
    const size_t bytes = 1 + i * 611 % 9000;
    void* block = malloc(bytes);
    memset(block, 1, bytes);
    free(block);
  }
  return nullptr;
}

void* lock_and_allocate(void*) {
  for (int i = 0; i < 50; ++i) {
    pthread_mutex_lock(&lock);
    free(malloc(60000));
    free(malloc(200000));
    pthread_mutex_unlock(&lock);
  }
  return nullptr;
}

void act(int moment) {
  ++runs;
  switch (actions[moment]) {
    case ForkHandlerAction::nothing: break;
    case ForkHandlerAction::allocate:
      for (auto& block : kept) block = malloc(3000);
      for (auto& block : kept) free(block);
      break;
    case ForkHandlerAction::free_only:
      for (auto& block : kept) {
        free(block);
        block = nullptr;
      }
      break;
    case ForkHandlerAction::reallocate: {
      void* block = nullptr;
      for (size_t bytes = 10; bytes < 400000; bytes += bytes / 3) block = realloc(block, bytes);
      free(block);
      break;
    }
    case ForkHandlerAction::large:
      for (size_t mib = 1; mib < 80; mib *= 3) free(malloc(mib << 20));
      break;
    case ForkHandlerAction::aligned:
      for (size_t alignment = 16; alignment <= (4 << 20); alignment *= 4) {
        void* block = nullptr;
        if (posix_memalign(&block, alignment, 5000) != 0) abort();
        free(block);
      }
      break;
    case ForkHandlerAction::thread: {
      pthread_t thread;
      if (pthread_create(&thread, nullptr, use_heap, nullptr) != 0 || pthread_join(thread, nullptr) != 0) abort();
      break;
    }
    case ForkHandlerAction::wait_for_lock:  // that another thread holds while it allocates
      pthread_mutex_lock(&lock);
      free(malloc(60000));
      pthread_mutex_unlock(&lock);
      break;
  }
}

__attribute__((constructor(102))) void on_load() {
  pthread_atfork([] { act(0); }, [] { act(1); }, [] { act(2); });
}

}  // namespace

extern "C" void set_fork_handler(int moment, ForkHandlerAction action) {
  for (auto& each : actions) each = ForkHandlerAction::nothing;
  actions[moment] = action;
  if (action != ForkHandlerAction::free_only) return;
  for (auto& block : kept) block = malloc(700);
}

extern "C" void work_beside_fork_handler() { lock_and_allocate(nullptr); }
extern "C" int fork_handler_runs() { return runs; }
