// writer/samples.h: what /proc says about the recorded processes: resident memory, and the used part of large blocks.
#pragma once

#include <cstdint>
#include <map>

#include "writer/merge.h"

namespace freestone::trace {

class Samples {
 public:
  Samples(Merge& merge, Output& output) : merge_(merge), output_(output) {}

  // Reads the resident memory of every live process.
  void read_resident();

  // Looks at the pages of large live blocks: a bounded number each time, continuing where it stopped.
  void read_pages();

  void flush_all();

 private:
  struct Curve {
    uint32_t count = 0;
    uint64_t first_time = 0;
    uint64_t last_time = 0;
    Bytes payload;
  };

  void send(uint32_t process, Curve& curve);
  uint64_t present_pages(int fd, uint64_t address, uint64_t bytes, uint64_t& budget);

  Merge& merge_;
  Output& output_;
  std::map<uint32_t, Curve> curves_;
  uint32_t next_process_ = 0;
  uint64_t next_address_ = 0;
};

}  // namespace freestone::trace
