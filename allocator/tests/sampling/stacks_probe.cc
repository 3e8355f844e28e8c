// Known call chains: the exported functions depth_N call each other from depth_9 to depth_0, which allocates. Compiled
// with and without frame pointers. In the main thread, in a thread, on another stack (ucontext) and through each entry
// point of the library.
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>

static void* sink[64];
static int used;

static void* keep(void* block) {
  asm volatile("" : "+r"(block) : : "memory");
  return sink[used++ % 64] = block;
}

#define PLACE extern "C" __attribute__((noinline, noclone, visibility("default")))

PLACE void depth_0(int how) {
  void* block = nullptr;
  switch (how) {
    case 0: block = malloc(777); break;
    case 1: block = calloc(7, 111); break;
    case 2: block = realloc(nullptr, 777); break;
    case 3: block = aligned_alloc(256, 777); break;
    case 4: block = new char[777]; break;
    case 5: block = calloc(1, 50000); break;
    case 6: block = malloc(1000000); break;
    case 7: block = realloc(malloc(100), 5000); break;
  }
  keep(block);
}
#define DEPTH(n, below)                  \
  PLACE void depth_##n(int how) {        \
    volatile char room[16 * n] = {0};    \
    depth_##below(how);                  \
    asm volatile("" : : "r"(room));      \
  }
DEPTH(1, 0)
DEPTH(2, 1)
DEPTH(3, 2)
DEPTH(4, 3)
DEPTH(5, 4)
DEPTH(6, 5)
DEPTH(7, 6)
DEPTH(8, 7)
DEPTH(9, 8)

PLACE void deep(int levels) {
  volatile char room[32] = {0};
  if (levels == 0)
    depth_3(0);
  else
    deep(levels - 1);
  asm volatile("" : : "r"(room));
}

static ucontext_t main_context, fibre;
static void on_fibre() { depth_9(0); }

static void* in_thread(void*) {
  depth_9(0);
  return nullptr;
}

int main() {
  for (int how = 0; how < 8; ++how) depth_9(how);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, in_thread, nullptr) != 0) return 3;
  pthread_join(thread, nullptr);
  getcontext(&fibre);
  fibre.uc_stack.ss_sp = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fibre.uc_stack.ss_size = 65536;
  fibre.uc_link = &main_context;
  makecontext(&fibre, on_fibre, 0);
  swapcontext(&main_context, &fibre);
  deep(300);
  puts("done");
  fflush(stdout);
  return 0;
}
