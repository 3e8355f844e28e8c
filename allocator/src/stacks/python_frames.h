// Room 13, stacks: the calls of a Python program. CPython 3.11 to 3.13 keeps them in its own frames beside the C stack.
//
// A thread reads only its own calls, inside malloc, so nothing moves meanwhile. It takes no lock and never allocates.
// The layout of the frames comes from each version's headers (pycore_frame.h); reads that cannot fault check it once
// per process. If the check fails (another version, a build without the interpreter lock), there are no Python frames.
//
// The evaluator, a C function, runs a row of calls, each linked to a variable in its C frame. The address of that
// variable, `marker`, tells which C frame runs the row.
#pragma once

#include "base/units.h"

namespace freestone {

struct PythonCall {
  usize code;       // the code object
  u32 instruction;  // in code units from the function's first
};

struct PythonStack {
  static constexpr unsigned kCallsMax = 64;
  static constexpr unsigned kLevelsMax = 32;
  struct Level {
    usize marker;  // lies in the evaluator's C frame
    u32 end;       // the calls up to here, after the previous level's, are this evaluator's
  };

  // Finds the calling thread's calls, innermost first; none outside Python.
  void capture();

  PythonCall calls[kCallsMax];
  Level levels[kLevelsMax];
  unsigned call_count = 0;
  unsigned level_count = 0;
};

// What a code object says about itself, by addresses in the interpreter's memory.
struct PythonCode {
  usize name;  // qualified; a str, as `file`
  usize file;
  usize line_table;  // a bytes
  u32 first_line;
  bool operator==(const PythonCode&) const = default;
};
// Only for a code object that PythonStack::capture found, and only on the thread that found it.
PythonCode python_code(usize code);
// Copies a str as UTF-8 and cuts what does not fit. Returns the length.
usize python_text(usize text, char* to, usize capacity);
const u8* python_bytes(usize bytes, usize* length);
// The line of an instruction, from a code object's table of lines.
u32 python_line(const u8* table, usize bytes, u32 first_line, u32 instruction);

}  // namespace freestone
