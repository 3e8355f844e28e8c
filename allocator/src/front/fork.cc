// Room 9, front: see fork.h.

#include "front/fork.h"

#include "front/hardened_walk.h"
#include "front/heap.h"
#include "platform/child.h"
#include "platform/mutex.h"
#include "platform/os.h"
#include "region/metadata.h"
#include "span/mapping.h"
#include "span/span_heap.h"

// What pthread_atfork calls, whose copy in each library is linked behind all other code.
extern "C" int __register_atfork(void (*before)(), void (*in_parent)(), void (*in_child)(), void* library);
extern "C" FREESTONE_HIDDEN void* __dso_handle;

namespace freestone {

namespace {

constexpr const ForkHooks* kHooks[] = {&abi_fork_hooks, &upkeep_fork_hooks, &heaps_fork_hooks, &sampling_fork_hooks};
constexpr unsigned kHookCount = sizeof kHooks / sizeof *kHooks;

Atomic<u32> is_watched;

void before_fork() {
  if constexpr (kMitigations.trailer) hardened::note_fork();
  for (const ForkHooks* hooks : kHooks) hooks->before();
}

void after_fork_in_parent() {
  for (unsigned i = kHookCount; i-- > 0;) kHooks[i]->in_parent();
}

// The surviving thread's cache is parked until its next slow path, which first drains the caches of the others. So a
// child that only calls exec pays nothing.
void become_child(bool handlers_ran) {
  if constexpr (kMitigations.trailer) hardened::note_child(handlers_ran);
  repair_metadata_in_child();
  repair_spans_in_child();
  repair_mappings_in_child();
  reset_start_in_child();
  orphan_caches_in_child();
  if (this_thread.cache_offset != 0) {
    this_thread.parked = &thread_cache();
    this_thread.cache_offset = 0;
  }
  for (unsigned i = kHookCount; i-- > 0;) kHooks[i]->in_child();
  mark_child();
}

void after_fork_in_child() {
  if (is_unmarked_child() || !notices_children()) become_child(true);
}

}  // namespace

void watch_forks() {
  u32 expected = 0;
  if (is_watched.replace_acquire(expected, 1))
    __register_atfork(before_fork, after_fork_in_parent, after_fork_in_child, __dso_handle);
}

bool notice_fork() {
  // The first thread of a child has the number of its process.
  if (!is_unmarked_child() || os::thread_id() != os::process_id()) return false;
  become_child(false);
  return true;
}

constinit const ForkNotice fork_notice = notice_fork;

}  // namespace freestone
