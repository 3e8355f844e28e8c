// Room 14, profile: the source of every profile format: the sums, their addresses, and the modules of these addresses.
#pragma once

#include "profile/profile_output.h"
#include "profile/profile_store.h"
#include "profile/python_names.h"
#include "stacks/memory_maps.h"

namespace freestone {

enum class ProfileFormat : u8 { pprof, collapsed, heap_v2 };
enum class ProfileView : u8 { live, cumulative, peak, lifetime };

struct Module {
  usize start;  // of the executable mapping
  usize end;
  usize file_offset;
  usize image;  // where the file's first byte is mapped; 0 when it is not
  u32 name;     // position in ProfileReport::names
  char build_id[41];
};

struct Place {
  usize address;      // inside the call
  u32 module;         // index + 1; 0: no module that is mapped now
  u32 symbol_length;  // 0: unknown
  usize symbol;       // where the name lies in the module's memory
  usize function;     // where the function begins; 0: unknown
};

// The holder of profile_store.lock makes it, and writes it before giving up the lock.
class ProfileReport {
 public:
  // Gathers modules and addresses. False if memory is out.
  bool gather(bool stop_at_unmapped) FREESTONE_REQUIRES(profile_store.lock);
  // Finds the names of functions in the modules' dynamic symbol tables.
  void find_symbols() FREESTONE_REQUIRES(profile_store.lock);

  Module* modules = nullptr;
  unsigned module_count = 0;
  const char* names = nullptr;
  Place* places = nullptr;  // ascending by address
  unsigned place_count = 0;
  u64 sample_bytes = 0;
  bool stop_at_unmapped = false;

  // The depth up to which a stack's frames are credible.
  unsigned depth_of(const Site& site) const;
  // The index of a return address in places.
  unsigned place_of(usize return_address) const;
};

void write_pprof(const ProfileReport& report, ProfileView view, Output& out) FREESTONE_REQUIRES(profile_store.lock);
void write_collapsed(const ProfileReport& report, ProfileView view, Output& out) FREESTONE_REQUIRES(profile_store.lock);
void write_heap_v2(const ProfileReport& report, Output& out) FREESTONE_REQUIRES(profile_store.lock);
// A sum of samples as a number of blocks or bytes.
inline u64 whole(double value) { return value <= 0 ? 0 : static_cast<u64>(value + 0.5); }
// One frame as "function" or "module+0x1234".
void write_place(const ProfileReport& report, const Place& place, Output& out);

// Writes a line such as "  #2 0x55d0 function+0x12 (module)" to standard error for each return address. Reads symbol
// tables without allocation.
void print_stack(const usize* frames, unsigned depth);

}  // namespace freestone
