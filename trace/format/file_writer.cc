#include "format/file_writer.h"

#include <cstddef>
#include <cstring>
#include <new>

#include "format/zstd_api.h"

namespace freestone::trace {

static_assert(sizeof(fst_header) == 64 && sizeof(fst_block) == 64 && sizeof(fst_end) == 32 &&
              sizeof(fst_index_entry) == 40);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file holds structures as they lie in memory");

namespace {

template <class T>
void append(Bytes& out, const T& structure) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&structure);
  out.insert(out.end(), bytes, bytes + sizeof structure);
}

}  // namespace

Bytes file_header(uint64_t step_ns, uint64_t started_unix_ns) {
  fst_header header{};
  std::memcpy(header.magic, FST_MAGIC, sizeof header.magic);
  header.version = FST_VERSION;
  header.header_bytes = sizeof header;
  header.step_ns = step_ns;
  header.started_unix_ns = started_unix_ns;
  header.crc = crc32c(&header, offsetof(fst_header, crc));
  Bytes out;
  append(out, header);
  return out;
}

Packer::Packer(int zstd_level) : context_(ZSTD_createCCtx()) {
  if (!context_) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context_, kZstdCompressionLevel, zstd_level);
}

Packer::~Packer() { ZSTD_freeCCtx(context_); }

Bytes Packer::pack(const Block& block) {
  Bytes out(sizeof(fst_block) + ZSTD_compressBound(block.payload.size()));
  uint8_t* stored = out.data() + sizeof(fst_block);
  size_t count =
      ZSTD_compress2(context_, stored, out.size() - sizeof(fst_block), block.payload.data(), block.payload.size());
  fst_codec codec = FST_ZSTD;
  if (ZSTD_isError(count) || count >= block.payload.size()) {
    codec = FST_RAW;
    count = block.payload.size();
    if (count) std::memcpy(stored, block.payload.data(), count);
  }
  out.resize(sizeof(fst_block) + count);
  fst_block header{};
  header.magic = FST_BLOCK_MAGIC;
  header.type = static_cast<uint8_t>(block.type);
  header.codec = static_cast<uint8_t>(codec);
  header.process = block.process;
  header.thread = block.thread;
  header.events = block.events;
  header.raw_bytes = static_cast<uint32_t>(block.payload.size());
  header.stored_bytes = static_cast<uint32_t>(count);
  header.payload_crc = crc32c(out.data() + sizeof header, count);
  header.first_time = block.first_time;
  header.last_time = block.last_time;
  header.first_birth = block.first_birth;
  header.crc = crc32c(&header, offsetof(fst_block, crc));
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

void Index::add(const Block& block, uint64_t offset) {
  entries_.push_back({offset, static_cast<uint32_t>(block.type), block.process, block.thread, block.events,
                      block.first_time, block.last_time});
}

uint64_t Index::drop_last() {
  const uint64_t offset = entries_.back().offset;
  entries_.pop_back();
  return offset;
}

Bytes Index::finish(Packer& packer, uint64_t offset) const {
  Block block;
  block.type = FST_BLOCK_INDEX;
  for (const fst_index_entry& entry : entries_) append(block.payload, entry);
  Bytes out = packer.pack(block);
  fst_end end{};
  std::memcpy(end.magic, FST_END_MAGIC, sizeof end.magic);
  end.index_offset = offset;
  end.blocks = entries_.size();
  end.crc = crc32c(&end, offsetof(fst_end, crc));
  append(out, end);
  return out;
}

}  // namespace freestone::trace
