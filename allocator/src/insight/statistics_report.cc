// Room 10, insight: see statistics_report.h.

#include "insight/statistics_report.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <cstring>

#include "config/options.h"
#include "front/heap.h"
#include "insight/background.h"
#include "insight/limits.h"
#include "insight/live_page.h"
#include "platform/message.h"
#include "region/account.h"

namespace freestone {

namespace {

constexpr u64 kPagePeriodMs = 500;
constexpr u64 kPressurePeriodMs = 100;

// One thread at a time acts; the others go on. Also guards the scratch space, which is too large for a signal's stack.
Mutex attention_lock;
u64 next_report_ms = 0;
u64 next_page_ms = 0;
u64 next_pressure_ms = 0;
Atomic<u8> watches_fork;
int installed_signal = 0;

struct FileSink {
  int file = -1;
  bool good = true;
  usize used = 0;
  char buffer[4 * kKiB];

  void flush() {
    good = good && os::write_all(file, buffer, used);
    used = 0;
  }
  static void put(void* self, const char* text, usize length) {
    auto& sink = *static_cast<FileSink*>(self);
    if (sink.used + length > sizeof sink.buffer) sink.flush();
    std::memcpy(sink.buffer + sink.used, text, length);  // a piece is at most one Message long
    sink.used += length;
  }
};

struct Scratch {
  Statistics statistics;
  FileSink sink;
};
Scratch scratch;  // guarded by attention_lock

void print(const Statistics& s, Format format, TextSink sink, void* context) {
  switch (format) {
    case Format::text: return print_statistics_text(s, sink, context);
    case Format::json: return print_statistics_json(s, sink, context);
    case Format::xml: return print_statistics_xml(s, sink, context);
    case Format::openmetrics: return print_statistics_openmetrics(s, sink, context);
  }
}

bool ends_with(const char* text, usize length, const char* end) {
  const usize n = std::strlen(end);
  return length >= n && std::memcmp(text + length - n, end, n) == 0;
}

Format format_of(const char* path, usize length) {
  if (ends_with(path, length, ".prom") || ends_with(path, length, ".txt")) return Format::openmetrics;
  if (ends_with(path, length, ".json")) return Format::json;
  return ends_with(path, length, ".xml") ? Format::xml : Format::text;
}

// The option's path with %p replaced. Returns its length, 0 when it is empty.
usize expand_path(const char* pattern, char* out, usize capacity) {
  Message path("");
  for (; *pattern != '\0'; ++pattern) {
    if (pattern[0] == '%' && pattern[1] == 'p') {
      path << os::process_id();
      ++pattern;
    } else {
      path << *pattern;
    }
  }
  const usize length = min_of(path.length(), capacity - 1);
  std::memcpy(out, path.data(), length);
  out[length] = '\0';
  return length;
}

// The file is written beside its place and then moved there: a reader sees the old one or the new one.
bool write_report_locked() {
  char path[kOptionTextBytes + 32];
  const usize length = expand_path(options.stats_file, path, sizeof path);
  collect_statistics(scratch.statistics);
  FileSink& sink = scratch.sink;
  sink.good = true;
  sink.used = 0;
  if (length == 0) {
    sink.file = os::stderr_file();
    print(scratch.statistics, Format::text, FileSink::put, &sink);
    sink.flush();
    return sink.good;
  }
  char draft[sizeof path + 8];
  std::memcpy(draft, path, length);
  std::memcpy(draft + length, ".new", 5);
  sink.file = os::create_file(draft);
  if (sink.file < 0) return false;
  print(scratch.statistics, format_of(path, length), FileSink::put, &sink);
  sink.flush();
  os::close_file(sink.file);
  if (sink.good && os::rename_file(draft, path)) return true;
  os::remove_file(draft);
  return false;
}

void complain_once() {
  static bool told = false;
  if (told) return;
  told = true;
  (Message() << "statistics cannot be written to " << options.stats_file).write();
}

// Whether something that happens every `period` is due; the next one counts from now, so that a pause is not made up for.
bool is_due(u64& next, u64 now, u64 period) {
  if (now < next) return false;
  const bool first = next == 0;
  next = now + period;
  return !first;
}

void act_locked(u32 why) {
  if ((why & kAttentionSoftLimit) != 0) {
    attention.and_seq(~kAttentionSoftLimit);
    react_to_soft_limit();
  }
  if ((why & kAttentionDump) != 0) {
    attention.and_seq(~kAttentionDump);
    if (!write_report_locked()) complain_once();
  }
  if ((why & kAttentionTimer) != 0) {
    const u64 now = os::coarse_milliseconds();
    if (options.stats_interval_ms > 0 && is_due(next_report_ms, now, options.stats_interval_ms) && !write_report_locked()) complain_once();
    if (options.pressure && is_due(next_pressure_ms, now, kPressurePeriodMs)) look_at_pressure();
    if (options.live_page && (next_page_ms == 0 || now >= next_page_ms)) {
      next_page_ms = now + kPagePeriodMs;
      collect_statistics(scratch.statistics);
      update_live_page(scratch.statistics);
    }
  }
}

void act() {
  const u32 why = attention.load_relaxed();
  if (!attention_lock.try_lock()) return;
  act_locked(why);
  attention_lock.unlock();
  // Starting a thread may allocate, so not under the lock.
  if ((why & kAttentionBackground) != 0) {
    attention.and_seq(~kAttentionBackground);
    start_background();
  }
}

// In the handler of a signal: at once if no lock stands in the way, else at the next slow path.
void on_signal(int) {
  if (may_collect_here() && attention_lock.try_lock()) {
    write_report_locked();
    attention_lock.unlock();
  } else {
    attention.or_seq(kAttentionDump);
  }
}

FREESTONE_NO_ANALYSIS void before_fork() { attention_lock.lock(); }
FREESTONE_NO_ANALYSIS void after_fork_in_parent() { attention_lock.unlock(); }
void after_fork_in_child() {
  attention_lock.reset_in_child();
  next_page_ms = 0;
  forget_live_page();
  forget_background();
  if (options.background_purge) attention.or_seq(kAttentionBackground);
}

void install_signal() {
  const int wanted = static_cast<int>(options.stats_signal);
  if (wanted == installed_signal) return;
  struct sigaction action = {};
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  action.sa_handler = SIG_DFL;
  if (installed_signal != 0) sigaction(installed_signal, &action, nullptr);
  action.sa_handler = on_signal;
  installed_signal = wanted != 0 && sigaction(wanted, &action, nullptr) == 0 ? wanted : 0;
  if (wanted != installed_signal) (Message() << "option stats_signal: signal " << wanted << " cannot be caught").write();
}

__attribute__((constructor(102))) void on_load() {
  if (mode() != Mode::active) return;
  if (options.stats_print || options.prof || options.leak != 0) os::keep_stderr();
  if (options.limit_soft != 0 || options.limit_hard != 0) {
    if (!apply_limit_options()) (Message() << "FREESTONE_CONF: limit_soft is above limit_hard; neither is in force").write();
  }
  apply_report_options();
}

__attribute__((destructor)) void on_exit() {
  if (mode() != Mode::active) return;
  if (options.stats_print) {
    collect_statistics(scratch.statistics);
    FileSink& sink = scratch.sink;
    sink.file = os::stderr_file();
    sink.used = 0;
    print(scratch.statistics, Format::text, FileSink::put, &sink);
    sink.flush();
  }
  if (options.stats_file[0] != '\0') write_report();
  remove_live_page();
}

}  // namespace

void enable_attention(u32 bits) {
  attention_hook.store_release(act);
  u8 expected = 0;
  if (watches_fork.replace_seq(expected, 1)) pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (bits != 0) attention.or_seq(bits);
}

void apply_report_options() {
  install_signal();
  const bool timer = options.stats_interval_ms > 0 || options.live_page || options.pressure;
  if (timer || installed_signal != 0 || options.background_purge) enable_attention(timer ? kAttentionTimer : 0);
  if (!timer) attention.and_seq(~kAttentionTimer);
  if (!options.live_page) remove_live_page();
  if (options.background_purge) {
    start_background();
  } else {
    stop_background();
  }
}

int write_report() {
  if (!attention_lock.try_lock()) return EBUSY;
  const bool good = write_report_locked();
  attention_lock.unlock();
  return good ? 0 : EIO;
}

bool write_statistics(int file, Format format) {
  Statistics statistics;
  collect_statistics(statistics);
  FileSink sink;
  sink.file = file;
  print(statistics, format, FileSink::put, &sink);
  sink.flush();
  return sink.good;
}

}  // namespace freestone
