// Room 14, profile: writes text and protobuf fields through a buffer into a file or into memory. The caller brings the
// buffer, so nothing allocates from the heap.
#pragma once

#include <cstring>

#include "base/digits.h"
#include "base/units.h"
#include "platform/file.h"
#include "platform/os.h"

namespace freestone {

// Text in a mapping of its own.
class MemoryText {
 public:
  const char* data() const { return data_; }
  usize length() const { return length_; }
  // False if memory is out.
  bool append(const void* text, usize bytes) {
    if (bytes > capacity_ - length_ && !grow(length_ + bytes)) return false;
    std::memcpy(data_ + length_, text, bytes);
    length_ += bytes;
    return true;
  }
  void release() {
    if (data_ != nullptr) os::unmap(data_, capacity_);
    data_ = nullptr;
    length_ = capacity_ = 0;
  }

 private:
  bool grow(usize bytes) {
    const usize wanted = max_of(round_up(bytes, 64 * kKiB), 2 * capacity_);
    auto* larger = static_cast<char*>(os::map(wanted));
    if (larger == nullptr) return false;
    if (data_ != nullptr) {
      std::memcpy(larger, data_, length_);
      os::unmap(data_, capacity_);
    }
    data_ = larger;
    capacity_ = wanted;
    return true;
  }

  char* data_ = nullptr;
  usize length_ = 0;
  usize capacity_ = 0;
};

class Output {
 public:
  Output(const os::File& file, char* buffer, usize capacity) : file_(&file), buffer_(buffer), capacity_(capacity) {}
  Output(MemoryText& text, char* buffer, usize capacity) : text_(&text), buffer_(buffer), capacity_(capacity) {}

  void raw(const void* data, usize bytes) {
    while (bytes > 0) {
      if (used_ == capacity_) flush();
      const usize part = min_of(bytes, capacity_ - used_);
      std::memcpy(buffer_ + used_, data, part);
      used_ += part;
      data = static_cast<const char*>(data) + part;
      bytes -= part;
    }
  }
  Output& operator<<(const char* text) {
    raw(text, std::strlen(text));
    return *this;
  }
  Output& operator<<(char character) {
    raw(&character, 1);
    return *this;
  }
  Output& operator<<(u64 number) { return digits(Digits::decimal(number)); }
  Output& hex(usize value) { return digits(Digits::hexadecimal(value)); }
  bool flush() {
    good_ = good_ && (file_ != nullptr ? file_->write(buffer_, used_) : text_->append(buffer_, used_));
    used_ = 0;
    return good_;
  }

 private:
  Output& digits(const Digits& number) {
    raw(number.data(), number.length());
    return *this;
  }

  const os::File* file_ = nullptr;
  MemoryText* text_ = nullptr;
  char* buffer_;
  usize capacity_;
  usize used_ = 0;
  bool good_ = true;
};

// One protobuf message. It needs a buffer because its length comes first.
template <usize capacity>
class MessageBytes {
 public:
  void varint(u64 value) {
    for (; value >= 0x80; value >>= 7) put(static_cast<u8>(value | 0x80));
    put(static_cast<u8>(value));
  }
  void number(unsigned field, u64 value) {
    if (value == 0) return;  // the default
    varint(u64{field} << 3);
    varint(value);
  }
  template <usize other>
  void message(unsigned field, const MessageBytes<other>& inner) {
    bytes(field, inner.data(), inner.length());
  }
  void bytes(unsigned field, const void* data, usize length) {
    varint((u64{field} << 3) | 2);
    varint(length);
    for (usize i = 0; i < length; ++i) put(static_cast<const u8*>(data)[i]);
  }
  const u8* data() const { return bytes_; }
  usize length() const { return used_; }
  void clear() { used_ = 0; }

 private:
  void put(u8 byte) {
    if (used_ < capacity) bytes_[used_++] = byte;
  }
  u8 bytes_[capacity];
  usize used_ = 0;
};

}  // namespace freestone
