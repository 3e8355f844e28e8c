// format/encoder.h: gathers one thread's events in columns until they fill a block. One thread owns it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "format/bytes.h"
#include "freestone/trace.h"

namespace freestone::trace {

// Which thread made an object, and which of that thread's births it was.
struct ObjectName {
  uint32_t thread;
  uint64_t birth;
};

// One event. It has an object exactly if its kind has a reference.
struct Call {
  unsigned kind;      // enum fst_kind
  uint64_t size = 0;  // birth: the bytes; FST_FORK: the child; FST_TOUCH: the pages
  unsigned align_log2 = 0;
  std::optional<ObjectName> object = {};  // what the event ends or touches
  bool failed = false;
};

// A block before compression. `payload` is what fst_block calls unpacked.
struct Block {
  fst_block_type type = FST_BLOCK_META;
  uint32_t process = 0;
  uint32_t thread = 0;
  uint32_t events = 0;
  uint64_t first_time = 0;
  uint64_t last_time = 0;
  uint64_t first_birth = 0;
  Bytes payload;
};

class Encoder {
 public:
  Encoder(uint32_t process, uint32_t thread) : process_(process), thread_(thread) {}

  // Appends one event. Times never go back: an earlier time counts as the one before it. Returns the number of the
  // birth, if it is one.
  uint64_t add(const Call& call, uint64_t time);

  uint32_t events() const { return static_cast<uint32_t>(columns_[FST_KINDS].size()); }
  size_t bytes() const;
  uint64_t first_time() const { return first_time_; }
  uint64_t births() const { return births_; }

  // Returns the block of all events so far and empties the encoder.
  Block take();

 private:
  void refer(ObjectName object);

  uint32_t process_;
  uint32_t thread_;
  uint64_t births_ = 0;
  uint64_t block_births_ = 0;  // at the block's start
  uint64_t first_time_ = 0;
  uint64_t time_ = 0;
  uint64_t foreign_birth_ = 0;
  std::array<Bytes, FST_COLUMNS> columns_;
};

}  // namespace freestone::trace
