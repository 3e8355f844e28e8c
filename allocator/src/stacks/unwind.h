// Room 13, stacks: the call stack of the calling thread, taken inside malloc.
//
// It takes no lock, allocates nothing and reads only the tables and the thread's own stack, whose bounds it finds once
// per stack. So it can run inside dlopen, while an exception is thrown, in a signal handler and after fork. libgcc's
// _Unwind_Backtrace cannot: it locks (object_mutex, and below glibc 2.35 the loader's lock) and may call malloc.
//
//   tables         By the call frame information (.eh_frame) of each module. The loader finds it without a lock
//                  (_dl_find_object). Works for code without frame pointers, such as a distribution's packages.
//   frame_pointer  By the chain of frame pointers. Ends at the first function that was compiled without them.
//
// Both ways pass code without tables, such as a JIT's, by its frame pointer. Without _dl_find_object (glibc below 2.35,
// other C libraries) `tables` means `frame_pointer`.
#pragma once

#include "base/units.h"

namespace freestone {

struct PythonStack;

inline constexpr unsigned kFramesMax = 128;

enum class Unwind : u8 { tables, frame_pointer };

// What the walk needs to find the caller of a frame.
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

// The part of one stack that may be read: [low, high).
struct StackBounds {
  usize low = 0;
  usize high = 0;
  bool holds(usize address, usize bytes) const { return address >= low && address <= high && bytes <= high - address; }
  // Reads at any address within the bounds, aligned or not.
  usize word_at(usize address) const {
    usize word;
    __builtin_memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
    return word;
  }
};

// Fills `frames` with return addresses, innermost first, without those inside this library. Returns how many. The calls
// of `python` stand before the frame of the evaluator that runs them, each as its number with the bit kPythonCall.
unsigned capture_stack(usize* frames, unsigned capacity, Unwind how, const PythonStack* python = nullptr);
inline constexpr usize kPythonCall = usize{1} << 63;

// The same from the registers that a signal interrupted. The first frame is the interrupted place itself.
unsigned capture_interrupted(const void* ucontext, usize* frames, unsigned capacity, Unwind how);

// The bounds of the stack that holds `stack_pointer`; empty if they cannot be known. Reads /proc/self/maps once per
// stack.
StackBounds stack_bounds(usize stack_pointer);

// Replaces the registers with the caller's; in unwind_tables.cc. False if the place has no tables, or if it is the
// outermost frame; then it sets *outermost.
bool step_by_tables(Registers& registers, const StackBounds& stack, bool* outermost);
// Finds the shared library that holds the address: [start, end). False if there is none.
bool find_module(usize address, usize* start, usize* end);

}  // namespace freestone
