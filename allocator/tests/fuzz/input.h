// What the fuzz targets share: the bytes of one input read as numbers, and the end of a process whose promise is
// broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fuzz {

// Past the end everything is 0, so every input means something.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  bool empty() const { return at_ == end_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }
  const uint8_t* data() const { return at_; }
  uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
  uint64_t number(unsigned bytes) {
    uint64_t value = 0;
    for (unsigned k = 0; k < bytes; ++k) value |= uint64_t{byte()} << (8 * k);
    return value;
  }
  // The next `bytes` as an input of their own, as far as there are any.
  Input take(size_t bytes) {
    Input part(at_, bytes < left() ? bytes : left());
    at_ += part.left();
    return part;
  }

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

[[noreturn]] inline void broken(const char* promise, const char* where) {
  std::fprintf(stderr, "broken promise: %s (%s)\n", promise, where);
  std::abort();
}

}  // namespace fuzz

#define FUZZ_STRING(x) #x
#define FUZZ_LINE(x) FUZZ_STRING(x)
#define FUZZ_EXPECT(condition) ((condition) ? void() : fuzz::broken(#condition, __FILE__ ":" FUZZ_LINE(__LINE__)))
