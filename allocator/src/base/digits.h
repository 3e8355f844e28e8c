// Room 1, base: numbers as text, for messages and reports that may not allocate, and back.
#pragma once

#include "base/units.h"

namespace freestone {

// The digits of a number, highest first; a hexadecimal number begins with "0x".
class Digits {
 public:
  static Digits decimal(u64 number) { return Digits(number, 10); }
  static Digits hexadecimal(u64 number) {
    Digits digits(number, 16);
    digits.text_[--digits.start_] = 'x';
    digits.text_[--digits.start_] = '0';
    return digits;
  }
  const char* data() const { return text_ + start_; }
  usize length() const { return sizeof text_ - start_; }

 private:
  Digits(u64 number, unsigned base) {
    do {
      text_[--start_] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
  }

  char text_[20];  // 2^64 - 1 in decimal; "0x" and sixteen digits are shorter
  usize start_ = sizeof text_;
};

// The decimal number that begins at `at`, which moves behind its digits, at most to `end`; 0 where there is no digit.
// Without an end, the text has a character behind the number. What needs more than 64 bits comes out wrong.
constexpr u64 take_decimal(const char*& at, const char* end = nullptr) {
  u64 number = 0;
  for (; at != end && *at >= '0' && *at <= '9'; ++at) number = number * 10 + static_cast<u64>(*at - '0');
  return number;
}

}  // namespace freestone
