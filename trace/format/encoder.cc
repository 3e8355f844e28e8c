#include "format/encoder.h"

#include <algorithm>

namespace freestone::trace {

uint64_t Encoder::add(const Call& call, uint64_t time) {
  Bytes& kinds = columns_[FST_KINDS];
  time = std::max(time, time_);
  if (kinds.empty()) {
    first_time_ = time_ = time;
    block_births_ = births_;
    foreign_birth_ = 0;
  }
  kinds.push_back(static_cast<uint8_t>(call.kind | (call.failed ? FST_FAILED : 0) | (time != time_ ? FST_TIMED : 0)));
  if (time != time_) put_varint(columns_[FST_TIMES], time - time_);
  time_ = time;
  if (call.object) refer(*call.object);
  if (fst_is_birth(call.kind)) put_varint(columns_[FST_SIZES], call.size);
  if (fst_is_aligned(call.kind)) columns_[FST_ALIGNS].push_back(static_cast<uint8_t>(call.align_log2));
  if (fst_has_extra(call.kind)) put_varint(columns_[FST_EXTRAS], call.size);
  return fst_is_birth(call.kind) && !call.failed ? births_++ : births_;
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
