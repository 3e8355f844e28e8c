/* recorder/operators.c: the operators new and delete of C++, by their mangled names, so that the recorder needs no C++
 * library in programs that have none.
 *
 * The standard library's plain operators are malloc and free. The recorder calls these directly, and the real operator
 * only to throw. It calls an allocator's own operators, and the aligned forms, as they are; calls inside them are no
 * events.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "recorder/next.h"
#include "recorder/thread.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct fsr_thread* Nest;

static void leave(Nest* nest) {
  Nest self = *nest;
  if (--self->nested == 0) {
    self->birth_limit = self->saved_birth_limit;
    self->death_limit = self->saved_death_limit;
  }
}

/* This thread's calls are no events until the end of the scope, even if an exception ends it. */
#define NESTED() Nest nest __attribute__((cleanup(leave))) = enter()

static Nest enter(void) {
  Nest self = &fsr_self;
  if (self->nested++ == 0) {
    self->saved_birth_limit = self->birth_limit;
    self->saved_death_limit = self->death_limit;
    self->birth_limit = self->death_limit = 0;
  }
  return self;
}

static void* standard_library(void) {
  void* found = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return found ? found : dlopen("libc++.so.1", RTLD_LAZY | RTLD_NOLOAD);
}

/* Finds the operator behind ours. RTLD_NEXT does not see a library opened with RTLD_LOCAL, so we ask that by name. */
static void* find(void** kept, const char* name) {
  void* found = __atomic_load_n(kept, __ATOMIC_RELAXED); /* all threads find the same */
  if (found) return found;
  NESTED();
  found = dlsym(RTLD_NEXT, name);
  if (!found) {
    void* library = standard_library();
    if (library) found = dlsym(library, name);
  }
  if (!found) abort(); /* a C++ program without a C++ library */
  __atomic_store_n(kept, found, __ATOMIC_RELAXED);
  return found;
}

/* 1: the plain operators are malloc and free; 2: they are an allocator's own; 0: not yet known. */
static int plain_kind;

static int find_plain_kind(void) {
  static void* operator_new;
  Dl_info about;
  void* found = find(&operator_new, "_Znwm");
  const int own = dladdr(found, &about) && about.dli_fname && !strstr(about.dli_fname, "libstdc++") &&
                  !strstr(about.dli_fname, "libc++");
  fsr_resolve();
  return plain_kind = own ? 2 : 1;
}

static inline bool is_plain(void) {
  const int kind = __atomic_load_n(&plain_kind, __ATOMIC_RELAXED); /* all threads find the same */
  return (kind ? kind : find_plain_kind()) == 1;
}

#define NEW(name, event, tag_parameter, tag)                                   \
  EXPORT void* name(size_t size tag_parameter) {                               \
    static void* real;                                                         \
    void* block = is_plain() ? fsr_next.malloc(size ? size : 1) : NULL;        \
    if (FSR_UNLIKELY(!block)) {                                                \
      NESTED();                                                                \
      block = ((void* (*)(size_t tag_parameter))find(&real, #name))(size tag); \
    }                                                                          \
    fsr_birth(event, 0, block, size);                                          \
    return block;                                                              \
  }

#define NEW_ALIGNED(name, event, tag_parameter, tag)                                              \
  EXPORT void* name(size_t size, size_t alignment tag_parameter) {                                \
    static void* real;                                                                            \
    void* block;                                                                                  \
    {                                                                                             \
      NESTED();                                                                                   \
      block = ((void* (*)(size_t, size_t tag_parameter))find(&real, #name))(size, alignment tag); \
    }                                                                                             \
    fsr_birth(event, (unsigned)__builtin_ctzll(alignment | 1ull << 62), block, size);             \
    return block;                                                                                 \
  }

#define COMMA_TAG , const void* tag
#define COMMA_TAG_VALUE , tag
NEW(_Znwm, FST_NEW, , )
NEW(_Znam, FST_NEW_ARRAY, , )
NEW(_ZnwmRKSt9nothrow_t, FST_NEW, COMMA_TAG, COMMA_TAG_VALUE)
NEW(_ZnamRKSt9nothrow_t, FST_NEW_ARRAY, COMMA_TAG, COMMA_TAG_VALUE)
NEW_ALIGNED(_ZnwmSt11align_val_t, FST_NEW_ALIGNED, , )
NEW_ALIGNED(_ZnamSt11align_val_t, FST_NEW_ARRAY_ALIGNED, , )
NEW_ALIGNED(_ZnwmSt11align_val_tRKSt9nothrow_t, FST_NEW_ALIGNED, COMMA_TAG, COMMA_TAG_VALUE)
NEW_ALIGNED(_ZnamSt11align_val_tRKSt9nothrow_t, FST_NEW_ARRAY_ALIGNED, COMMA_TAG, COMMA_TAG_VALUE)

#define DELETE(name, event, may_be_plain, parameters, arguments) \
  EXPORT void name parameters {                                  \
    static void* real;                                           \
    if (!block) return;                                          \
    fsr_death(event, block);                                     \
    if (may_be_plain && is_plain()) {                            \
      fsr_next.free(block);                                      \
      return;                                                    \
    }                                                            \
    NESTED();                                                    \
    ((void(*) parameters)find(&real, #name)) arguments;          \
  }

#define SIZED void *block, size_t size /* or an alignment */
#define TAGGED void *block, const void *tag
#define TWICE_SIZED void *block, size_t size, size_t alignment
#define SIZED_TAGGED void *block, size_t size, const void *tag
DELETE(_ZdlPv, FST_DELETE, true, (void* block), (block))
DELETE(_ZdaPv, FST_DELETE_ARRAY, true, (void* block), (block))
DELETE(_ZdlPvRKSt9nothrow_t, FST_DELETE, true, (TAGGED), (block, tag))
DELETE(_ZdaPvRKSt9nothrow_t, FST_DELETE_ARRAY, true, (TAGGED), (block, tag))
DELETE(_ZdlPvm, FST_DELETE_SIZED, true, (SIZED), (block, size))
DELETE(_ZdaPvm, FST_DELETE_ARRAY_SIZED, true, (SIZED), (block, size))
DELETE(_ZdlPvSt11align_val_t, FST_DELETE_ALIGNED, false, (SIZED), (block, size))
DELETE(_ZdaPvSt11align_val_t, FST_DELETE_ARRAY_ALIGNED, false, (SIZED), (block, size))
DELETE(_ZdlPvmSt11align_val_t, FST_DELETE_ALIGNED, false, (TWICE_SIZED), (block, size, alignment))
DELETE(_ZdaPvmSt11align_val_t, FST_DELETE_ARRAY_ALIGNED, false, (TWICE_SIZED), (block, size, alignment))
DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, FST_DELETE_ALIGNED, false, (SIZED_TAGGED), (block, size, tag))
DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, FST_DELETE_ARRAY_ALIGNED, false, (SIZED_TAGGED), (block, size, tag))
