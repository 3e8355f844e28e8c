// Blocks that are lost and blocks that are not: leak_probe CASE. Each way of being reachable holds blocks from
// `reachable`; `lost` loses blocks whose addresses are then wiped from the stack and the registers.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define PLACE extern "C" __attribute__((noinline, visibility("default")))

PLACE void* reachable(size_t size) {
  void* block = malloc(size);
  memset(block, 0, size);
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}
// A word that is no pointer to a block but looks like one makes the search call the block reachable, rightly. Three are
// common: the address of a slab, left on a dead stack, is that of its first block too; and a pointer whose lower half
// was overwritten by 32 bits: by a zero, as libc's exit does, or by the mark that x86's kernel writes behind the
// registers of a stopped thread. Such blocks are held.
static void* volatile held[64];
static int held_count = 0;
static bool has_lower_half(size_t start, size_t size, size_t lower_half) {
  const size_t word = ((start + size) >> 32 << 32) + lower_half;
  return (word >= start && word <= start + size) || (word - (1UL << 32) >= start && word - (1UL << 32) <= start + size);
}
static bool may_look_reachable(size_t start, size_t size) {
  const bool is_first_of_slab = size < 16384 && start % 16384 == 0;
  return is_first_of_slab || has_lower_half(start, size, 0) || has_lower_half(start, size, 0x46505845);
}
static bool is_held(void* block, size_t size) {
  if (!may_look_reachable(reinterpret_cast<size_t>(block), size) || held_count == 64) return false;
  held[held_count++] = block;
  return true;
}
static __attribute__((always_inline)) inline void** to_lose(size_t size) {
  void* block;
  do {
    block = malloc(size);
  } while (is_held(block, size));
  memset(block, 0, size);
  return static_cast<void**>(block);
}
PLACE void lose(size_t size) {
  void** block = to_lose(size);
  asm volatile("" : : "r"(block) : "memory");
}
// A pair that points to each other and is pointed to by nobody.
PLACE void lose_circle() {
  void** a = to_lose(72);
  void** b = to_lose(72);
  a[0] = b;
  b[0] = a;
  asm volatile("" : : "r"(a), "r"(b) : "memory");
}
PLACE void lose_chain() {
  void** first = nullptr;
  for (int i = 0; i < 10; ++i) {
    void** next = to_lose(40);
    next[0] = first;
    first = next;
  }
  asm volatile("" : : "r"(first) : "memory");
}

// Many from one place.
PLACE void lose_many(int count, size_t size) {
  for (int i = 0; i < count; ++i) {
    asm volatile("" : "+r"(i));
    lose(size);
  }
}

// Clears all that lies below this frame, which has no slots.
PLACE void wipe() {
#ifdef __aarch64__
  asm volatile("sub x9, sp, #16384\n 1: stp xzr, xzr, [x9], #16\n mov x10, sp\n cmp x9, x10\n b.lo 1b" ::
                   : "x9", "x10", "cc", "memory");
#else
  asm volatile("lea -16384(%%rsp), %%rdi\n mov $2048, %%ecx\n xor %%eax, %%eax\n rep stosq" ::
                   : "rdi", "rcx", "rax", "memory");
#endif
}

static void* volatile in_data = reinterpret_cast<void*>(1);  // in .data, not .bss
static void* volatile in_bss;
static thread_local void* volatile in_tls;
static void** volatile chain;
static char* volatile interior;
static void** volatile own_mapping;

static void hold_chain(int count, size_t size) {
  for (int i = 0; i < count; ++i) {
    auto** next = static_cast<void**>(reachable(size));
    next[0] = chain;
    chain = next;
  }
}

static void hold_all() {
  in_data = reachable(100);
  in_bss = reachable(1000);
  in_tls = reachable(10000);
  hold_chain(100, 48);
  interior = static_cast<char*>(reachable(500)) + 499;
  own_mapping = static_cast<void**>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  own_mapping[77] = reachable(200000);                      // a run
  auto** large = static_cast<void**>(reachable(40 << 20));  // a mapping of its own
  own_mapping[78] = large;
  large[1 << 20] = reachable(60);  // reached through it only
}

static pthread_t started(void* (*body)(void*), void* argument = nullptr) {
  pthread_t id;
  pthread_create(&id, nullptr, body, argument);
  return id;
}

static volatile int thread_ready;
static void* waits(void*) {
  void* volatile on_stack = reachable(300);
  thread_ready = 1;
  for (;;) pause();
  return on_stack;
}
static void* waits_with_register(void*) {
  void* block = reachable(3000);
  thread_ready = 2;
#if defined(__x86_64__)
  asm volatile("movq %0, %%r12\n xorl %%ebx, %%ebx\n 1: pause\n jmp 1b" : : "r"(block) : "r12", "rbx");
#else
  for (;;) asm volatile("" : "+r"(block));
#endif
  return nullptr;
}
static void* loses(void*) {
  lose_many(5, 700);
  wipe();
  return nullptr;
}

// The process goes on without its first thread and ends in another one.
static void* outlives_main(void* main_thread) {
  pthread_join(reinterpret_cast<pthread_t>(main_thread), nullptr);
  hold_all();
  lose_many(7, 123);
  wipe();
  exit(0);
}

// Threads end all the time beside a search. Says how many searches waited as long as they wait for a thread that blocks
// their signal.
static void* makes_threads(void*) {
  for (;;) {
    pthread_t ids[6];
    const auto body = [](void*) -> void* { return free(reachable(100)), nullptr; };
    for (pthread_t& id : ids) pthread_create(&id, nullptr, body, nullptr);
    for (const pthread_t id : ids) pthread_join(id, nullptr);
  }
}
static int count_slow_searches() {
  const auto search = reinterpret_cast<size_t (*)()>(dlsym(RTLD_DEFAULT, "freestone_leak_check"));
  for (int i = 0; i < 2; ++i) started(makes_threads);
  int slow = 0;
  for (int i = 0; i < 15; ++i) {
    usleep(20000);
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    search();
    clock_gettime(CLOCK_MONOTONIC, &end);
    slow += (end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 1000 ? 1 : 0;
  }
  return slow;
}

int main(int, char** arguments) {
  const auto is = [&](const char* name) { return strcmp(arguments[1], name) == 0; };
  if (is("reachable") || is("all")) {
    hold_all();
    started(waits);
    while (thread_ready != 1) usleep(1000);
    started(waits_with_register);
    while (thread_ready != 2) usleep(1000);
  }
  if (is("lost") || is("all")) {
    lose_many(7, 123);
    lose_many(3, 30000);
    lose(300000);
    lose(50 << 20);
    lose_circle();
    lose_chain();
    pthread_join(started(loses), nullptr);
  }
  if (is("many")) {
    lose_many(20000, 500);
    hold_chain(20000, 500);
  }
  if (is("freed")) free(reachable(100));
  if (is("ending")) {
    printf("slow searches: %d\n", count_slow_searches());
    fflush(stdout);
    _exit(0);
  }
  if (is("outlived")) {
    started(outlives_main, reinterpret_cast<void*>(pthread_self()));
    pthread_exit(nullptr);
  }
  wipe();
  printf("text that exit must still write\n");
  return 0;
}
