// One live block of the model: what was asked for, how, and the content that must still be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace freestone_test {

// Who gave the block decides who may take it back.
enum class Origin : uint8_t { kMalloc, kAlignedAlloc, kMemalign, kNew, kNewArray, kNewAligned };

struct Block {
  unsigned char* start = nullptr;
  size_t size = 0;       // bytes whose content is checked
  size_t requested = 0;  // bytes asked for: what a sized free must be told
  size_t alignment = 0;
  uint64_t id = 0;  // decides the content
  Origin origin = Origin::kMalloc;
};

// The content is a function of the id and the place, so that a byte of another block or of an older life is never the
// expected one by rule. Small blocks are checked whole; of large ones both ends and one word in every 512 bytes, so
// that a model step stays short.
inline constexpr size_t kWholeBytes = 256;
inline constexpr size_t kStrideBytes = 512;

inline uint64_t content_word(uint64_t id, size_t at) {
  return (id + 1) * 0x9E3779B97F4A7C15u ^ (at * 0xD1B54A32D192ED03u);
}

template <typename Visit>  // visit(at, length): length is 8, or less in the last bytes
inline bool visit_content(size_t size, Visit visit) {
  const size_t head = size < kWholeBytes ? size : kWholeBytes;
  size_t at = 0;
  for (; at + 8 <= head; at += 8)
    if (!visit(at, size_t{8})) return false;
  if (at < head && !visit(at, head - at)) return false;
  if (size <= kWholeBytes) return true;
  const size_t tail = size - 8 > kWholeBytes ? size - 8 : kWholeBytes;
  for (at = kStrideBytes; at + 8 <= tail; at += kStrideBytes)
    if (!visit(at, size_t{8})) return false;
  return visit(tail, size - tail);
}

inline void fill(const Block& block) {
  visit_content(block.size, [&](size_t at, size_t length) {
    const uint64_t word = content_word(block.id, at);
    std::memcpy(block.start + at, &word, length);
    return true;
  });
}

// Checks the part of the content that lies in the first `size` bytes (after a realloc: the smaller of the two sizes).
inline bool intact(const Block& block, size_t size) {
  return visit_content(block.size, [&](size_t at, size_t length) {
    if (at + length > size) return true;
    const uint64_t word = content_word(block.id, at);
    return std::memcmp(block.start + at, &word, length) == 0;
  });
}

inline bool all_zero(const unsigned char* bytes, size_t size) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    if (word != 0) return false;
  }
  for (; i < size; ++i)
    if (bytes[i] != 0) return false;
  return true;
}

}  // namespace freestone_test
