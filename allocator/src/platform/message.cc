// Room 4, platform: see message.h.

#include "platform/message.h"

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/digits.h"
#include "config/options.h"
#include "config/size_class.h"
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
  constexpr usize kEscape = 4;
  for (usize i = 0; i < length_; ++i) {
    const u8 byte = static_cast<u8>(buffer_[i]);
    if (byte >= ' ' && byte != 0x7f) continue;
    const usize after = i + kEscape;
    if (after >= kCapacity) {
      length_ = i;
      break;
    }
    const usize rest = min_of(length_ - i - 1, kCapacity - 1 - after);
    std::memmove(buffer_ + after, buffer_ + i + 1, rest);
    const char escape[kEscape] = {'\\', 'x', "0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
    std::memcpy(buffer_ + i, escape, kEscape);
    length_ = after + rest;
  }
  buffer_[length_++] = '\n';
  os::write_stderr(buffer_, length_);
}

constinit Atomic<u8> has_witness;

namespace {

void tell_witness(const void* block) {
  if (has_witness.load_acquire() != 0) failure_witness(block);
}

// Only once: a failure inside the observer must not call it again.
void tell_observer(const char* kind, const void* block, const char* detail) {
  static Atomic<u32> told;
  const FailureObserver observer = failure_observer();
  if (observer != nullptr && told.fetch_add_relaxed(1) == 0) observer(kind, block, detail);
}

}  // namespace

void end_by_failure(const char* kind, const void* block, const char* detail) {
  tell_observer(kind, block, detail);
  abort_now();
}

namespace {

constexpr u32 kJson = 1;  // the position of the word in options.def

// Starts the object: {"freestone":"misuse","process":N,"kind":"KIND","address":"0x…"
// The caller adds more and closes the brace. None of our texts needs an escape.
FREESTONE_SLOW Message json_start(const char* kind, const void* block) {
  Message line("{\"freestone\":\"misuse\",\"process\":");
  line << os::process_id() << ",\"kind\":\"" << kind << "\",\"address\":\"" << block << '"';
  return line;
}

FREESTONE_SLOW void say(const char* kind, const void* block, const char* detail) {
  if (options.on_error_format == kJson) {
    (json_start(kind, block) << ",\"detail\":\"" << detail << "\"}").write();
  } else {
    (Message() << kind << " of " << block << " (" << detail << ')').write();
  }
  tell_witness(block);
}

// The size class whose blocks have this many bytes; 0: none.
SizeClass class_number(usize block_bytes) {
  const SizeClass c = block_bytes <= kCachedBytesMax ? class_of(block_bytes) : 0;
  return c != 0 && class_info(c).bytes == block_bytes ? c : 0;
}

FREESTONE_SLOW void say(const char* kind, const void* block, const BlockFacts& facts) {
  const bool json = options.on_error_format == kJson;
  Message line = json ? json_start(kind, block) : Message();
  if (json) {
    line << ",\"block_bytes\":" << u64{facts.block_bytes} << ",\"class\":" << u64{class_number(facts.block_bytes)};
  } else {
    line << kind << " of " << block << " (block of " << u64{facts.block_bytes} << " bytes";
  }
  const auto add = [&](usize fact, const char* key, const char* before, const char* behind) {
    if (fact == BlockFacts::kUnknown) return;
    json ? line << ",\"" << key << "\":" << u64{fact} : line << ", " << before << u64{fact} << behind;
  };
  add(facts.asked_bytes, "asked_bytes", "", " asked for");
  add(facts.wrong_byte, "wrong_byte", "wrong from byte ", "");
  add(facts.inside, "inside", "", " behind its start");
  (line << (json ? '}' : ')')).write();
  tell_witness(block);
}

}  // namespace

void fail(const char* kind, const void* block, const char* detail) {
  say(kind, block, detail);
  end_by_failure(kind, block, detail);
}

void fail_block(const char* kind, const void* block, const BlockFacts& facts) {
  say(kind, block, facts);
  end_by_failure(kind, block, "");
}

void fail_check(const char* label, const char* condition) {
  if constexpr (kChecks) (Message() << label << " does not hold: " << condition).write();
  abort_now();
}

void misuse(const char* kind, const void* block, const BlockFacts& facts) {
  static Atomic<u32> reports;
  constexpr u32 kReportsMax = 100;
  const bool ends = options.on_error == 0;
  if (ends || reports.fetch_add_relaxed(1) < kReportsMax) say(kind, block, facts);
  if (ends) end_by_failure(kind, block, "");
}

void abort_now() { std::abort(); }

}  // namespace freestone
