// format/encoder.h: gathers one thread's events in columns until they fill a block. One thread owns it.
#pragma once

#include <array>
#include <cstdint>

#include "format/bytes.h"
#include "freestone/trace.h"

namespace freestone::trace {

// Which thread made an object, and which of that thread's births it was.
struct ObjectName {
  uint32_t thread;
  uint64_t birth;
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

  // Each call appends one event. Times never go back: an earlier time counts as the one before it.
  uint64_t birth(fst_kind kind, uint64_t size, unsigned align_log2, uint64_t time);  // the new object's number
  uint64_t realloc(ObjectName old, uint64_t size, uint64_t time);
  void failed_birth(fst_kind kind, uint64_t size, unsigned align_log2, uint64_t time);
  void failed_realloc(ObjectName old, uint64_t size, uint64_t time);
  void death(fst_kind kind, ObjectName object, uint64_t time);
  void touch(ObjectName object, uint64_t pages, uint64_t time);
  void other(fst_kind kind, uint64_t time);
  void fork(uint32_t child, uint64_t time);

  uint32_t events() const { return static_cast<uint32_t>(columns_[FST_KINDS].size()); }
  size_t bytes() const;
  uint64_t first_time() const { return first_time_; }
  uint64_t births() const { return births_; }

  // Returns the block of all events so far and empties the encoder.
  Block take();

 private:
  void begin(unsigned kind, uint64_t time);
  void refer(ObjectName object);
  void shape(fst_kind kind, uint64_t size, unsigned align_log2);

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
