// Room 1, base: text that readers take as UTF-8, from file names of any bytes.
#pragma once

#include "base/units.h"

namespace freestone {

// The bytes of the UTF-8 character at `text`, of which `left` bytes are there; 0: it is none.
constexpr usize utf8_length(const char* text, usize left) {
  const auto byte = [text](usize i) { return static_cast<u8>(text[i]); };
  if (left == 0) return 0;
  const u8 first = byte(0);
  if (first < 0x80) return 1;
  const usize length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length > left) return 0;
  for (usize i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Forms that are too long, the halves of a pair, and what lies above U+10FFFF.
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0)) return 0;
  if ((first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90)) return 0;
  return length;
}

// Calls put(const char*, usize) for the text's parts; for each byte that is no UTF-8, a question mark.
template <typename Put>
void put_as_utf8(const char* text, usize length, Put&& put) {
  for (usize at = 0; at < length;) {
    const usize bytes = utf8_length(text + at, length - at);
    bytes == 0 ? put("?", usize{1}) : put(text + at, bytes);
    at += bytes == 0 ? 1 : bytes;
  }
}

}  // namespace freestone
