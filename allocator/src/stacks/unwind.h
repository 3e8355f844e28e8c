// Room 12, stacks: the call stack of the calling thread, taken inside malloc.
//
// Takes no lock, allocates nothing and reads only the thread's own stack, whose bounds are found once per thread. So it
// can run inside dlopen, while an exception is thrown, in a signal handler and after fork. That is why libgcc's
// _Unwind_Backtrace is not used: it locks (object_mutex, and below glibc 2.35 the loader's lock) and may call malloc.
//
//   tables         by the call frame information (.eh_frame) of each module, which the loader finds without a lock
//   (_dl_find_object);
//                  works for code compiled without frame pointers, such as a distribution's packages
//   frame_pointer  by the chain of frame pointers; ends at the first function that was compiled without
//
// Code without tables (a JIT's) is passed by its frame pointer in either way. Without _dl_find_object (glibc below
// 2.35, other C libraries) `tables` is `frame_pointer`.
#pragma once

#include "base/units.h"

namespace freestone {

struct PythonStack;

inline constexpr unsigned kFramesMax = 128;

enum class Unwind : u8 { tables, frame_pointer };

// What a frame is continued from.
struct Registers {
#if defined(__x86_64__)
  static constexpr unsigned kCount = 17, kFrame = 6, kStack = 7, kReturn = 16;
#else
  static constexpr unsigned kCount = 33, kFrame = 29, kStack = 31, kReturn = 30;
#endif
  usize value[kCount];
  u64 known;  // a bit per register
  usize pc;
  bool pc_is_call;  // pc is a return address: the call lies before it

  usize stack() const { return value[kStack]; }
  bool knows(unsigned reg) const { return reg < kCount && ((known >> reg) & 1) != 0; }
  void set(unsigned reg, usize what) {
    value[reg] = what;
    known |= u64{1} << reg;
  }
};

// What may be read: [low, high) of one stack.
struct StackBounds {
  usize low = 0;
  usize high = 0;
  bool holds(usize address, usize bytes) const { return address >= low && address <= high && bytes <= high - address; }
  // At any address that it holds, a multiple of eight or not.
  usize word_at(usize address) const {
    usize word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
    return word;
  }
};

// Fills `frames` with return addresses, innermost first, without those inside this library. Returns how many. Calls of
// `python` stand where the evaluator runs them, before its own frame, as kPythonCall and their number.
unsigned capture_stack(usize* frames, unsigned capacity, Unwind how, const PythonStack* python = nullptr);
inline constexpr usize kPythonCall = usize{1} << 63;

// The same from registers that a signal interrupted: the first frame is the interrupted place itself.
unsigned capture_interrupted(const void* ucontext, usize* frames, unsigned capacity, Unwind how);

// The bounds of the stack that `stack_pointer` lies in; empty when they cannot be known. Reads /proc/self/maps once per
// stack.
StackBounds stack_bounds(usize stack_pointer);

// unwind_tables.cc: replaces the registers by those of the caller. False when there are no tables for the place or at
// the outermost frame (then *outermost is set).
bool step_by_tables(Registers& registers, const StackBounds& stack, bool* outermost);
// The shared library that holds the address: [start, end). False when there is none.
bool find_module(usize address, usize* start, usize* end);

}  // namespace freestone
