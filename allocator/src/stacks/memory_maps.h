// Room 13, stacks: the mappings of the process, read from its /proc/.../maps without allocation.
#pragma once

#include "base/units.h"
#include "platform/file.h"

namespace freestone {

struct Mapping {
  usize start;
  usize end;
  usize file_offset;
  bool readable;
  bool writable;
  bool executable;
  bool shared;
  u64 inode;          // 0: no file behind it
  usize image;        // where the first byte of its file is mapped; 0: nowhere below
  const char* name;   // "" for anonymous memory; valid during the visit only
};

// Calls visit(mapping) for each mapping in ascending order until it returns false. Returns false if /proc is missing.
template <typename Visit>
bool for_each_mapped(Visit visit);

bool read_mappings(bool (*visit)(void* context, const Mapping& mapping), void* context);

template <typename Visit>
bool for_each_mapped(Visit visit) {
  return read_mappings([](void* context, const Mapping& mapping) { return (*static_cast<Visit*>(context))(mapping); },
                       &visit);
}

// Reads memory that another thread may unmap at any moment. Returns false if it is gone.
class MemoryReader {
 public:
  MemoryReader() : file_(os::File::open_own("mem")) {}
  bool read(usize address, void* to, usize bytes) const {
    return file_.is_open() && file_.read_at(to, bytes, address) == bytes;
  }
  usize read_some(usize address, void* to, usize bytes) const {
    return file_.is_open() ? file_.read_at(to, bytes, address) : 0;
  }

 private:
  os::File file_;
};

// Writes the build id of the loaded ELF file whose header lies at `image`, in hexadecimal; "" if it has none.
// `capacity` includes the final zero.
void build_id_of(usize image, usize image_end, char* text, usize capacity);

}  // namespace freestone
