#include "format/encoder.h"

#include <cstring>

namespace freestone::trace {

void Encoder::begin(unsigned kind, uint64_t time) {
  if (time < time_) time = time_;
  Bytes& kinds = columns_[FST_KINDS];
  if (kinds.empty()) {
    first_time_ = time_ = time;
    block_births_ = births_;
    foreign_birth_ = 0;
  }
  if (time != time_) {
    kind |= FST_TIMED;
    put_varint(columns_[FST_TIMES], time - time_);
    time_ = time;
  }
  kinds.push_back(static_cast<uint8_t>(kind));
}

void Encoder::refer(ObjectName object) {
  Bytes& refs = columns_[FST_REFS];
  if (object.thread == thread_) {
    put_varint(refs, births_ - 1 - object.birth);
    return;
  }
  columns_[FST_KINDS].back() |= FST_FOREIGN;
  put_varint(refs, object.thread);
  put_varint(refs, zigzag(static_cast<int64_t>(object.birth - foreign_birth_)));
  foreign_birth_ = object.birth;
}

void Encoder::shape(fst_kind kind, uint64_t size, unsigned align_log2) {
  put_varint(columns_[FST_SIZES], size);
  if (fst_is_aligned(kind)) columns_[FST_ALIGNS].push_back(static_cast<uint8_t>(align_log2));
}

uint64_t Encoder::birth(fst_kind kind, uint64_t size, unsigned align_log2, uint64_t time) {
  begin(kind, time);
  shape(kind, size, align_log2);
  return births_++;
}

uint64_t Encoder::realloc(ObjectName old, uint64_t size, uint64_t time) {
  begin(FST_REALLOC, time);
  refer(old);
  shape(FST_REALLOC, size, 0);
  return births_++;
}

void Encoder::failed_birth(fst_kind kind, uint64_t size, unsigned align_log2, uint64_t time) {
  begin(static_cast<unsigned>(kind) | FST_FAILED, time);
  shape(kind, size, align_log2);
}

void Encoder::failed_realloc(ObjectName old, uint64_t size, uint64_t time) {
  begin(FST_REALLOC | FST_FAILED, time);
  refer(old);
  shape(FST_REALLOC, size, 0);
}

void Encoder::death(fst_kind kind, ObjectName object, uint64_t time) {
  begin(kind, time);
  refer(object);
}

void Encoder::touch(ObjectName object, uint64_t pages, uint64_t time) {
  begin(FST_TOUCH, time);
  refer(object);
  put_varint(columns_[FST_EXTRAS], pages);
}

void Encoder::other(fst_kind kind, uint64_t time) { begin(kind, time); }

void Encoder::fork(uint32_t child, uint64_t time) {
  begin(FST_FORK, time);
  put_varint(columns_[FST_EXTRAS], child);
}

size_t Encoder::bytes() const {
  size_t sum = 0;
  for (const Bytes& column : columns_) sum += column.size();
  return sum;
}

Block Encoder::take() {
  Block block{FST_BLOCK_EVENTS, process_, thread_, events(), first_time_, time_, block_births_, {}};
  block.payload.reserve(bytes() + FST_COLUMNS * 4);
  for (const Bytes& column : columns_)
    for (unsigned shift = 0; shift < 32; shift += 8)
      block.payload.push_back(static_cast<uint8_t>(column.size() >> shift));
  for (Bytes& column : columns_) {
    block.payload.insert(block.payload.end(), column.begin(), column.end());
    column.clear();
  }
  return block;
}

}  // namespace freestone::trace
