// Room 9, front: see fork.h.

#include "front/fork.h"

#include <pthread.h>

#include "cache/lifetime.h"
#include "front/hardening.h"
#include "front/heap.h"
#include "platform/child.h"
#include "platform/seal.h"
#include "region/account.h"
#include "region/metadata.h"
#include "region/region.h"
#include "span/mapping.h"
#include "span/span_heap.h"

#if defined(__GLIBC__)
// What pthread_atfork calls, whose copy in each library is linked behind all other code.
extern "C" int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library);
extern "C" FREESTONE_HIDDEN void* __dso_handle;
#endif

namespace freestone {

namespace {

void register_handlers(void (*before)(), void (*in_parent)(), void (*in_child)()) {
#if defined(__GLIBC__)
  __register_atfork(before, in_parent, in_child, __dso_handle);
#else
  pthread_atfork(before, in_parent, in_child);
#endif
}

constexpr const ForkHooks* kHooks[] = {&abi_fork_hooks, &upkeep_fork_hooks, &heaps_fork_hooks, &sampling_fork_hooks};
constexpr unsigned kHookCount = sizeof kHooks / sizeof *kHooks;

Atomic<u32> is_watched;

bool handlers_run = false;  // ours, in the child at this moment

void before_fork() {
  note_fork();
  if constexpr (kChecksEveryCall) hardening_hooks.note_fork();
  for (const ForkHooks* hooks : kHooks) hooks->before();
}

void after_fork_in_parent() {
  for (unsigned i = kHookCount; i-- > 0;) kHooks[i]->in_parent();
}

FREESTONE_SLOW void after_fork_in_child() {
  handlers_run = true;
  settle_forked_child();
  handlers_run = false;
  adopt_cache(own_cache());
  this_thread.random = 0;  // drawn anew when it is next needed
}

// ACCOUNT-3
FREESTONE_NO_ANALYSIS void recount_account() {  // nobody else changes these figures
  recount_charged(charged_span_bytes() + charged_mapping_bytes() + metadata_committed_bytes() +
                  metadata_mapped_bytes());
}

void repair() {
  if constexpr (kChecksEveryCall) hardening_hooks.note_child(handlers_run);
  repair_seal_in_child();
  repair_metadata_in_child();
  repair_spans_in_child();
  repair_mappings_in_child();
  recount_account();
  reset_start_in_child();
  repair_caches_in_child(own_cache());
  for (unsigned i = kHookCount; i-- > 0;) kHooks[i]->in_child();
}

}  // namespace

void watch_forks() {
  u32 expected = 0;
  if (is_watched.replace_acquire(expected, 1))
    register_handlers(before_fork, after_fork_in_parent, after_fork_in_child);
}

constinit const ChildRepair repair_child = repair;

}  // namespace freestone
