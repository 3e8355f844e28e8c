// One misuse of a guarded block per run: guard_probe CASE SIZE. With guard_sample:1 every block is guarded, in turn
// against the page behind it and the page before it; `against(end)` gives one of the wanted kind.
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <initializer_list>

#include <malloc.h>

#define PLACE extern "C" __attribute__((noinline, visibility("default")))

PLACE char* place_of_allocation(size_t size) {
  auto* block = static_cast<char*>(malloc(size));
  asm volatile("" : "+r"(block) : : "memory");
  return block;
}
PLACE void place_of_free(void* block) {
  free(block);
  asm volatile("" ::: "memory");
}

static char* against(bool end, size_t size) {
  for (int i = 0; i < 64; ++i) {
    char* block = place_of_allocation(size);
    const bool at_start = reinterpret_cast<uintptr_t>(block) % 4096 == 0;
    const bool at_end = (reinterpret_cast<uintptr_t>(block) + ((size + 15) & ~size_t{15})) % 4096 == 0;
    if (end ? at_end : at_start) return block;
  }
  puts("no guarded block");
  exit(3);
}

static sigjmp_buf back;
static void on_signal(int) { siglongjmp(back, 1); }

// madvise(MADV_GUARD_INSTALL) as on an older kernel.
static void forbid_guard_install() {
  const sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 102, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program{sizeof rules / sizeof rules[0], const_cast<sock_filter*>(rules)};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) _exit(77);
}

// Takes blocks in which each byte is written, and frees all of them; false: a block changed meanwhile.
static bool hold_many(size_t count, size_t size) {
  static char* blocks[6000];
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = place_of_allocation(size);
    if (blocks[i] != nullptr) memset(blocks[i], static_cast<int>(i), size);
  }
  bool whole = true;
  for (size_t i = 0; i < count; ++i) {
    for (size_t at = 0; blocks[i] != nullptr && at < size; ++at)
      whole = whole && blocks[i][at] == static_cast<char>(i);
    free(blocks[i]);
  }
  return whole;
}

int main(int, char** arguments) {
  const char* what = arguments[1];
  const size_t size = strtoull(arguments[2], nullptr, 10);
  const auto is = [&](const char* name) { return strcmp(what, name) == 0; };
  volatile char sink = 0;
  const size_t rounded = (size + 15) & ~size_t{15};
  if (strncmp(what, "old_kernel_", 11) == 0) {
    forbid_guard_install();
    what += 11;
  }
  if (is("slots_change")) {
    const auto set = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(RTLD_DEFAULT, "freestone_option_set"));
    for (const char* slots : {"4", "4096", "64", "65536", "5", "1025", "1024"}) {
      if (set == nullptr || set("guard_slots", slots) != 0) return 6;
      if (!hold_many(6000, size)) return 7;
    }
    return 0;
  }
  if (is("limit_below_use")) {  // the kernel then refuses to make pages accessible again
    if (!hold_many(300, size)) return 7;
    const rlimit none{4096, RLIM_INFINITY};
    setrlimit(RLIMIT_DATA, &none);
    for (int round = 0; round < 20; ++round) {
      if (!hold_many(300, size)) return 8;
    }
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_DATA, &all);
    return hold_many(300, size) ? 0 : 9;
  }
  if (is("freed_memory")) {  // 64 MiB
    for (int k = 0; k < 64; ++k) {
      void* const block = malloc(1 << 20);
      memset(block, 1, 1 << 20);
      free(block);
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss < 32 << 10 ? 0 : 10;
  }
  if (is("clean")) {
    for (int round = 0; round < 300; ++round) {
      char* block = place_of_allocation(size);
      memset(block, round, size);
      block = static_cast<char*>(realloc(block, size + 100));
      if (size > 0 && block[size - 1] != static_cast<char>(round)) return 4;
      if (malloc_usable_size(block) < size + 100) return 5;
      free(block);
      void* zero = calloc(1, size);
      for (size_t i = 0; i < size; ++i) sink = static_cast<char>(sink | static_cast<char*>(zero)[i]);
      free(zero);
      free(aligned_alloc(1024, size));
    }
    if (sink != 0) return 6;
  } else if (is("overflow_write")) {
    against(true, size)[rounded] = 1;
  } else if (is("overflow_read")) {
    sink = against(true, size)[rounded];
  } else if (is("overflow_far")) {
    against(true, size)[rounded + 4000] = 1;
  } else if (is("overflow_slack")) {
    char* block = against(true, size);
    block[size] = 1;  // between the end and the alignment: seen at the free
    place_of_free(block);
  } else if (is("underflow_write")) {
    against(false, size)[-1] = 1;
  } else if (is("underflow_read")) {
    sink = against(false, size)[-100];
  } else if (is("underflow_slack")) {
    char* block = against(true, size);
    block[-1] = 1;
    place_of_free(block);
  } else if (is("use_after_free_write")) {
    char* block = against(true, size);
    place_of_free(block);
    block[0] = 1;
  } else if (is("use_after_free_read")) {
    char* block = against(false, size);
    place_of_free(block);
    sink = block[size - 1];
  } else if (is("use_after_free_late")) {
    char* block = against(true, size);
    place_of_free(block);
    for (int i = 0; i < 30; ++i) free(malloc(size));
    block[0] = 1;
  } else if (is("double_free")) {
    char* block = against(true, size);
    place_of_free(block);
    free(block);
  } else if (is("realloc_after_free")) {
    char* block = against(true, size);
    place_of_free(block);
    sink = *static_cast<char*>(realloc(block, 10));
  } else if (is("invalid_free")) {
    free(against(true, size) + 16);
  } else if (is("wild_fault")) {
    *reinterpret_cast<volatile char*>(0x10) = 1;  // none of ours
  } else if (is("handler_before")) {
    // Installed after ours, so it comes first and we are silent: the program's own handling goes on to work.
    signal(SIGSEGV, on_signal);
    if (sigsetjmp(back, 1) == 0) against(true, size)[rounded] = 1;
    puts("handled");
    fflush(stdout);
    return 0;
  }
  fflush(stdout);
  return sink != 0 ? 0 : 0;
}
