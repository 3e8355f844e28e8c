// Room 14, profile: names for code of closed libraries. A closed library takes the names of its functions with it, and
// its addresses may become another library's. So around a dlclose, sampled frames inside the unmapped code turn into
// named ones (python_names.h).
#pragma once

#include "profile/profile_output.h"

namespace freestone {

// Whether there are samples at all. Any thread, no lock.
bool profile_has_stacks();

// Lives around one call of dlclose. Takes the store's lock at both ends, not meanwhile: the library's destructors may
// be sampled.
class ClosingCode {
 public:
  // Notes the names of sampled frames in the library with this handle and in those that were loaded after it.
  explicit ClosingCode(const void* handle);
  // Names the frames in libraries that are gone.
  void finish();

 private:
  MemoryText frames_;  // of NotedFrame, each with its texts behind it
};

}  // namespace freestone
