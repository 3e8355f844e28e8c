// writer/objects.h: finds the object at an address of one process. Open addressing, 16 bytes an entry, at most half
// full.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "format/encoder.h"

namespace freestone::trace {

class Objects {
 public:
  Objects() : entries_(1024) {}

  std::optional<ObjectName> find(uint64_t address) const {
    const size_t at = place(address);
    if (entries_[at].address == 0) return std::nullopt;
    return unpack(entries_[at].name);
  }

  // `address` must not be there.
  void insert(uint64_t address, ObjectName name) {
    if ((count_ + 1) * 2 > entries_.size()) grow();
    entries_[place(address)] = {address, pack(name)};
    count_++;
  }

  std::optional<ObjectName> remove(uint64_t address) {
    size_t hole = place(address);
    if (entries_[hole].address == 0) return std::nullopt;
    const ObjectName found = unpack(entries_[hole].name);
    // Entries that were displaced past the hole move back into it, so removed entries leave no marks.
    for (size_t next = (hole + 1) & mask(); entries_[next].address != 0; next = (next + 1) & mask()) {
      const size_t home = hash(entries_[next].address) & mask();
      if (((next - home) & mask()) < ((next - hole) & mask())) continue;
      entries_[hole] = entries_[next];
      hole = next;
    }
    entries_[hole] = {0, 0};
    count_--;
    return found;
  }

 private:
  struct Entry {
    uint64_t address;  // 0: free
    uint64_t name;
  };
  static constexpr unsigned kBirthBits = 40;

  static uint64_t pack(ObjectName name) { return static_cast<uint64_t>(name.thread) << kBirthBits | name.birth; }
  static ObjectName unpack(uint64_t name) {
    return {static_cast<uint32_t>(name >> kBirthBits), name & ((uint64_t{1} << kBirthBits) - 1)};
  }
  static size_t hash(uint64_t address) { return static_cast<size_t>((address >> 4) * 0x9e3779b97f4a7c15u >> 20); }
  size_t mask() const { return entries_.size() - 1; }

  size_t place(uint64_t address) const {
    size_t at = hash(address) & mask();
    while (entries_[at].address != 0 && entries_[at].address != address) at = (at + 1) & mask();
    return at;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old)
      if (entry.address) entries_[place(entry.address)] = entry;
  }

  std::vector<Entry> entries_;
  size_t count_ = 0;
};

}  // namespace freestone::trace
