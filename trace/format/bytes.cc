#include "format/bytes.h"

#include <array>

namespace freestone::trace {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the checksum of byte b followed by k zero bytes, so eight bytes can be folded at once.
constexpr Table make_tables() {
  Table tables{};
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; byte++)
    for (size_t k = 1; k < 8; k++) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}

constexpr Table kTables = make_tables();

}  // namespace

uint32_t crc32c(const void* bytes, size_t count) {
  const auto* at = static_cast<const uint8_t*>(bytes);
  uint32_t crc = ~0u;
  for (; count >= 8; count -= 8, at += 8) {
    const uint32_t low = crc ^ (static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 |
                                static_cast<uint32_t>(at[2]) << 16 | static_cast<uint32_t>(at[3]) << 24);
    crc = kTables[7][low & 0xff] ^ kTables[6][(low >> 8) & 0xff] ^ kTables[5][(low >> 16) & 0xff] ^
          kTables[4][low >> 24] ^ kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^ kTables[0][at[7]];
  }
  for (; count > 0; count--) crc = (crc >> 8) ^ kTables[0][(crc ^ *at++) & 0xff];
  return ~crc;
}

}  // namespace freestone::trace
