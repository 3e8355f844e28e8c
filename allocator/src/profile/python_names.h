// Room 14, profile: names of Python functions. They are copied when they are first sampled, because they may be gone
// when the profile is written.
//
// In a stack, such a call is a return address with the highest bit set, which no code has.
#pragma once

#include "profile/profile_store.h"
#include "stacks/python_frames.h"

namespace freestone {

struct PythonFunction {
  usize code;  // identifies it together with `named`: a new code object may lie where another one lay
  PythonCode named;
  const char* name;
  const char* file;
  const u8* lines;
  usize line_bytes;
};

inline constexpr usize kPythonFrame = usize{1} << 63;
inline constexpr unsigned kInstructionBits = 24;
constexpr bool is_python_frame(usize frame) { return (frame & kPythonFrame) != 0; }

// The frame of a call; 0 if memory is out.
usize python_frame_locked(const PythonCall& call) FREESTONE_REQUIRES(profile_store.lock);
unsigned python_function_count() FREESTONE_REQUIRES(profile_store.lock);
const PythonFunction& python_function(unsigned index);
// The function that a frame names, and the line; 0 if unknown. `place` lies inside the call, one before the frame.
unsigned python_function_of(usize place);
u32 python_line_of(usize place);

}  // namespace freestone
