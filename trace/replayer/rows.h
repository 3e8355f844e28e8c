// replayer/rows.h: a trace as one array of rows, for programs that work on whole columns (the lab, with numpy). Here an
// object is the row of its birth, so no program has to follow names.
//
// A file of rows is a RowsHeader, then the arrays that it counts, in its order: rows, points, gaps, frames, and the
// bytes of three texts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/file_reader.h"

namespace freestone::trace {

// One event. The rows of a thread are in its order.
struct Row {
  uint64_t time;
  uint64_t size;    // birth: the bytes; FST_FORK: the child; FST_TOUCH: the pages
  uint64_t object;  // the row at which the object was born that ends or is touched; kNone: none that the trace has
  uint32_t thread;
  uint32_t process;
  uint8_t kind;
  uint8_t align_log2;
  uint8_t failed;
  uint8_t padding[5];
};
static_assert(sizeof(Row) == 40);

struct RowFrame {
  uint64_t object;  // its row
  uint64_t address;
};

struct RowsHeader {
  uint64_t step_ns;
  uint64_t started_unix_ns;
  uint64_t rows;
  uint64_t points;
  uint64_t gaps;
  uint64_t frames;
  uint64_t meta_bytes;
  uint64_t summary_bytes;
  uint64_t cut_bytes;
};

// Finds the row of each birth, where every event is a row, one thread after the other.
class Births {
 public:
  explicit Births(const TraceFile& trace);

  // kNone if the trace lacks the birth.
  uint64_t row_of(uint32_t thread, uint64_t birth) const;
  uint64_t row_of_named(const Event& event) const { return row_of(event.ref_thread, event.ref_birth); }

 private:
  struct Made {
    uint64_t first = 0;
    std::vector<uint64_t> rows;
  };
  std::unordered_map<uint32_t, Made> made_;
};

// Writes the rows, the threads in the order of their numbers. Throws Error if an event ends or touches what was never
// made, or an object ends twice. Where the end of the recording was cut off, such events of lost objects are left out.
void print_rows(TraceFile trace, FILE* to);

// Writes the trace that a file of rows describes. It numbers births anew, and leaves out events that name no object.
// Throws Error if the bytes are no file of rows.
void print_trace(std::span<const uint8_t> rows, FILE* to);

}  // namespace freestone::trace
