// format/file_writer.h: packs blocks and keeps the index. It writes into memory; the caller decides where the bytes go.
#pragma once

#include <cstdint>
#include <vector>

#include "format/encoder.h"

struct ZSTD_CCtx_s;

namespace freestone::trace {

Bytes file_header(uint64_t step_ns, uint64_t started_unix_ns);

class Packer {
 public:
  explicit Packer(int zstd_level);
  ~Packer();
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  Bytes pack(const Block& block);  // in the form of the file

 private:
  ZSTD_CCtx_s* context_;
};

class Index {
 public:
  void add(const Block& block, uint64_t offset);
  bool is_empty() const { return entries_.empty(); }
  uint64_t drop_last();  // returns its offset
  size_t bytes() const { return entries_.size() * sizeof(fst_index_entry); }

  // The index block and the end mark, for a file that has `offset` bytes so far.
  Bytes finish(Packer& packer, uint64_t offset) const;

 private:
  std::vector<fst_index_entry> entries_;
};

}  // namespace freestone::trace
