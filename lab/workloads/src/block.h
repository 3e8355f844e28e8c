// A block under test: taken with malloc, marked, checked when it is given back.
//
// What is written depends on the block's number and size only, never on its address, and the checksum is a sum over all
// blocks: every allocator that keeps contents gives the same checksum, whatever the threads' order. A NULL answer or a
// changed byte is counted in the Tally and ends the program with exit status 3.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace workload {

// Which bytes are written after malloc, and read back before free.
enum class Touch : std::uint8_t { none, single, ends, first64, page, full };
inline constexpr const char* kTouchChoices = "none|single|ends|first64|page|full";
inline constexpr const char* kTouchHelp =
    "bytes written and verified: none, single (the middle byte), ends (first and last 8), first64 (at most 64), "
    "page (8 in every 4096, and the end), full (all)";

struct Tally {
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t null_answers = 0;
  std::uint64_t corrupted = 0;
  std::uint64_t misaligned = 0;
  std::uint64_t checksum = 0;

  void add(const Tally& other) {
    allocations += other.allocations;
    frees += other.frees;
    null_answers += other.null_answers;
    corrupted += other.corrupted;
    misaligned += other.misaligned;
    checksum += other.checksum;
  }
  std::uint64_t failures() const { return null_answers + corrupted + misaligned; }
};

struct Block {
  void* at = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t number = 0;
};

// The compiler must assume that the block is used elsewhere: no call can be removed, merged or moved across this.
template <class T>
inline void hide(T*& pointer) {
  asm volatile("" : "+r"(pointer)::"memory");
}

inline std::uint64_t stamp_of(std::uint32_t bytes, std::uint32_t number) {
  std::uint64_t z = (std::uint64_t{number} << 32 | bytes) * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
  z = (z ^ (z >> 32)) * 0xD6E8FEB86659FD93u;
  return z ^ (z >> 32);
}
// Word i of a block holds stamp + i, so that contents moved by a wrong distance are seen as well.
inline void put_word(char* at, std::uint64_t word) { std::memcpy(at, &word, 8); }
inline std::uint64_t get_word(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return word;
}
inline bool is_zero(const char* at, std::size_t bytes) {
  std::uint64_t any = 0;
  std::size_t i = 0;
  for (; i + 8 <= bytes; i += 8) any |= get_word(at + i);
  for (; i < bytes; ++i) any |= static_cast<unsigned char>(at[i]);
  return any == 0;
}
inline std::uint8_t tail_byte(std::uint64_t stamp, std::size_t i) {
  return static_cast<std::uint8_t>((stamp >> (i % 8 * 8)) + i);
}

inline void fill_range(char* p, std::size_t from, std::size_t bytes, std::uint64_t stamp) {  // from: a multiple of 8
  const std::size_t words = bytes / 8;
  for (std::size_t i = from / 8; i < words; ++i) put_word(p + i * 8, stamp + i);
  for (std::size_t i = words * 8; i < bytes; ++i) p[i] = static_cast<char>(tail_byte(stamp, i));
}
inline bool check_range(const char* p, std::size_t bytes, std::uint64_t stamp, std::uint64_t& sum) {
  const std::size_t words = bytes / 8;
  std::uint64_t wrong = 0;
  std::uint64_t read = 0;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = get_word(p + i * 8);
    wrong |= word ^ (stamp + i);
    read += word;
  }
  for (std::size_t i = words * 8; i < bytes; ++i) {
    const auto byte = static_cast<std::uint8_t>(p[i]);
    wrong |= static_cast<std::uint64_t>(byte ^ tail_byte(stamp, i));
    read += byte;
  }
  sum += read;
  return wrong == 0;
}

inline void mark(char* p, std::size_t bytes, std::uint64_t stamp, Touch touch) {
  switch (touch) {
    case Touch::none: return;
    case Touch::single:
      if (bytes != 0) p[bytes / 2] = static_cast<char>(stamp);
      return;
    case Touch::first64: return fill_range(p, 0, bytes < 64 ? bytes : 64, stamp);
    case Touch::full: return fill_range(p, 0, bytes, stamp);
    case Touch::ends:
    case Touch::page:
      if (bytes < 16) return fill_range(p, 0, bytes, stamp);
      if (touch == Touch::page)
        for (std::size_t at = 4096; at + 16 <= bytes; at += 4096) put_word(p + at, stamp + at);
      put_word(p, stamp);
      put_word(p + bytes - 8, ~stamp);
      return;
  }
}
inline bool check(const char* p, std::size_t bytes, std::uint64_t stamp, Touch touch, std::uint64_t& sum) {
  switch (touch) {
    case Touch::none: sum += stamp; return true;
    case Touch::single:
      if (bytes == 0) return true;
      sum += static_cast<std::uint8_t>(p[bytes / 2]);
      return p[bytes / 2] == static_cast<char>(stamp);
    case Touch::first64: return check_range(p, bytes < 64 ? bytes : 64, stamp, sum);
    case Touch::full: return check_range(p, bytes, stamp, sum);
    case Touch::ends:
    case Touch::page: {
      if (bytes < 16) return check_range(p, bytes, stamp, sum);
      std::uint64_t wrong = 0;
      if (touch == Touch::page)
        for (std::size_t at = 4096; at + 16 <= bytes; at += 4096) {
          const std::uint64_t word = get_word(p + at);
          wrong |= word ^ (stamp + at);
          sum += word;
        }
      const std::uint64_t head = get_word(p);
      const std::uint64_t tail = get_word(p + bytes - 8);
      wrong |= (head ^ stamp) | (tail ^ ~stamp);
      sum += head * 3 + tail;
      return wrong == 0;
    }
  }
  return false;
}

inline void accept(Block& block, void* at, std::size_t bytes, std::uint32_t number, Touch touch, Tally& tally) {
  block = {at, static_cast<std::uint32_t>(bytes), number};
  if (at == nullptr) [[unlikely]] {
    ++tally.null_answers;
    return;
  }
  ++tally.allocations;
  mark(static_cast<char*>(at), bytes, stamp_of(block.bytes, number), touch);
}
inline void inspect(const Block& block, Touch touch, Tally& tally) {
  if (!check(static_cast<const char*>(block.at), block.bytes, stamp_of(block.bytes, block.number), touch,
             tally.checksum)) [[unlikely]]
    ++tally.corrupted;
}
inline void take(Block& block, std::size_t bytes, std::uint32_t number, Touch touch, Tally& tally) {
  void* at = std::malloc(bytes);
  hide(at);
  accept(block, at, bytes, number, touch, tally);
}
// A slot whose allocation failed is empty: there is nothing to give back.
inline void give(Block& block, Touch touch, Tally& tally) {
  if (block.at == nullptr) [[unlikely]]
    return;
  inspect(block, touch, tally);
  hide(block.at);
  std::free(block.at);
  ++tally.frees;
  block.at = nullptr;
}

}  // namespace workload
