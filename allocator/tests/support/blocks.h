// Touched blocks, and the table that holds them outside of the heap under test.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "support/random.h"
#include "support/subject.h"

namespace freestone_test {

inline constexpr size_t kKiB = 1024;
inline constexpr size_t kMiB = 1024 * kKiB;
inline constexpr size_t kPage = 4096;

// A block each of whose pages is written to.
inline void* touched(size_t size) {
  auto* block = static_cast<char*>(api().malloc(size));
  for (size_t at = 0; at < size; at += kPage) block[at] = 1;
  block[size - 1] = 1;
  return block;
}

// At most `most` blocks; the table was touched beforehand.
class Blocks {
 public:
  explicit Blocks(size_t most)
      : bytes_(most * sizeof(void*)),
        table_(static_cast<char**>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0))) {}
  ~Blocks() { munmap(table_, bytes_); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  void keep(void* block) { table_[count_++] = static_cast<char*>(block); }
  void add(size_t size, size_t count = 1) {
    for (; count > 0; --count) keep(touched(size));
  }
  // As many as make so many bytes, each of a size that is drawn.
  template <typename Draw>
  void add_bytes(size_t bytes, Draw draw) {
    for (size_t total = 0, size = 0; total < bytes; total += size) add(size = draw());
  }
  void shrink_to(size_t count) {
    while (count_ > count) api().free(table_[--count_]);
  }
  void replace(size_t index, size_t size) {
    api().free(table_[index]);
    table_[index] = static_cast<char*>(touched(size));
  }
  size_t count() const { return count_; }
  char* operator[](size_t index) const { return table_[index]; }
  void shuffle(size_t from, Random& random) {
    for (size_t i = count_; i > from + 1; --i) std::swap(table_[i - 1], table_[from + random.below(i - from)]);
  }

 private:
  size_t bytes_;
  char** table_;
  size_t count_ = 0;
};

}  // namespace freestone_test
