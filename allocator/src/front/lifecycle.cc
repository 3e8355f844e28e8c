// Room 9, front: the first call, the end of a thread, fork.
//
// ld.so calls malloc before any constructor, so the first slow path brings the allocator up, with raw system calls only. What
// needs libc (the key whose destructor ends a thread, the fork handlers) is done by a constructor; before it runs there is one
// thread, and it does not end.
//
// A child has the caches of threads that are not in it. They are drained at its first slow path, so that one that only calls exec pays
// nothing, and before a second thread of the child uses the allocator: so the thread that survives a fork has no cache until then.
//
// Lock order in fork: orphans, caches' registry, mappings, spans, metadata. The bitmaps of the slabs need none.

#include <pthread.h>

#include "config/options.h"
#include "front/block_words.h"
#include "front/hardened.h"
#include "front/sampled.h"
#include "platform/message.h"
#include "platform/os.h"
#include "region/metadata.h"
#include "span/mapping.h"
#include "span/span_heap.h"

extern "C" {
// The application may define it; ours is used when it does not.
FREESTONE_EXPORT __attribute__((weak)) const char* freestone_conf = nullptr;
}

namespace freestone {

namespace {

Atomic<u8> current_mode{static_cast<u8>(Mode::fresh)};  // acquire/release: publishes the region and the options
Mutex start_lock;
Atomic<u32> thread_key{0};  // the key plus one; 0 until the constructor ran

void complain(const char* what, const char* given, usize given_length, const char* expected) {
  Message message;
  if (what == nullptr) {
    message << "FREESTONE_CONF: unknown option \"";
    message.text(given, given_length) << "\"; the nearest is \"" << expected << '"';
  } else {
    message << "FREESTONE_CONF: option " << what << " cannot be \"";
    message.text(given, given_length) << "\"; expected " << expected;
  }
  message.write();
}

void read_options() {
  if (freestone_conf != nullptr) parse_options(freestone_conf, complain);
  if (os::is_privileged()) return;
  if (const char* text = os::environment_value("FREESTONE_CONF"); text != nullptr) parse_options(text, complain);
}

bool is_disabled() {
  if (os::is_privileged()) return false;
  const char* value = os::environment_value("FREESTONE_DISABLE");
  return value != nullptr && value[0] == '1' && value[1] == '\0';
}

unsigned shards_for(unsigned cpus) {
  unsigned shards = 1;
  while (shards < cpus * 2 && shards < kShardsMax) shards *= 2;
  return shards;
}

FREESTONE_SLOW Mode start() {
  LockGuard guard(start_lock);
  auto now = static_cast<Mode>(current_mode.load_relaxed());
  if (now != Mode::fresh) return now;
  if (is_disabled()) {
    now = Mode::disabled;
  } else {
    read_options();
    if constexpr (kMitigations.any()) block_secret = hardened::secret_of(os::entropy());
    if (!reserve_region()) return Mode::fresh;  // no memory yet: the caller fails with ENOMEM, the next one tries again
    set_shard_count(shards_for(os::cpu_count()));
    draw_orders();
    start_observers();
    now = Mode::active;
  }
  current_mode.store_release(static_cast<u8>(now));
  return now;
}

// Runs when a thread ends, up to four times while other destructors go on freeing; afterwards the thread works without a cache.
void end_thread(void* memory) {
  drain_orphans();
  this_thread.cache_offset = 0;
  this_thread.parked = nullptr;
  this_thread.ended = true;
  destroy_cache(*static_cast<Cache*>(memory));
}

void watch_thread_end(Cache* cache) {
  if (const u32 key = thread_key.load_acquire(); key != 0) pthread_setspecific(key - 1, cache);
}

// The handlers take all locks in one function and release them in another, which clang's analysis cannot follow.

FREESTONE_NO_ANALYSIS void before_fork() {
  orphans_lock.lock();
  cache_registry_lock.lock();
  mapping_lock.lock();
  span_lock.lock();
  metadata_lock.lock();
}

FREESTONE_NO_ANALYSIS void after_fork_in_parent() {
  metadata_lock.unlock();
  span_lock.unlock();
  mapping_lock.unlock();
  cache_registry_lock.unlock();
  orphans_lock.unlock();
}

void after_fork_in_child() {
  metadata_lock.reset_in_child();
  span_lock.reset_in_child();
  mapping_lock.reset_in_child();
  cache_registry_lock.reset_in_child();
  orphans_lock.reset_in_child();
  start_lock.reset_in_child();
  if (this_thread.cache_offset != 0) {
    this_thread.parked = &thread_cache();
    this_thread.cache_offset = 0;
  }
  orphan_caches_in_child(this_thread.parked);
}

void print_configuration() {
  (Message() << "active version=" FREESTONE_VERSION << " build=" FREESTONE_BUILD << " region=" << u64{region.window_bytes >> 20} << "MiB").write();
  for (usize i = 0; i < option_count(); ++i) {
    const OptionInfo& info = option_info(i);
    char value[kOptionTextBytes];
    Message message;
    message << "option " << info.name << ':';
    message.text(value, option_text(info, value, sizeof value)).write();
  }
}

__attribute__((constructor(101))) void on_load() {
  if (ensure_started() != Mode::active) return;
  // First in, so that our handler is the last before the fork and the first after it.
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  pthread_key_t key;
  if (pthread_key_create(&key, end_thread) == 0) thread_key.store_release(key + 1);
  if (this_thread.cache_offset != 0) watch_thread_end(&thread_cache());
  if (options.confirm) print_configuration();
}

}  // namespace

Mode mode() { return static_cast<Mode>(current_mode.load_acquire()); }

Mode ensure_started() {
  const Mode now = mode();
  return FREESTONE_LIKELY(now != Mode::fresh) ? now : start();
}

Cache* ensure_cache() {
  if (FREESTONE_LIKELY(this_thread.cache_offset != 0)) return &thread_cache();
  if (ensure_started() != Mode::active) return nullptr;
  drain_orphans();
  if (this_thread.ended) return nullptr;
  Cache* cache = this_thread.parked != nullptr ? this_thread.parked : create_cache();
  if (cache == nullptr) return nullptr;
  this_thread.parked = nullptr;
  this_thread.cache_offset = address_of(cache) - address_of(&no_cache);
  watch_thread_end(cache);  // may allocate: the cache is in place by now
  return cache;
}

}  // namespace freestone
