// Room 14, profile: names of Python functions, and of functions in closed libraries. They are copied when they are
// first sampled, or before the library is closed, because they are gone when the profile is written.
//
// In a stack, such a call is a return address with the highest bit set, which no code has.
#pragma once

#include "profile/profile_store.h"
#include "stacks/python_frames.h"

namespace freestone {

struct PythonFunction {
  usize code;  // identifies it together with `named`: a new code object may lie where another one lay; else its start
  PythonCode named;
  const char* name;
  const char* file;
  const u8* lines;  // null: of a library that was closed
  usize line_bytes;
};

inline constexpr usize kPythonFrame = usize{1} << 63;
inline constexpr unsigned kInstructionBits = 24;
constexpr bool is_python_frame(usize frame) { return (frame & kPythonFrame) != 0; }

// The frame of a call; 0 if memory is out.
usize python_frame_locked(const PythonCall& call) FREESTONE_REQUIRES(profile_store.lock);
// The frame of a call at `place`, in a function that began at `start`. Functions of one name and file are one.
usize closed_frame_locked(usize start, usize place, const char* name, const char* file)
    FREESTONE_REQUIRES(profile_store.lock);
unsigned python_function_count() FREESTONE_REQUIRES(profile_store.lock);
const PythonFunction& python_function(unsigned index);
// The function that a frame names, and the line; 0 if unknown. `place` lies inside the call, one before the frame.
unsigned python_function_of(usize place);
u32 python_line_of(usize place);
// Where the frame's code lies or lay; 0 if it is a Python call.
usize address_of_frame(usize frame);

}  // namespace freestone
