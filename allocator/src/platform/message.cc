// Room 4, platform: see message.h.

#include "platform/message.h"

#include <cstdlib>
#include <cstring>

#include "base/digits.h"
#include "config/options.h"
#include "platform/file.h"
#include "platform/os.h"

namespace freestone {

Message& Message::text(const char* text, usize length) {
  const usize room = kCapacity - 1 - length_;  // one byte is kept for the newline
  const usize taken = min_of(length, room);
  std::memcpy(buffer_ + length_, text, taken);
  length_ += taken;
  return *this;
}

Message& Message::operator<<(const char* string) { return text(string, std::strlen(string)); }
Message& Message::operator<<(char character) { return text(&character, 1); }

Message& Message::operator<<(u64 number) {
  const Digits digits = Digits::decimal(number);
  return text(digits.data(), digits.length());
}

Message& Message::operator<<(int number) {
  if (number < 0) return *this << '-' << (u64{0} - static_cast<u64>(number));
  return *this << static_cast<u64>(number);
}

Message& Message::operator<<(const void* pointer) {
  const Digits digits = Digits::hexadecimal(address_of(pointer));
  return text(digits.data(), digits.length());
}

void Message::write() {
  buffer_[length_++] = '\n';
  os::write_stderr(buffer_, length_);
}

constinit Atomic<FailureObserver> failure_observer;
constinit Atomic<FailureWitness> failure_witness;

namespace {

void tell_witness(const void* block) {
  if (const FailureWitness witness = failure_witness.load_acquire(); witness != nullptr) witness(block);
}

// Once: a failure inside the observer must not call it again.
void tell_observer(const char* kind, const void* block, const char* detail) {
  if (const FailureObserver observer = failure_observer.exchange_seq(nullptr); observer != nullptr) observer(kind, block, detail);
}

void put_block_line(const char* kind, const void* block, usize block_bytes) {
  (Message() << kind << " of " << block << " (block of " << u64{block_bytes} << " bytes)").write();
  tell_witness(block);
}

}  // namespace

void end_by_failure(const char* kind, const void* block, const char* detail) {
  tell_observer(kind, block, detail);
  abort_now();
}

void fail(const char* kind, const void* block, const char* detail) {
  (Message() << kind << " of " << block << " (" << detail << ')').write();
  tell_witness(block);
  end_by_failure(kind, block, detail);
}

void fail_block(const char* kind, const void* block, usize block_bytes) {
  put_block_line(kind, block, block_bytes);
  end_by_failure(kind, block, "");
}

void misuse(const char* kind, const void* block, usize block_bytes) {
  if (options.on_error == 0) fail_block(kind, block, block_bytes);
  static Atomic<u32> reports;
  constexpr u32 kReportsMax = 100;
  if (reports.fetch_add_relaxed(1) < kReportsMax) put_block_line(kind, block, block_bytes);
}

void abort_now() { std::abort(); }

}  // namespace freestone
