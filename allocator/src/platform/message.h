// Room 4, platform: text without allocation. A Message builds one line on the stack and writes it with one write(2).
#pragma once

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/units.h"

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

  // Ends the line and writes it to standard error.
  void write();
  const char* data() const { return buffer_; }
  usize length() const { return length_; }

 private:
  static constexpr usize kCapacity = 400;
  char buffer_[kCapacity];
  usize length_ = 0;
};

// Told of a failure before the process ends; null for nobody. Defined for the program's callback.
using FailureObserver = void (*)(const char* kind, const void* block, const char* detail);
extern Atomic<FailureObserver> failure_observer;

// Told of the block when such a line was written, to add the stacks. Null while nothing is sampled.
using FailureWitness = void (*)(const void* block);
extern FREESTONE_HIDDEN Atomic<FailureWitness> failure_witness;

// What is known of the block that a misuse concerns, beyond its address.
struct BlockFacts {
  static constexpr usize kUnknown = ~usize{0};
  usize block_bytes;
  usize asked_bytes = kUnknown;
  usize wrong_byte = kUnknown;  // the first that is not as it must be, counted from the block's start
  usize inside = kUnknown;      // bytes from the block's start to the address, which points into it
};
// The size class with blocks of so many bytes; 0: none. Defined by slab, for the line of a misuse.
unsigned class_number(usize block_bytes);

// The one exit for misuse that cannot be tolerated: one line "freestone: KIND of 0x… (DETAIL)", then SIGABRT. With
// on_error_format:json every such line is one JSON object.
[[noreturn]] void fail(const char* kind, const void* block, const char* detail);
// The same with what is known of the block: "freestone: KIND of 0x… (block of N bytes)".
[[noreturn]] void fail_block(const char* kind, const void* block, const BlockFacts& facts);
[[noreturn]] inline void fail_block(const char* kind, const void* block, usize block_bytes) {
  fail_block(kind, block, BlockFacts{block_bytes});
}

// The same for a misuse after which the heap is sound, if the caller leaves the block alone: with on_error:report it
// returns.
void misuse(const char* kind, const void* block, const BlockFacts& facts);
inline void misuse(const char* kind, const void* block, usize block_bytes) {
  misuse(kind, block, BlockFacts{block_bytes});
}

// What both do after their line, for a caller that wrote a longer report itself.
[[noreturn]] void end_by_failure(const char* kind, const void* block, const char* detail);

// Ends the process by SIGABRT without running handlers that could allocate first.
[[noreturn]] void abort_now();

}  // namespace freestone
