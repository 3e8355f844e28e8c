// Room 9, front: the first call, the end of a thread, fork (fork.h).
//
// ld.so calls malloc before any constructor, so the first slow path brings the allocator up, with raw system calls
// only. A constructor does the work that needs libc, or the first registration of fork handlers by another library. The
// key whose destructor ends a thread is made for the second thread's cache, because a program with one thread has all
// of libc's keys. So the end of the first thread, normally the end of the process, is not seen.

#include <pthread.h>

#include <cstring>

#include "base/check.h"
#include "cache/lifetime.h"
#include "config/options.h"
#include "front/fork.h"
#include "front/hardening.h"
#include "front/heap.h"
#include "front/passthrough.h"
#include "front/replaced_operators.h"
#include "front/sampled.h"
#include "platform/child.h"
#include "platform/leaving.h"
#include "platform/message.h"
#include "platform/os.h"
#include "platform/seal.h"
#include "region/guarding.h"

extern "C" {
// The application may define it; ours is used when it does not.
FREESTONE_EXPORT __attribute__((weak)) const char* freestone_conf = nullptr;
extern const char* malloc_conf __attribute__((weak));  // jemalloc's options, in a program that has some
}

namespace freestone {

constinit Cache no_cache;
FREESTONE_THREAD_LOCAL ThreadState this_thread;
constinit Atomic<Mode> current_mode{Mode::fresh};

namespace {

Mutex start_lock{LockName::start};
Atomic<u32> thread_key{0};  // the key plus one; 0 until a second thread began

Message& quote(Message& message, const char* given, usize length) {
  return (message << '"').text(given, min_of(length, usize{80})) << '"';
}

Message& put_size(Message& message, u64 bytes) {
  const char* letter = " kmgt";
  for (; bytes != 0 && bytes % kKiB == 0 && letter[1] != '\0'; bytes /= kKiB) ++letter;
  message << bytes;
  return *letter != ' ' ? message << *letter : message;
}

Message& put_expected(Message& message, const OptionInfo& option) {
  switch (option.kind) {
    case OptionKind::flag:
      return message << "true or false";
    case OptionKind::bytes:
      put_size(message << "a size from ", option.minimum) << " to ";
      return put_size(message, option.maximum) << ", in bytes or with k, m, g or t";
    case OptionKind::number:
      return message << "a number from " << option.minimum << " to " << option.maximum;
    case OptionKind::choice:
      return message << option.unit;
    case OptionKind::text:
      return message << "at most " << option.maximum << " characters";
    case OptionKind::limit:
      return put_size(message << "a size such as 512m, at most ", option.maximum)
             << ", or 1% to 100%, or 0 for no limit";
  }
  return message;
}

void complain(const OptionInfo* option, const char* given, usize given_length, const char* nearest) {
  Message message;
  message << "FREESTONE_CONF: ";
  if (option != nullptr) {
    quote(message << "option " << option->name << " cannot be ", given, given_length) << "; expected ";
    put_expected(message, *option).write();
    return;
  }
  quote(message << "unknown option ", given, given_length);
  if (nearest != nullptr) {
    message << "; the nearest is \"" << nearest << '"';
  } else {
    message << "; confirm:true prints all names";
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
  if (value == nullptr || *value == '\0') return false;
  if (value[1] == '\0' && (*value == '0' || *value == '1')) return *value == '1';
  Message message;
  quote(message << "FREESTONE_DISABLE cannot be ", value, std::strlen(value)) << "; expected 1 or 0";
  message.write();
  return false;
}

unsigned shards_for(unsigned cpus) {
  unsigned shards = 1;
  while (shards < cpus * 2 && shards < kShardsMax) shards *= 2;
  return shards;
}

// SEAL-1: the constructors are over. Whoever comes second, they or the start, closes the seal.
Atomic<u32> is_constructed;
FREESTONE_AT_START void seal_active(Mode now) {
  if (now == Mode::active) close_seal();
}
__attribute__((constructor(103))) void on_constructed() {
  if constexpr (!kSeals) return;
  is_constructed.store_seq(1);
  seal_active(current_mode.load_seq());
}

FREESTONE_AT_START Mode start() {
  LockGuard guard(start_lock);
  Mode now = current_mode.load_relaxed();
  if (now != Mode::fresh) return now;
  os::find_clock();
  if (is_disabled() && find_next_malloc()) {
    now = Mode::disabled;
  } else {
    watch_process();  // first: from here on a child can tell that it is one
    read_options();
    if constexpr (kChecksEveryCall) hardening_hooks.draw_secrets();
    ask_about_frames();
    if (!place_region()) return Mode::fresh;  // no memory yet: this call fails with ENOMEM, the next one tries again
    if (guarding() == Guarding::protection) find_guard_budget();
    set_shard_count(shards_for(os::cpu_count()));
    start_observers();
    now = Mode::active;
  }
  current_mode.store_seq(now);
  if (kSeals && is_constructed.load_seq() != 0) seal_active(now);
  return now;
}

// Runs when a thread ends, up to four times while other destructors go on freeing; afterwards the thread works without
// a cache.
void end_thread(void* memory) {
  Cache& cache = *static_cast<Cache*>(memory);
  drain_orphans(cache);
  this_thread.cache_offset = 0;
  this_thread.no_more = true;
  this_thread.random = cache.user.random;
  park_cache(cache);
}

// The key whose destructor ends a thread, plus one; 0 if libc has no key left.
u32 make_thread_key() {
  pthread_key_t key;
  if (pthread_key_create(&key, end_thread) != 0) return 0;
  u32 before = 0;
  if (thread_key.replace_seq(before, key + 1)) return key + 1;
  pthread_key_delete(key);  // another thread was first
  return before;
}

// Once there is a second thread, libc can make keys, even if our constructor has not run: other libraries' constructors
// may start threads. False when this thread would end unseen.
bool watch_thread_end(Cache* cache) {
  u32 key = thread_key.load_acquire();
  if (key == 0 && cache_count() <= 1) return true;
  if (key == 0) key = make_thread_key();
  return key != 0 && pthread_setspecific(key - 1, cache) == 0;
}

usize window_bytes() {
  LockGuard guard(growth_lock);
  return units_to_bytes(region.window_end);
}

const char* file_of(const char* object) { return *object != '\0' ? object : "the program"; }

// The file of another copy of this library that comes before this one; null if none does. Beside libc, only Freestone
// defines this name.
const char* first_copy() {
  return malloc_is_anothers() && os::object_ahead != nullptr ? os::object_ahead("__register_atfork", true) : nullptr;
}

void print_configuration() {
  const char* other = os::object_ahead != nullptr ? os::object_ahead("malloc") : nullptr;
  Message message;
  if (other == nullptr) {
    message << "active";
  } else {
    message << "malloc is from " << file_of(other) << ", which may call this library;";
  }
  message << " version=" FREESTONE_VERSION << " build=" FREESTONE_BUILD
          << " window=" << u64{window_bytes() >> 20} << "MiB";
  message.write();
  for (usize i = 0; i < option_count(); ++i) {
    const OptionInfo& info = option_info(i);
    char value[kOptionTextBytes];
    Message line;
    line << "option " << info.name << ':';
    line.text(value, option_text(info, value, sizeof value)).write();
  }
  const auto say_ignored = [](const char* what, const char* text) {
    if (text != nullptr) (Message() << what << " \"" << text << "\" is for jemalloc; it is ignored here").write();
  };
  say_ignored("malloc_conf", &malloc_conf != nullptr ? malloc_conf : nullptr);
  say_ignored("MALLOC_CONF", os::environment_value("MALLOC_CONF"));
}

// A second copy serves nobody, so it says so in one line and reports nothing.
bool leave_to(const char* copy) {
  if (copy == nullptr) return false;
  if (options.confirm) (Message() << "a second copy: " << file_of(copy) << " serves and reports in its place").write();
  options = {};
  return true;
}

// LEAVING-2. At every instruction one of the two offsets is that of the cache, for a fork in a signal's handler.
void put_cache_aside() {
  ThreadState& thread = this_thread;
  FREESTONE_CHECK("LEAVING-2", !os::keeping.watches && !span_lock.is_mine());
  os::keeping.watches = true;
  thread.came_back = false;
  thread.aside_offset = thread.cache_offset;
  order_stores();
  thread.cache_offset = 0;
}
bool take_cache_back() {
  ThreadState& thread = this_thread;
  thread.cache_offset = thread.aside_offset;
  order_stores();
  thread.aside_offset = 0;
  os::keeping.watches = false;
  return thread.came_back;
}

__attribute__((constructor(101))) void on_load() {
  if (ensure_started() != Mode::active) return;
  watch_forks();
  if (leave_to(first_copy())) return;
  if (options.confirm) print_configuration();
}

}  // namespace

constinit const WatchHooks watch_hooks = {put_cache_aside, take_cache_back};

void reset_start_in_child() { start_lock.reset_in_child(); }

Mode ensure_started() {
  const Mode now = mode();
  return FREESTONE_LIKELY(now != Mode::fresh) ? now : start();
}

static Cache* make_watched_cache() {
  if (ensure_started() != Mode::active) return nullptr;
  if (os::keeping.watches) this_thread.came_back = true;
  if (os::keeping.watches || this_thread.no_more) return nullptr;
  this_thread.no_more = true;  // a signal handler that allocates would take the new cache for a dead thread's
  order_stores();
  Cache* cache = create_cache();
  if (cache != nullptr) this_thread.cache_offset = address_of(cache) - address_of(&no_cache);
  order_stores();
  this_thread.no_more = false;
  if (cache == nullptr) return nullptr;
  // It may allocate, so the cache must be in place first.
  if (FREESTONE_UNLIKELY(!watch_thread_end(cache))) {
    end_thread(cache);
    return nullptr;
  }
  drain_orphans(*cache);
  return cache;
}

// An asynchronous cancellation waits until something watches the thread's end (CANCEL-1).
Cache* make_cache() {
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  Cache* const cache = make_watched_cache();
  pthread_setcancelstate(before, &before);
  return cache;
}

}  // namespace freestone
