// Room 15, leaks: which heap blocks can be reached from outside the heap. Used by leak.cc only.
#pragma once

#include "base/units.h"

namespace freestone {

// A bit per 16 bytes of the region, set at the start of each block that was reached, and a list of the reached
// mappings.
class Reachable {
 public:
  // Stops the other threads, scans, lets them go on. False when memory is out or /proc is not there.
  bool find();
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
