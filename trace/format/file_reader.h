// format/file_reader.h: reads a trace file. Whatever the bytes, the outcome is events, or an Error that says what is
// wrong and where.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "format/bytes.h"
#include "freestone/trace.h"

namespace freestone::trace {

// A trace that cannot be read. The text names the place and what is wrong.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Event {
  uint64_t time;
  uint64_t size;        // birth: the bytes; FST_FORK: the child; FST_TOUCH: the pages
  uint64_t birth;       // the object that is born, or kNone
  uint64_t ref_birth;   // the object that ends or is touched
  uint32_t ref_thread;  // kNoThread if the event names no object
  uint8_t kind;
  uint8_t align_log2;
  bool failed;
};
inline constexpr uint64_t kNone = ~uint64_t{0};
inline constexpr uint32_t kNoThread = ~uint32_t{0};

struct ThreadEvents {
  uint32_t thread;
  uint32_t process;
  std::vector<Event> events;
};

// Resident memory of a process at a time. The members of these three are as wide as in a file of rows
// (replayer/rows.h).
struct Point {
  uint64_t process;
  uint64_t time;
  uint64_t resident_kib;
  uint64_t anonymous_kib;
};

struct Gap {
  uint64_t thread;  // FST_ALL: every thread
  uint64_t first_time;
  uint64_t last_time;
};

// One frame of the stack that made an object; a stack's frames follow each other from the innermost.
struct Frame {
  uint64_t thread;
  uint64_t birth;
  uint64_t address;
};

struct TraceFile {
  uint64_t step_ns = 0;
  uint64_t started_unix_ns = 0;
  bool incomplete = true;  // the end of the recording was cut off, so events may name objects that are missing
  uint64_t bytes = 0;      // of the file
  std::string meta;        // JSON, as recorded
  std::string summary;
  std::string cut;  // what is missing at the end, where that was allowed
  std::vector<ThreadEvents> threads;
  std::vector<Point> points;
  std::vector<Gap> gaps;
  std::vector<Frame> frames;
};

// Reads the whole file. Throws Error. With `partial`, one that is damaged or cut is read as far as it goes.
TraceFile read_trace(const std::string& path, bool partial = false);

}  // namespace freestone::trace
