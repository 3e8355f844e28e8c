// Room 12, stacks: the calls of a Python program, which CPython 3.11 to 3.13 keeps in frames of its own beside the C
// stack.
//
// A thread reads its own calls only, inside malloc, so nothing moves meanwhile: no lock, no call that allocates. The
// frames' layout is that of each version's headers (pycore_frame.h). What it says is proven once per process by reads
// that cannot fault; where the proof fails (another version, a build without the interpreter lock), there are no Python
// frames.
//
// The evaluator, a C function, runs a row of calls. Something of its own on the C stack is linked with these: `marker`
// tells which C frame it is.
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

  // The calling thread's calls, innermost first; none outside Python.
  void capture();

  PythonCall calls[kCallsMax];
  Level levels[kLevelsMax];
  unsigned call_count = 0;
  unsigned level_count = 0;
};

// What a code object says of itself, as it lies in the interpreter's memory.
struct PythonCode {
  usize name;  // qualified; a str, as `file`
  usize file;
  usize line_table;  // a bytes
  u32 first_line;
};
// Of a code object that PythonStack::capture found, by the thread that found it.
PythonCode python_code(usize code);
// Copies a str as UTF-8. Returns its length; a longer one is cut.
usize python_text(usize text, char* to, usize capacity);
const u8* python_bytes(usize bytes, usize* length);
// The line of an instruction by a code object's table of lines.
u32 python_line(const u8* table, usize bytes, u32 first_line, u32 instruction);

}  // namespace freestone
