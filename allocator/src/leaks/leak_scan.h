// Room 16, leaks: finds the heap blocks that can be reached from outside the heap. Only leak.cc uses it.
#pragma once

#include "base/units.h"
#include "leaks/leak.h"

namespace freestone {

// Holds a bit per 16 bytes of the region, set at the start of each reached block, and a list of the mappings, reached
// or not.
class Reachable {
 public:
  // Stops the other threads, scans, and lets them go on. False if memory is out, /proc is missing or threads go on. If
  // a debugger made them stand still, `standing` says where, and their registers lie in some mapping.
  bool find(const StandingThreads* standing);
  ~Reachable();
  bool holds(const void* block) const;

 private:
  friend class Scan;
  struct Mapped {
    usize start;
    usize end;
    bool reached;
  };
  u64* bits_ = nullptr;
  usize bits_bytes_ = 0;
  Mapped* mapped_ = nullptr;
  usize mapped_count_ = 0;
  usize mapped_bytes_ = 0;
};

}  // namespace freestone
