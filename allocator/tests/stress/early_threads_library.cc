// A library whose constructor starts threads that use the heap and end, as numeric and network libraries do. Linked to
// a program, it is initialised before a preloaded allocator.
#include <pthread.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kThreads = 200;
int ended = 0;

void* use_heap(void*) {
  void* blocks[100];
  for (size_t i = 0; i < 100; ++i) memset(blocks[i] = malloc(i * 20 + 1), 1, i * 20 + 1);
  for (void* block : blocks) free(block);
  return nullptr;
}

__attribute__((constructor)) void on_load() {
  for (int i = 0; i < kThreads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, use_heap, nullptr) == 0 && pthread_join(thread, nullptr) == 0) ++ended;
  }
}

}  // namespace

extern "C" int early_threads_that_ended() { return ended; }
