// Room 18, report: see statistics_report.h.

#include "report/statistics_report.h"

#include <cerrno>
#include <cstring>

#include "config/options.h"
#include "platform/child.h"
#include "platform/file.h"
#include "platform/message.h"
#include "platform/mutex.h"
#include "report/live_page.h"

namespace freestone {

constinit Mutex report_lock{LockName::report};

namespace {

class FileSink {
 public:
  // Writes the whole report. False if the file does not take everything.
  bool write(int to, const Statistics& statistics, Format format) {
    file = to;
    good = true;
    used = 0;
    print_statistics(statistics, format, put, this);
    flush();
    return good;
  }

 private:
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

  int file;
  bool good;
  usize used;
  char buffer[kKiB];  // some reports run on the smallest stack that a thread can have
};

struct Scratch {
  Statistics statistics;
  FileSink sink;
};
// Too large for the stack of a signal handler. All zero, so it takes no memory before its first use.
FREESTONE_FAR constinit Scratch scratch FREESTONE_GUARDED_BY(report_lock){};

bool ends_with(const char* text, usize length, const char* end) {
  const usize n = std::strlen(end);
  return length >= n && std::memcmp(text + length - n, end, n) == 0;
}

Format format_of(const char* path, usize length) {
  if (ends_with(path, length, ".prom")) return Format::prometheus;
  if (ends_with(path, length, ".om") || ends_with(path, length, ".txt")) return Format::openmetrics;
  if (ends_with(path, length, ".json")) return Format::json;
  return ends_with(path, length, ".xml") ? Format::xml : Format::text;
}

// The child of a fork puts "-PID" before the ending of the path, so that it does not write over its parent's file. This
// is the place; null if the path names the process anyway.
const char* place_of_child(const char* pattern) {
  if (pattern[0] == '\0' || process_generation() == 0 || std::strstr(pattern, "%p") != nullptr) return nullptr;
  const char* folder_end = std::strrchr(pattern, '/');
  const char* ending = std::strrchr(folder_end != nullptr ? folder_end : pattern, '.');
  return ending != nullptr ? ending : pattern + std::strlen(pattern);
}

// Expands the path in the option stats_file. Returns its length; 0 if the option is empty.
usize report_path(char* out, usize capacity) {
  constexpr char kInsertion[] = "-%p";
  const char* const child = place_of_child(options.stats_file);
  if (child == nullptr) return os::expand_path(options.stats_file, out, capacity, nullptr);
  char pattern[kOptionTextBytes + sizeof kInsertion];
  const auto before = static_cast<usize>(child - options.stats_file);
  std::memcpy(pattern, options.stats_file, before);
  std::memcpy(pattern + before, kInsertion, sizeof kInsertion - 1);
  std::memcpy(pattern + before + sizeof kInsertion - 1, child, std::strlen(child) + 1);
  return os::expand_path(pattern, out, capacity, nullptr);
}

// Writes the file beside its place and then moves it there, so a reader sees either the old file or the new one.
bool write_report_locked() FREESTONE_REQUIRES(report_lock) {
  char path[kOptionTextBytes + 32];
  const usize length = report_path(path, sizeof path);
  collect_statistics(scratch.statistics, ProcessFigures::asked);
  if (length == 0) return scratch.sink.write(os::stderr_file(), scratch.statistics, Format::text);
  char draft[sizeof path + 8];
  std::memcpy(draft, path, length);
  const bool in_place = os::is_device(path);
  std::memcpy(draft + length, in_place ? "" : ".new", in_place ? 1 : 5);
  const int file = os::create_file(draft, 0644);
  if (file < 0) return false;
  const bool good = scratch.sink.write(file, scratch.statistics, format_of(path, length));
  os::close_file(file);
  if (in_place || (good && os::rename_file(draft, path))) return good;
  os::remove_file(draft);
  return false;
}

}  // namespace

int write_report() {
  if (!report_lock.try_lock()) return EBUSY;
  const bool good = write_report_locked();
  static bool told FREESTONE_GUARDED_BY(report_lock) = false;
  if (!good && !told)
    (Message() << "statistics cannot be written to " << options.stats_file << "; expected a file in a writable folder")
        .write();
  told |= !good;
  report_lock.unlock();
  return good ? 0 : EIO;
}

FREESTONE_AT_START void write_final_report() {
  if (options.stats_print) {
    LockGuard guard(report_lock);
    collect_statistics(scratch.statistics, ProcessFigures::asked);
    scratch.sink.write(os::stderr_file(), scratch.statistics, Format::text);
  }
  if (options.stats_file[0] != '\0') write_report();
  if (options.live_page) remove_live_page();
}

bool refresh_live_page() {
  if (!report_lock.try_lock()) return false;
  collect_statistics(scratch.statistics, ProcessFigures::asked);
  update_live_page(scratch.statistics);
  report_lock.unlock();
  return true;
}

FREESTONE_AT_START void report_before_fork() { report_lock.hold_for_fork(); }
FREESTONE_AT_START void report_after_fork_in_parent() { report_lock.release_after_fork(); }
void report_after_fork_in_child() {
  report_lock.reset_in_child();
  if (!report_lock.try_lock()) return;  // this thread forked in the midst of a report
  forget_live_page();
  report_lock.unlock();
}

bool write_statistics(int file, Format format) {
  Statistics statistics;
  collect_statistics(statistics, ProcessFigures::asked);
  FileSink sink;
  return sink.write(file, statistics, format);
}

}  // namespace freestone
