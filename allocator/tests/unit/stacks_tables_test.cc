// The unwinder's walk through a module's tables. They end where memory ends here, so a read beyond them is a fault.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "platform/os.h"
#include "stacks/call_frames.h"

namespace freestone {
namespace {

// A page whose end is the end of accessible memory.
class Edge {
 public:
  Edge() : page_(os::page_bytes()) {
    start_ = static_cast<u8*>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(start_ + page_, page_, PROT_NONE), 0);
  }
  ~Edge() { munmap(start_, 2 * page_); }
  u8* end() const { return start_ + page_; }

 private:
  usize page_;
  u8* start_;
};

constexpr i64 kPlaceFromHeader = -64;  // of a function of 32 bytes

// An .eh_frame_hdr and an .eh_frame that describe this one function, whose frame is 16 bytes once its first
// instruction is done.
std::vector<u8> tables() {
  std::vector<u8> bytes;
  bytes.reserve(128);
  const auto put = [&](std::initializer_list<int> values) {
    for (const int value : values) bytes.push_back(static_cast<u8>(value));
  };
  const auto put_word = [&](i64 value) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<u8>(value >> shift));
  };
  constexpr i64 kFrame = 20, kDescription = kFrame + 24;
  put({1, 0x1b, 0x03, 0x3b});        // version; frames by distance, count as 4 bytes, entries from the header
  put_word(kFrame - 4);
  put_word(1);                       // entries
  put_word(kPlaceFromHeader);
  put_word(kDescription);
  put_word(20);                      // the common part: length, kind
  put_word(0);
  put({1, 'z', 'R', 0, 1, 0x78, static_cast<int>(Registers::kReturn), 1, 0x1b});
  put({0x0c, static_cast<int>(Registers::kStack), 8, 0x80 | static_cast<int>(Registers::kReturn), 1, 0, 0});
  put_word(20);                      // the function: length, its common part, start, bytes
  put_word(kDescription + 4 - kFrame);
  put_word(kPlaceFromHeader - (kDescription + 8));
  put_word(32);
  put({0, 0x41, 0x0e, 16, 0, 0, 0, 0});
  return bytes;
}

// What the tables say of a place in the function; followed, where they say something.
bool finds(const u8* header, const u8* end, Row& row) {
  const usize place = reinterpret_cast<usize>(header) + static_cast<usize>(kPlaceFromHeader) + 8;
  if (!find_row(header, place, {header, end}, row)) return false;
  static Edge stack;
  const auto high = reinterpret_cast<usize>(stack.end());
  for (const usize from_end : {64, 16, 9, 8, 1}) {
    Registers registers{};
    for (unsigned k = 0; k < Registers::kCount; ++k) registers.set(k, high - from_end);
    bool outermost = false;
    follow_row(row, registers, {high - 64, high}, &outermost);
  }
  return true;
}

bool finds(const Edge& edge, const std::vector<u8>& bytes, Row& row) {
  u8* const header = edge.end() - bytes.size();
  std::memcpy(header, bytes.data(), bytes.size());
  return finds(header, edge.end(), row);
}

TEST(stacks_tables, WholeTablesSayHowTheCallerIsFound) {
  Edge edge;
  Row row;
  ASSERT_TRUE(finds(edge, tables(), row));
  EXPECT_EQ(row.cfa_register, unsigned{Registers::kStack});
  EXPECT_EQ(row.cfa_offset, 16);
}

TEST(stacks_tables, TablesThatEndTooEarlyAreNotReadBeyondTheirEnd) {
  Edge edge;
  std::vector<u8> bytes = tables();
  while (bytes.size() > 1) {
    bytes.pop_back();
    Row row;
    finds(edge, bytes, row);
  }
}

TEST(stacks_tables, DamagedTablesAreNotReadBeyondTheirEnd) {
  Edge edge;
  const std::vector<u8> whole = tables();
  for (usize at = 0; at < whole.size(); ++at) {
    for (unsigned value = 0; value < 256; ++value) {
      std::vector<u8> bytes = whole;
      bytes[at] = static_cast<u8>(value);
      Row row;
      finds(edge, bytes, row);
    }
  }
}

}  // namespace
}  // namespace freestone
