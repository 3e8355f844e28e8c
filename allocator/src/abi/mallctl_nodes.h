// Room 20, abi: the names that mallctl answers to, and what answers for each.
#pragma once

#include <cerrno>
#include <cstring>

#include "platform/os.h"
#include "report/statistics.h"

namespace freestone {

// One call: where the old value goes and where the new one comes from; `number` is what stood for the first "#", and
// `second` for the second.
struct MallctlRequest {
  usize number = 0;
  usize second = 0;
  void* old = nullptr;
  size_t* old_bytes = nullptr;
  const void* fresh = nullptr;
  size_t fresh_bytes = 0;

  // As in jemalloc, a wrong length copies what fits and returns an error.
  template <typename T>
  int give(T value) const {
    if (old == nullptr || old_bytes == nullptr) return 0;
    const usize copied = min_of(*old_bytes, sizeof value);
    const bool right = *old_bytes == sizeof value;
    std::memcpy(old, &value, copied);
    *old_bytes = copied;
    return right ? 0 : EINVAL;
  }
  template <typename T>
  int read_only(T value) const {
    return fresh != nullptr ? EPERM : give(value);
  }
  template <typename T>
  bool take(T& value) const {
    if (fresh_bytes != sizeof value) return false;
    std::memcpy(&value, fresh, sizeof value);
    return true;
  }
  // Any byte but 0 is true.
  bool take(bool& value) const {
    u8 byte = 0;
    if (!take(byte)) return false;
    value = byte != 0;
    return true;
  }
};

// In a name "#" stands for a number.
struct MallctlNode {
  const char* name;
  int (*answer)(const MallctlRequest& request);
};

// The whole table.
struct MallctlNodes {
  const MallctlNode* first;
  usize count;
};
MallctlNodes mallctl_nodes();

// A template argument must be an object with an address.
inline constexpr char kMallctlVersion[] = "freestone " FREESTONE_VERSION;
// jemalloc's active: whole pages in use by live and cached blocks. A page may be larger than a unit.
inline usize active_bytes(const HeapFigures& s) {
  return round_up(s.heap_bytes() - s.dirty_bytes + s.mapped_bytes, os::page_bytes());
}

}  // namespace freestone
