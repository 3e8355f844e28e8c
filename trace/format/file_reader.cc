#include "format/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>

#include "format/zstd_api.h"

namespace freestone::trace {
namespace {

constexpr uint64_t kMostEvents = 400'000'000;  // some 20 GB in memory
constexpr unsigned kMostAlignLog2 = 63;
constexpr uint64_t kTimesEnd = uint64_t{1} << 62;
constexpr uint64_t kBirthsEnd = uint64_t{1} << 40;  // of one thread

// The bytes of a regular file. They are read and not mapped: a file that another program cuts meanwhile kills nobody.
Bytes read_whole(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would wait for its writer
  struct stat about{};
  std::string why;
  Bytes bytes;
  if (fd < 0 || fstat(fd, &about) != 0)
    why = std::strerror(errno);
  else if (!S_ISREG(about.st_mode))
    why = "not a regular file";
  else
    bytes.resize(static_cast<size_t>(about.st_size));
  size_t done = 0;
  while (why.empty() && done < bytes.size()) {
    const ssize_t count = read(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) why = std::strerror(errno);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  if (fd >= 0) close(fd);
  if (!why.empty()) throw Error("cannot be read: " + why);
  bytes.resize(done);
  return bytes;
}

[[noreturn]] void fail(uint64_t offset, const std::string& text) {
  throw Error("at byte " + std::to_string(offset) + ": " + text);
}

template <class T>
T copy_at(std::span<const uint8_t> data, uint64_t offset) {
  T structure;
  std::memcpy(&structure, data.data() + offset, sizeof structure);
  return structure;
}

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> data) : data_(data) {}

  TraceFile read(bool partial) {
    file_.bytes = data_.size();
    read_header();
    try {
      read_blocks();
    } catch (const Error& error) {
      if (!partial) throw;
      file_.cut = error.what();
      file_.incomplete = true;
    }
    return std::move(file_);
  }

 private:
  void read_blocks() {
    uint64_t offset = sizeof(fst_header);
    uint64_t count = 0;
    for (;; count++) {
      if (data_.size() - offset < sizeof(fst_block))
        fail(offset, "cut short after block " + std::to_string(count) + ": there is no end mark");
      const fst_block head = read_head(offset);
      const Bytes payload = unpack(head, offset);
      const uint64_t end = offset + sizeof head + head.stored_bytes;
      if (head.type == FST_BLOCK_INDEX) {
        check_end(offset, end, count, payload.size());
        return;
      }
      take(head, offset, payload);
      offset = end;
    }
  }

  void take(const fst_block& head, uint64_t offset, const Bytes& payload) {
    switch (head.type) {
      case FST_BLOCK_EVENTS: return decode(head, offset, payload);
      case FST_BLOCK_META: file_.meta.assign(payload.begin(), payload.end()); return;
      case FST_BLOCK_SUMMARY:
        file_.summary.assign(payload.begin(), payload.end());
        file_.incomplete = !says("\"end\":\"") || says("\"end\":\"max-bytes\"") || says("\"end\":\"write-error\"");
        return;
      case FST_BLOCK_GAP: file_.gaps.push_back({head.thread, head.first_time, head.last_time}); return;
      case FST_BLOCK_SAMPLES: return take_points(head, offset, payload);
      case FST_BLOCK_STACKS: return take_stacks(head, offset, payload);
      default: fail(offset, "a block's type is " + std::to_string(head.type));
    }
  }

  bool says(const char* text) const { return file_.summary.find(text) != std::string::npos; }

  void take_points(const fst_block& head, uint64_t offset, const Bytes& payload) {
    VarintReader values(payload);
    uint64_t time = head.first_time;
    for (uint32_t i = 0; i < head.events && !values.failed; i++) {
      time += values.next();
      const uint64_t resident = values.next();
      file_.points.push_back({head.process, time, resident, values.next()});
    }
    if (values.failed || !values.at_end()) fail(offset, "a curve has another number of points than it says");
  }

  void take_stacks(const fst_block& head, uint64_t offset, const Bytes& payload) {
    VarintReader values(payload);
    while (!values.at_end()) {
      const uint64_t birth = values.next();
      for (uint64_t count = values.next(); count > 0 && !values.failed; count--)
        file_.frames.push_back({head.thread, birth, values.next()});
    }
    if (values.failed) fail(offset, "a stack is cut");
  }

  void read_header() {
    if (data_.size() < sizeof(fst_header)) fail(0, "expected the 64 bytes of a trace's header");
    const auto header = copy_at<fst_header>(data_, 0);
    if (std::memcmp(header.magic, FST_MAGIC, sizeof header.magic) != 0)
      fail(0, "no trace: expected the 64 bytes of a trace's header");
    if (crc32c(&header, offsetof(fst_header, crc)) != header.crc) fail(0, "the header's checksum is wrong");
    if (header.version != FST_VERSION)
      fail(8, "version " + std::to_string(header.version) + "; this reader knows " + std::to_string(FST_VERSION));
    if (header.header_bytes != sizeof header || header.step_ns == 0) fail(10, "the header's sizes are wrong");
    file_.step_ns = header.step_ns;
    file_.started_unix_ns = header.started_unix_ns;
  }

  fst_block read_head(uint64_t offset) const {
    const auto head = copy_at<fst_block>(data_, offset);
    if (head.magic != FST_BLOCK_MAGIC || crc32c(&head, offsetof(fst_block, crc)) != head.crc)
      fail(offset, "the checksum of a block's header is wrong");
    if (head.raw_bytes > FST_MOST_PAYLOAD_BYTES || head.codec > FST_ZSTD || head.last_time >= kTimesEnd ||
        head.first_time > head.last_time || head.first_birth >= kBirthsEnd)
      fail(offset, "a block's header is impossible");
    if (data_.size() - offset - sizeof head < head.stored_bytes)
      fail(offset, "cut short: the block has " + std::to_string(head.stored_bytes) + " bytes more than the file");
    return head;
  }

  Bytes unpack(const fst_block& head, uint64_t offset) const {
    const uint8_t* stored = data_.data() + offset + sizeof head;
    if (crc32c(stored, head.stored_bytes) != head.payload_crc)
      fail(offset + sizeof head, "the checksum of a block is wrong");
    if (head.codec == FST_RAW) {
      if (head.raw_bytes != head.stored_bytes) fail(offset, "a block's header is impossible");
      return Bytes(stored, stored + head.stored_bytes);
    }
    Bytes raw(head.raw_bytes);
    const size_t count = ZSTD_decompress(raw.data(), raw.size(), stored, head.stored_bytes);
    if (ZSTD_isError(count) || count != raw.size()) fail(offset + sizeof head, "a block does not unpack");
    return raw;
  }

  void check_end(uint64_t index_offset, uint64_t offset, uint64_t count, uint64_t index_bytes) const {
    if (data_.size() - offset < sizeof(fst_end)) fail(offset, "cut short: there is no end mark");
    const auto end = copy_at<fst_end>(data_, offset);
    if (std::memcmp(end.magic, FST_END_MAGIC, sizeof end.magic) != 0 || crc32c(&end, offsetof(fst_end, crc)) != end.crc)
      fail(offset, "the checksum of the end mark is wrong");
    if (end.index_offset != index_offset || end.blocks != count || index_bytes != count * sizeof(fst_index_entry))
      fail(offset, "the end mark names another index");
    if (data_.size() - offset != sizeof end) fail(offset + sizeof end, "bytes follow the end mark");
  }

  void decode(const fst_block& head, uint64_t offset, const Bytes& payload) {
    constexpr size_t kFront = FST_COLUMNS * sizeof(uint32_t);
    if (payload.size() < kFront) fail(offset, "a block's columns are missing");
    if (head.thread == kNoThread) fail(offset, "a block's header is impossible");
    std::array<std::span<const uint8_t>, FST_COLUMNS> columns;
    size_t at = kFront;
    for (size_t i = 0; i < FST_COLUMNS; i++) {
      const auto length = copy_at<uint32_t>(payload, i * sizeof(uint32_t));
      if (length > payload.size() - at) fail(offset, "a block's columns have other lengths than it says");
      columns[i] = std::span(payload).subspan(at, length);
      at += length;
    }
    if (at != payload.size() || columns[FST_KINDS].size() != head.events)
      fail(offset, "a block's columns have other lengths than it says");
    if ((total_ += head.events) > kMostEvents) fail(offset, "too many events to replay at once; cut the trace first");
    decode_events(head, offset, columns);
  }

  void decode_events(const fst_block& head, uint64_t offset,
                     const std::array<std::span<const uint8_t>, FST_COLUMNS>& columns) {
    ThreadEvents& into = thread(head, offset);
    VarintReader sizes(columns[FST_SIZES]), aligns(columns[FST_ALIGNS]), refs(columns[FST_REFS]),
        times(columns[FST_TIMES]), extras(columns[FST_EXTRAS]);
    uint64_t time = head.first_time;
    uint64_t births = head.first_birth;
    uint64_t foreign = 0;
    for (const uint8_t flagged : columns[FST_KINDS]) {
      const unsigned kind = flagged & FST_KIND_MASK;
      if (kind == 0 || kind >= FST_KINDS_END) fail(offset, "an event's kind is unknown");
      Event event{0, 0, kNone, kNone, kNoThread, static_cast<uint8_t>(kind), 0, (flagged & FST_FAILED) != 0};
      if (flagged & FST_TIMED) {
        const uint64_t steps = times.next();
        if (steps > head.last_time - time) fail(offset, "a block's times do not add up");
        time += steps;
      }
      event.time = time;
      if (fst_is_birth(kind)) event.size = sizes.next();
      if (fst_is_aligned(kind)) event.align_log2 = aligns.next_byte();
      if (fst_has_reference(kind) && (flagged & FST_FOREIGN)) {
        const uint64_t maker = refs.next();
        if (maker >= kNoThread) fail(offset, "a reference names a thread that cannot be");
        event.ref_thread = static_cast<uint32_t>(maker);
        foreign += static_cast<uint64_t>(unzigzag(refs.next()));
        event.ref_birth = foreign;
      } else if (fst_has_reference(kind)) {
        event.ref_thread = head.thread;
        event.ref_birth = births - 1 - refs.next();
      }
      if (fst_has_extra(kind)) event.size = extras.next();
      if (fst_is_birth(kind) && !event.failed) event.birth = births++;
      if (fst_has_reference(kind) && event.ref_birth >= kBirthsEnd)
        fail(offset, "a reference names an object before the first");
      if (event.align_log2 > kMostAlignLog2 || event.size >> 48) fail(offset, "a size or an alignment is impossible");
      into.events.push_back(event);
    }
    const bool failed = sizes.failed || aligns.failed || refs.failed || times.failed || extras.failed;
    const bool rest = !sizes.at_end() || !aligns.at_end() || !refs.at_end() || !times.at_end() || !extras.at_end();
    if (failed || rest || time != head.last_time) fail(offset, "a block's columns do not fit its events");
    next_birth_[head.thread] = births;
  }

  ThreadEvents& thread(const fst_block& head, uint64_t offset) {
    const auto [place, is_new] = places_.try_emplace(head.thread, file_.threads.size());
    if (is_new) {
      file_.threads.push_back({head.thread, head.process, {}});
    } else {
      const ThreadEvents& known = file_.threads[place->second];
      if (known.process != head.process || next_birth_[head.thread] != head.first_birth ||
          (!known.events.empty() && known.events.back().time > head.first_time))
        fail(offset, "a block does not follow the one before of its thread");
    }
    return file_.threads[place->second];
  }

  std::span<const uint8_t> data_;
  TraceFile file_;
  std::map<uint32_t, size_t> places_;
  std::map<uint32_t, uint64_t> next_birth_;
  uint64_t total_ = 0;
};

}  // namespace

TraceFile read_trace(const std::string& path, bool partial) {
  try {
    const Bytes bytes = read_whole(path);
    return Reader(bytes).read(partial);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

}  // namespace freestone::trace
