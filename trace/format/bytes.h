// format/bytes.h: the small codings of a trace file: varints, zigzag, CRC-32C. Pure functions, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace freestone::trace {

using Bytes = std::vector<uint8_t>;

// Seven bits a byte, the lowest first; the last byte has its high bit clear.
inline void put_varint(Bytes& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<uint8_t>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<uint8_t>(value));
}

// Reads varints from a buffer, never past its end. Once a read is impossible, `failed` is set and stays set.
class VarintReader {
 public:
  explicit VarintReader(std::span<const uint8_t> bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  uint64_t next() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) break;
      const uint8_t byte = *at_++;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    failed = true;
    at_ = end_;
    return 0;
  }

  uint8_t next_byte() {
    if (at_ != end_) return *at_++;
    failed = true;
    return 0;
  }

  bool at_end() const { return at_ == end_; }

  bool failed = false;

 private:
  const uint8_t* at_;
  const uint8_t* end_;
};

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}
inline int64_t unzigzag(uint64_t value) { return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1); }

// CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(const void* bytes, size_t count);

}  // namespace freestone::trace
