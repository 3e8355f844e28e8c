// Room 13, profile: the functions of a Python program, copied when they are first sampled: they may be gone when the
// profile is written.
//
// A Python call stands in a stack as a return address that no code has: its highest bit is set.
#pragma once

#include "profile/profile_store.h"
#include "stacks/python_frames.h"

namespace freestone {

struct PythonFunction {
  usize code;  // with `named`, what it is recognised by: a code object may lie where another one lay
  PythonCode named;
  const char* name;
  const char* file;
  const u8* lines;
  usize line_bytes;
};

inline constexpr usize kPythonFrame = usize{1} << 63;
inline constexpr unsigned kInstructionBits = 24;
constexpr bool is_python_frame(usize frame) { return (frame & kPythonFrame) != 0; }

// The frame of a call; 0 when memory is out.
usize python_frame_locked(const PythonCall& call) FREESTONE_REQUIRES(profile_store.lock);
unsigned python_function_count() FREESTONE_REQUIRES(profile_store.lock);
const PythonFunction& python_function(unsigned index);
// Which function a frame names, and its line. `place` lies inside the call, one before the frame.
unsigned python_function_of(usize place);
u32 python_line_of(usize place);

}  // namespace freestone
