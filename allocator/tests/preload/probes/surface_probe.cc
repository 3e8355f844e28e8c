// Calls every function that the library exports and gives each kind of block to each call that takes it. Prints the
// names that it called, one a line, and then "done". What the process does not have is left out. With the argument
// "short" no block is large and no leak is searched for: that search reads all memory.
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

#include "freestone/freestone.h"

#define WEAK __attribute__((weak))
extern "C" {
void* __libc_malloc(size_t) WEAK;
void __libc_free(void*) WEAK;
void* __libc_calloc(size_t, size_t) WEAK;
void* __libc_realloc(void*, size_t) WEAK;
void* __libc_memalign(size_t, size_t) WEAK;
void* __libc_valloc(size_t) WEAK;
void* __libc_pvalloc(size_t) WEAK;
struct mallinfo __libc_mallinfo() WEAK;
int __libc_mallopt(int, int) WEAK;
void cfree(void*) WEAK;
void free_sized(void*, size_t) WEAK;
void free_aligned_sized(void*, size_t, size_t) WEAK;
int mallctl(const char*, void*, size_t*, void*, size_t) WEAK;
int mallctlnametomib(const char*, size_t*, size_t*) WEAK;
int mallctlbymib(const size_t*, size_t, void*, size_t*, void*, size_t) WEAK;
void malloc_stats_print(void (*)(void*, const char*), void*, const char*) WEAK;
void* mallocx(size_t, int) WEAK;
void* rallocx(void*, size_t, int) WEAK;
size_t xallocx(void*, size_t, size_t, int) WEAK;
size_t sallocx(const void*, int) WEAK;
void dallocx(void*, int) WEAK;
void sdallocx(void*, size_t, int) WEAK;
size_t nallocx(size_t, int) WEAK;
int __register_atfork(void (*)(), void (*)(), void (*)(), void*) WEAK;
const char* freestone_version() WEAK;
}

namespace {

constexpr size_t kSizes[] = {1, 100, 5000, 100'000, 1'500'000, 60'000'000};
size_t largest = kSizes[5];
constexpr std::align_val_t kWide{256};
constexpr size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }  // as Valgrind asks of aligned_alloc

void fail(const char* what, const char* with) {
  printf("%s, then %s: lost contents\n", what, with);
  exit(1);
}

struct Maker {
  const char* name;
  bool exists;
  void* (*make)(size_t bytes);
};
struct Taker {
  const char* name;
  bool exists;
  void (*take)(void* block, size_t bytes);
  void* (*resize)(void* block, size_t bytes);
};

// NOLINTBEGIN: a table of calls
#define MAKE(name, expression) {#name, &(name) != nullptr, [](size_t n) -> void* { return expression; }}
#define TAKE(name, expression) \
  {#name, &(name) != nullptr, [](void* p, [[maybe_unused]] size_t n) { expression; }, nullptr}
#define RESIZE(name, expression) \
  {#name, &(name) != nullptr, nullptr, [](void* p, size_t n) -> void* { return expression; }}

void* from_posix_memalign(size_t bytes) {
  void* block = nullptr;
  return posix_memalign(&block, 256, bytes) == 0 ? block : nullptr;
}

const Maker kPlain[] = {
    MAKE(malloc, malloc(n)),
    MAKE(calloc, calloc(1, n)),
    MAKE(realloc, realloc(nullptr, n)),
    MAKE(reallocarray, reallocarray(nullptr, n, 1)),
    MAKE(mallocx, mallocx(n, 0)),
    MAKE(__libc_malloc, __libc_malloc(n)),
    MAKE(__libc_calloc, __libc_calloc(1, n)),
    MAKE(__libc_realloc, __libc_realloc(nullptr, n)),
};
const Maker kAligned[] = {
    MAKE(memalign, memalign(256, n)),
    MAKE(posix_memalign, from_posix_memalign(n)),
    MAKE(valloc, valloc(n)),
    MAKE(pvalloc, pvalloc(n)),
    MAKE(__libc_memalign, __libc_memalign(256, n)),
    MAKE(__libc_valloc, __libc_valloc(n)),
    MAKE(__libc_pvalloc, __libc_pvalloc(n)),
};
const Maker kAlignedAlloc[] = {MAKE(aligned_alloc, aligned_alloc(256, whole(n)))};

const Taker kAny[] = {
    TAKE(free, free(p)),
    TAKE(cfree, cfree(p)),
    TAKE(__libc_free, __libc_free(p)),
    TAKE(dallocx, dallocx(p, 0)),
    RESIZE(rallocx, rallocx(p, n, 0)),
    RESIZE(realloc, realloc(p, n)),
    RESIZE(reallocarray, reallocarray(p, n, 1)),
    RESIZE(__libc_realloc, __libc_realloc(p, n)),
};
const Taker kSized[] = {TAKE(free_sized, free_sized(p, n)), TAKE(sdallocx, sdallocx(p, n, 0))};
const Taker kAlignedSized[] = {TAKE(free_aligned_sized, free_aligned_sized(p, 256, whole(n)))};
// NOLINTEND

// The operators, by their mangled names.
struct Form {
  const char* create;
  void* (*make)(size_t bytes);
  const char* destroy;
  void (*take)(void* block, size_t bytes);
};
#define FORM(create, make, destroy, take) \
  {create, [](size_t n) -> void* { return make; }, destroy, [](void* p, [[maybe_unused]] size_t n) { take; }}
const Form kForms[] = {
    FORM("_Znwm", operator new(n), "_ZdlPv", operator delete(p)),
    FORM("_Znam", operator new[](n), "_ZdaPv", operator delete[](p)),
    FORM("_Znwm", operator new(n), "_ZdlPvm", operator delete(p, n)),
    FORM("_Znam", operator new[](n), "_ZdaPvm", operator delete[](p, n)),
    FORM("_ZnwmRKSt9nothrow_t", operator new(n, std::nothrow), "_ZdlPvRKSt9nothrow_t",
         operator delete(p, std::nothrow)),
    FORM("_ZnamRKSt9nothrow_t", operator new[](n, std::nothrow), "_ZdaPvRKSt9nothrow_t",
         operator delete[](p, std::nothrow)),
    FORM("_ZnwmSt11align_val_t", operator new(n, kWide), "_ZdlPvSt11align_val_t", operator delete(p, kWide)),
    FORM("_ZnamSt11align_val_t", operator new[](n, kWide), "_ZdaPvSt11align_val_t", operator delete[](p, kWide)),
    FORM("_ZnwmSt11align_val_t", operator new(n, kWide), "_ZdlPvmSt11align_val_t", operator delete(p, n, kWide)),
    FORM("_ZnamSt11align_val_t", operator new[](n, kWide), "_ZdaPvmSt11align_val_t", operator delete[](p, n, kWide)),
    FORM("_ZnwmSt11align_val_tRKSt9nothrow_t", operator new(n, kWide, std::nothrow),
         "_ZdlPvSt11align_val_tRKSt9nothrow_t", operator delete(p, kWide, std::nothrow)),
    FORM("_ZnamSt11align_val_tRKSt9nothrow_t", operator new[](n, kWide, std::nothrow),
         "_ZdaPvSt11align_val_tRKSt9nothrow_t", operator delete[](p, kWide, std::nothrow)),
};

// A resized block is resized once more by each name, and freed.
void give(void* block, size_t bytes, const Maker& from, const Taker& to) {
  auto* text = static_cast<unsigned char*>(block);
  if (text == nullptr) fail(from.name, "no memory");
  text[0] = 0x5a;
  text[bytes - 1] = bytes == 1 ? 0x5a : 0xa5;
  if (malloc_usable_size(block) < bytes) fail(from.name, "malloc_usable_size");
  if (to.take != nullptr) return to.take(block, bytes);
  for (const size_t next : {bytes + 1, 3 * bytes, bytes}) {
    text = static_cast<unsigned char*>(to.resize(text, next));
    if (text == nullptr || text[0] != 0x5a || (bytes > 1 && text[bytes - 1] != 0xa5)) fail(from.name, to.name);
  }
  free(text);
}

template <size_t Makers, size_t Takers>
void all_pairs(const Maker (&makers)[Makers], const Taker (&takers)[Takers]) {
  for (const Maker& from : makers) {
    for (const Taker& to : takers) {
      if (!from.exists || !to.exists) continue;
      for (const size_t bytes : kSizes) bytes <= largest ? give(from.make(bytes), bytes, from, to) : void();
      if (to.take != nullptr) to.take(nullptr, 0);
    }
  }
  for (const Maker& maker : makers) maker.exists ? (void)puts(maker.name) : void();
  for (const Taker& taker : takers) taker.exists ? (void)puts(taker.name) : void();
}

void blocks() {
  all_pairs(kPlain, kAny);
  all_pairs(kPlain, kSized);
  all_pairs(kAligned, kAny);
  all_pairs(kAlignedAlloc, kAny);
  all_pairs(kAlignedAlloc, kAlignedSized);
  puts("malloc_usable_size");
  for (const Form& form : kForms) {
    for (const size_t bytes : kSizes) bytes <= largest ? form.take(memset(form.make(bytes), 1, 1), bytes) : void();
    form.take(nullptr, 1);
    puts(form.create);
    puts(form.destroy);
  }
}

#define CALL(name, call)               \
  do {                                 \
    if (&(name) != nullptr) {          \
      static_cast<void>(call);         \
      puts(#name);                     \
    }                                  \
  } while (0)

void ignore(void*, const char*) {}
int ignore_block(void*, void*, size_t) { return 1; }

void controls(FILE* nowhere) {
  size_t value = 0;
  size_t mib[4];
  size_t length = 4;
  size_t size = sizeof value;
  CALL(mallopt, mallopt(M_MMAP_MAX, 10));
  CALL(__libc_mallopt, __libc_mallopt(M_MMAP_MAX, 10));
  CALL(mallinfo, mallinfo());
  CALL(__libc_mallinfo, __libc_mallinfo());
  CALL(mallinfo2, mallinfo2());
  CALL(malloc_info, malloc_info(0, nowhere));
  CALL(malloc_trim, malloc_trim(0));
  CALL(malloc_stats, malloc_stats());
  CALL(mallctl, mallctl("stats.allocated", &value, &size, nullptr, 0));
  CALL(mallctlnametomib, mallctlnametomib("stats.allocated", mib, &length));
  CALL(mallctlbymib, mallctlbymib(mib, length, &value, &size, nullptr, 0));
  CALL(xallocx, xallocx(nullptr, 0, 0, 0));
  CALL(sallocx, sallocx(nullptr, 0));
  CALL(nallocx, nallocx(1, 0));
  CALL(malloc_stats_print, malloc_stats_print(ignore, nullptr, nullptr));
  CALL(__register_atfork, __register_atfork(nullptr, nullptr, nullptr, nullptr));
  CALL(dlopen, dlclose(dlopen(nullptr, RTLD_NOW)));
  CALL(dlclose, dlclose(dlopen(nullptr, RTLD_NOW)));
  CALL(dlmopen, dlclose(dlmopen(LM_ID_BASE, nullptr, RTLD_NOW)));
}

void* as_library(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found != nullptr) puts(name);
  return found;
}
#define OURS(name) reinterpret_cast<decltype(&(name))>(as_library(#name))

// freestone.h, where the library is.
void own_functions(FILE* nowhere) {
  if (OURS(freestone_version) == nullptr) return;
  char text[64];
  const char* damage = nullptr;
  freestone_stats stats = {};
  freestone_limits limits = {};
  freestone_heap_stats heap_stats = {};
  stats.version = FREESTONE_STATS_VERSION;
  limits.version = FREESTONE_LIMITS_VERSION;
  heap_stats.version = FREESTONE_HEAP_STATS_VERSION;
  OURS(freestone_version)();
  OURS(freestone_is_active)();
  OURS(freestone_good_size)(100);
  OURS(freestone_trim)(0);
  OURS(freestone_get_stats)(&stats);
  OURS(freestone_stats_write)(fileno(nowhere), FREESTONE_TEXT);
  OURS(freestone_stats_report)();
  OURS(freestone_get_limits)(&limits);
  OURS(freestone_set_limits)(&limits);
  OURS(freestone_set_callbacks)(nullptr);
  OURS(freestone_on_pages_leaving)(nullptr, nullptr);
  OURS(freestone_thread_never_purges)(0);
  OURS(freestone_flush_thread)();
  OURS(freestone_walk)(ignore_block, nullptr);
  OURS(freestone_validate)(&damage);
  OURS(freestone_prof_start)();
  OURS(freestone_prof_is_active)();
  OURS(freestone_prof_dump)("/dev/null");
  OURS(freestone_prof_stop)();
  if (largest == kSizes[5]) OURS(freestone_leak_check)();
  OURS(freestone_option_get)("dirty_bytes", text, sizeof text);
  OURS(freestone_option_set)("dirty_bytes", "1m");
  freestone_heap* heap = OURS(freestone_heap_create)(0);
  if (heap == nullptr) return;  // switched off
  auto* deallocate = OURS(freestone_heap_deallocate);
  deallocate(heap, OURS(freestone_heap_allocate)(heap, 100));
  deallocate(heap, OURS(freestone_heap_allocate_zeroed)(heap, 100));
  void* block = OURS(freestone_heap_allocate_aligned)(heap, 100, 64);
  OURS(freestone_heap_usable_size)(heap, block);
  OURS(freestone_heap_reallocate)(heap, block, 5000);
  OURS(freestone_heap_get_stats)(heap, &heap_stats);
  OURS(freestone_heap_validate)(heap);
  OURS(freestone_heap_walk)(heap, ignore_block, nullptr);
  OURS(freestone_heap_destroy)(heap);
}

// What compilers call in place of malloc and new (abi/compiler_calls.cc). Each block is written and freed.
template <typename... Arguments>
void* compiler_call(const char* prefix, const char* name, const char* hint, Arguments... arguments) {
  char whole[100];
  snprintf(whole, sizeof whole, "%s%s%s", prefix, name, hint);
  const auto function = reinterpret_cast<void* (*)(Arguments...)>(as_library(whole));
  return function != nullptr ? memset(function(arguments...), 1, kSizes[1]) : nullptr;
}

void operators_of_compilers(const char* token, const char* hint) {
  const size_t n = kSizes[1];
  constexpr unsigned char kHint = 1;
  const auto make = [=](const char* name, auto... arguments) {
    if (*hint == '\0') return compiler_call(token, name, hint, n, arguments..., size_t{77});
    return compiler_call(token, name, hint, n, arguments..., kHint, size_t{77});
  };
  const std::nothrow_t* const nothrow = &std::nothrow;
  operator delete(make("_Znwm"));
  operator delete[](make("_Znam"));
  operator delete(make("_ZnwmRKSt9nothrow_t", nothrow));
  operator delete[](make("_ZnamRKSt9nothrow_t", nothrow));
  operator delete(make("_ZnwmSt11align_val_t", kWide), kWide);
  operator delete[](make("_ZnamSt11align_val_t", kWide), kWide);
  operator delete(make("_ZnwmSt11align_val_tRKSt9nothrow_t", kWide, nothrow), kWide);
  operator delete[](make("_ZnamSt11align_val_tRKSt9nothrow_t", kWide, nothrow), kWide);
}

struct SizedBlock {
  void* block;
  size_t bytes;
};
template <typename... Arguments>
void* sized_call(const char* token, const char* form, Arguments... arguments) {
  char whole[100];
  snprintf(whole, sizeof whole, "%s__size_returning_new%s", token, form);
  const auto function = reinterpret_cast<SizedBlock (*)(Arguments...)>(as_library(whole));
  if (function == nullptr) return nullptr;
  const SizedBlock made = function(arguments...);
  return memset(made.block, 1, made.bytes);
}

void calls_of_compilers() {
  const size_t n = kSizes[1], wide = 256, token = 77;
  constexpr unsigned char kHint = 1;
  const char* const prefix = "__alloc_token_";
  void* const none = nullptr;
  for (const char* name : {"malloc", "valloc", "pvalloc"}) free(compiler_call(prefix, name, "", n, token));
  for (const char* name : {"memalign", "aligned_alloc"}) free(compiler_call(prefix, name, "", wide, whole(n), token));
  free(compiler_call(prefix, "calloc", "", size_t{1}, n, token));
  free(compiler_call(prefix, "realloc", "", none, n, token));
  free(compiler_call(prefix, "reallocarray", "", none, n, size_t{1}, token));
  using Into = int (*)(void**, size_t, size_t, size_t);
  void* block = nullptr;
  if (auto into = reinterpret_cast<Into>(as_library("__alloc_token_posix_memalign"))) into(&block, wide, n, token);
  free(block);
  operators_of_compilers(prefix, "");
  for (const char* with : {prefix, ""}) {
    operators_of_compilers(with, "12__hot_cold_t");
    operator delete(sized_call(with, "", n, token));
    operator delete(sized_call(with, "_hot_cold", n, kHint, token));
    operator delete(sized_call(with, "_aligned", n, kWide, token), kWide);
    operator delete(sized_call(with, "_aligned_hot_cold", n, kWide, kHint, token), kWide);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "short") == 0) largest = 5000;
  FILE* nowhere = fopen("/dev/null", "w");
  blocks();
  calls_of_compilers();
  const int errors = dup(2);
  dup2(fileno(nowhere), 2);  // what malloc_stats and others print there
  controls(nowhere);
  own_functions(nowhere);
  dup2(errors, 2);
  fclose(nowhere);
  puts("done");
  return 0;
}
