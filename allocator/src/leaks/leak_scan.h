// Room 16, leaks: finds the heap blocks that can be reached from outside the heap. Only leak.cc uses it.
#pragma once

#include "base/compiler.h"
#include "base/units.h"

namespace freestone {

// Where the frames of the program begin on this thread's stack. It is made in the function that the program called, and
// holds the registers that functions preserve. The frames of ours below it are no part of a search: they keep addresses
// of blocks in slots that nobody uses any more.
struct ProgramFrames {
  usize registers[12] = {};
  usize start;

  FREESTONE_INLINE ProgramFrames() {
#if defined(__x86_64__)
    asm volatile(
        "movq %%rbx, 0(%0)\n movq %%rbp, 8(%0)\n movq %%r12, 16(%0)\n movq %%r13, 24(%0)\n movq %%r14, 32(%0)\n"
        "movq %%r15, 40(%0)"
        :
        : "r"(registers)
        : "memory");
#else
    asm volatile(
        "stp x19, x20, [%0]\n stp x21, x22, [%0, 16]\n stp x23, x24, [%0, 32]\n stp x25, x26, [%0, 48]\n"
        "stp x27, x28, [%0, 64]\n stp x29, x30, [%0, 80]"
        :
        : "r"(registers)
        : "memory");
#endif
    start = round_down(min_of(address_of(registers), address_of(__builtin_frame_address(0))), sizeof(usize));
  }
};

// Holds a bit per 16 bytes of the region, set at the start of each reached block, and a list of the mappings, reached
// or not.
class Reachable {
 public:
  // Stops the other threads, scans, and lets them go on. False if memory is out, /proc is missing or threads go on.
  bool find(const ProgramFrames& here);
  ~Reachable();
  bool holds(const void* block) const;

 private:
  friend class Scan;
  struct Mapped {
    usize start;
    usize end;
    bool reached;
    usize there;  // how many of its bytes are mapped still, as the threads have stopped
  };
  u64* bits_ = nullptr;
  usize bits_bytes_ = 0;
  Mapped* mapped_ = nullptr;
  usize mapped_count_ = 0;
  usize mapped_bytes_ = 0;
};

}  // namespace freestone
