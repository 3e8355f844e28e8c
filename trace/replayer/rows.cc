#include "replayer/rows.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "format/encoder.h"
#include "format/file_writer.h"

namespace freestone::trace {
namespace {

constexpr int kZstdLevel = 15;  // tighter than the recorder has time for
constexpr uint32_t kBlockEvents = 1 << 16;

template <class T>
void print(const std::vector<T>& array, FILE* to) {
  std::fwrite(array.data(), sizeof(T), array.size(), to);
}
void print(const std::string& text, FILE* to) { std::fwrite(text.data(), 1, text.size(), to); }

void drop_events_of_lost_objects(TraceFile& trace) {
  const Births births(trace);
  for (ThreadEvents& thread : trace.threads)
    std::erase_if(thread.events, [&](const Event& event) {
      if (event.ref_thread == kNoThread || births.row_of_named(event) != kNone) return false;
      if (trace.incomplete) return event.birth == kNone;
      throw Error("thread " + std::to_string(thread.thread) + " ends or touches an object that was never made");
    });
}

// A forked child ends its own copy of what it inherited, so an object may end once in each process.
void check_ends(const std::vector<Row>& rows) {
  std::vector<uint64_t> ends;
  for (const Row& row : rows)
    if (fst_is_death(row.kind) && !row.failed && row.object != kNone)
      ends.push_back(uint64_t{row.process} << 32 | row.object);
  std::sort(ends.begin(), ends.end());
  const auto twice = std::adjacent_find(ends.begin(), ends.end());
  if (twice == ends.end()) return;
  throw Error("an object of thread " + std::to_string(rows[static_cast<uint32_t>(*twice)].thread) + " ends twice");
}

// Takes the arrays of a file of rows off its front.
class Taker {
 public:
  explicit Taker(std::span<const uint8_t> bytes) : rest_(bytes) {}

  template <class T>
  std::vector<T> take(uint64_t count) {
    if (count > rest_.size() / sizeof(T)) throw Error("no file of rows: it is cut short");
    std::vector<T> array(count);
    if (count) std::memcpy(array.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return array;
  }

 private:
  std::span<const uint8_t> rest_;
};

// The threads' events as blocks, in the order of their times.
class Threads {
 public:
  explicit Threads(const std::vector<Row>& rows) : rows_(rows), names_(rows.size()) {
    std::unordered_map<uint32_t, uint64_t> births;
    for (size_t i = 0; i < rows.size(); i++)
      names_[i] = {rows[i].thread, is_made(rows[i]) ? births[rows[i].thread]++ : kNone};
  }

  ObjectName name(uint64_t row) const {
    if (row >= names_.size() || names_[row].birth == kNone) throw Error("no file of rows: a row is no birth");
    return names_[row];
  }

  std::vector<Block> blocks() {
    for (const Row& row : rows_) {
      Encoder& encoder = encoders_.try_emplace(row.thread, row.process, row.thread).first->second;
      add(encoder, row);
      if (encoder.events() == kBlockEvents) blocks_.push_back(encoder.take());
    }
    for (auto& [number, encoder] : encoders_)
      if (encoder.events()) blocks_.push_back(encoder.take());
    std::stable_sort(blocks_.begin(), blocks_.end(),
                     [](const Block& a, const Block& b) { return a.first_time < b.first_time; });
    return std::move(blocks_);
  }

 private:
  static bool is_made(const Row& row) { return fst_is_birth(row.kind) && !row.failed; }

  void add(Encoder& to, const Row& row) const {
    if (row.kind == 0 || row.kind >= FST_KINDS_END) throw Error("no file of rows: an event's kind is unknown");
    Call call{row.kind, row.size, row.align_log2, {}, row.failed != 0};
    if (call.kind == FST_REALLOC && !call.failed && row.object == kNone) call.kind = FST_REALLOC_NULL;
    if (fst_has_reference(call.kind)) {
      if (row.object == kNone) return;
      call.object = name(row.object);
    }
    to.add(call, row.time);
  }

  const std::vector<Row>& rows_;
  std::vector<ObjectName> names_;  // of the object that each row makes
  std::map<uint32_t, Encoder> encoders_;
  std::vector<Block> blocks_;
};

Block text(fst_block_type type, const std::vector<uint8_t>& bytes) { return {type, 0, 0, 0, 0, 0, 0, bytes}; }

// One block of samples for each process.
std::map<uint64_t, Block> curves(const std::vector<Point>& points) {
  std::map<uint64_t, Block> made;
  for (const Point& point : points) {
    Block& block = made[point.process];
    if (block.events++ == 0) block.first_time = block.last_time = point.time;
    block.type = FST_BLOCK_SAMPLES;
    block.process = static_cast<uint32_t>(point.process);
    put_varint(block.payload, point.time - block.last_time);
    put_varint(block.payload, point.resident_kib);
    put_varint(block.payload, point.anonymous_kib);
    block.last_time = point.time;
  }
  return made;
}

// One block of stacks for each thread.
std::map<uint32_t, Block> stacks(const Threads& threads, const std::vector<Row>& rows,
                                 const std::vector<RowFrame>& frames) {
  std::map<uint32_t, Block> made;
  for (auto begin = frames.begin(); begin != frames.end();) {
    const auto end = std::find_if(begin, frames.end(), [&](const RowFrame& f) { return f.object != begin->object; });
    const ObjectName name = threads.name(begin->object);
    Block& block = made[name.thread];
    block.type = FST_BLOCK_STACKS;
    block.process = rows[begin->object].process;
    block.thread = name.thread;
    put_varint(block.payload, name.birth);
    put_varint(block.payload, static_cast<uint64_t>(end - begin));
    for (; begin != end; ++begin) put_varint(block.payload, begin->address);
  }
  return made;
}

}  // namespace

Births::Births(const TraceFile& trace) {
  uint64_t row = 0;
  for (const ThreadEvents& thread : trace.threads)
    for (const Event& event : thread.events) {
      if (event.birth != kNone) {
        Made& made = made_[thread.thread];
        if (made.rows.empty()) made.first = event.birth;
        made.rows.push_back(row);
      }
      row++;
    }
}

uint64_t Births::row_of(uint32_t thread, uint64_t birth) const {
  const auto found = made_.find(thread);
  if (found == made_.end() || birth - found->second.first >= found->second.rows.size()) return kNone;
  return found->second.rows[birth - found->second.first];
}

void print_rows(TraceFile trace, FILE* to) {
  std::sort(trace.threads.begin(), trace.threads.end(),
            [](const ThreadEvents& a, const ThreadEvents& b) { return a.thread < b.thread; });
  drop_events_of_lost_objects(trace);
  const Births births(trace);
  std::vector<Row> rows;
  for (const ThreadEvents& thread : trace.threads)
    for (const Event& event : thread.events)
      rows.push_back({event.time,
                      event.size,
                      births.row_of_named(event),
                      thread.thread,
                      thread.process,
                      event.kind,
                      event.align_log2,
                      event.failed,
                      {}});
  check_ends(rows);
  std::vector<RowFrame> frames;
  for (const Frame& frame : trace.frames) {
    const uint64_t row = births.row_of(static_cast<uint32_t>(frame.thread), frame.birth);
    if (row != kNone) frames.push_back({row, frame.address});
  }
  std::stable_sort(frames.begin(), frames.end(),
                   [](const RowFrame& a, const RowFrame& b) { return a.object < b.object; });
  const RowsHeader header{trace.step_ns,       trace.started_unix_ns, rows.size(),
                          trace.points.size(), trace.gaps.size(),     frames.size(),
                          trace.meta.size(),   trace.summary.size(),  trace.cut.size()};
  std::fwrite(&header, sizeof header, 1, to);
  print(rows, to);
  print(trace.points, to);
  print(trace.gaps, to);
  print(frames, to);
  print(trace.meta, to);
  print(trace.summary, to);
  print(trace.cut, to);
}

void print_trace(std::span<const uint8_t> bytes, FILE* to) {
  Taker from(bytes);
  const RowsHeader header = from.take<RowsHeader>(1).front();
  const auto rows = from.take<Row>(header.rows);
  const auto points = from.take<Point>(header.points);
  const auto gaps = from.take<Gap>(header.gaps);
  const auto frames = from.take<RowFrame>(header.frames);
  std::vector<Block> blocks{text(FST_BLOCK_META, from.take<uint8_t>(header.meta_bytes))};
  Threads threads(rows);
  for (Block& block : threads.blocks()) blocks.push_back(std::move(block));
  for (auto& [process, block] : curves(points)) blocks.push_back(std::move(block));
  for (const Gap& gap : gaps)
    blocks.push_back({FST_BLOCK_GAP, 0, static_cast<uint32_t>(gap.thread), 0, gap.first_time, gap.last_time, 0, {}});
  for (auto& [thread, block] : stacks(threads, rows, frames)) blocks.push_back(std::move(block));
  blocks.push_back(text(FST_BLOCK_SUMMARY, from.take<uint8_t>(header.summary_bytes)));

  Packer packer(kZstdLevel);
  Index index;
  Bytes out = file_header(header.step_ns, header.started_unix_ns);
  for (const Block& block : blocks) {
    const Bytes packed = packer.pack(block);
    index.add(block, out.size());
    out.insert(out.end(), packed.begin(), packed.end());
  }
  print(out, to);
  print(index.finish(packer, out.size()), to);
}

}  // namespace freestone::trace
