// Room 4, platform: text without allocation. A Message builds one line on the stack and writes it with one system call.
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"
#include "config/options.h"

namespace freestone {

class Message {
 public:
  Message() { *this << "freestone: "; }
  explicit Message(const char* start) { *this << start; }

  Message& operator<<(const char* text);
  Message& operator<<(char character);
  Message& operator<<(u64 number);
  Message& operator<<(u32 number) { return *this << u64{number}; }
  Message& operator<<(int number);
  Message& operator<<(const void* pointer);
  Message& text(const char* text, usize length);

  // Ends the line and writes it to standard error. A control byte, which could steer a terminal, is written as \xNN.
  void write();
  const char* data() const { return buffer_; }
  usize length() const { return length_; }

 private:
  static constexpr usize kCapacity = 400;
  char buffer_[kCapacity];
  usize length_ = 0;
};

// Called with a failure before the process ends; null if nobody listens. It serves the program's callback.
using FailureObserver = void (*)(const char* kind, const void* block, const char* detail);
inline FailureObserver failure_observer() {
  return reinterpret_cast<FailureObserver>(const_cast<void*>(sealed_page.callbacks.corruption.load_acquire()));
}

// Called with the block after such a line, to add the stacks, while something is sampled. The sampling room defines it.
using FailureWitness = void (*)(const void* block);
extern FREESTONE_HIDDEN const FailureWitness failure_witness;
extern FREESTONE_HIDDEN Atomic<u8> has_witness;

// What a report of misuse knows about the block, beyond its address.
struct BlockFacts {
  static constexpr usize kUnknown = ~usize{0};
  usize block_bytes;
  usize asked_bytes = kUnknown;
  usize wrong_byte = kUnknown;  // the first wrong byte, counted from the block's start
  usize inside = kUnknown;      // bytes from the block's start to an address inside it
};

// The one exit for misuse that nothing can repair: it writes the line "freestone: KIND of 0x… (DETAIL)", then raises
// SIGABRT. With on_error_format:json every such line is one JSON object.
[[noreturn]] void fail(const char* kind, const void* block, const char* detail);
// The same with facts about the block: "freestone: KIND of 0x… (block of N bytes)".
[[noreturn]] void fail_block(const char* kind, const void* block, const BlockFacts& facts);
[[noreturn]] inline void fail_block(const char* kind, const void* block, usize block_bytes) {
  fail_block(kind, block, BlockFacts{block_bytes});
}

// The same for misuse that leaves the heap sound as long as the caller leaves the block alone. With on_error:report it
// returns.
void misuse(const char* kind, const void* block, const BlockFacts& facts);
inline void misuse(const char* kind, const void* block, usize block_bytes) {
  misuse(kind, block, BlockFacts{block_bytes});
}

// What fail and fail_block do after their line. Callers that wrote a longer report themselves use it directly.
[[noreturn]] void end_by_failure(const char* kind, const void* block, const char* detail);

// Ends the process by SIGABRT. No handler that could allocate runs first.
[[noreturn]] void abort_now();

}  // namespace freestone
