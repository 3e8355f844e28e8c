// The writers of profiles and of traces: whatever was sampled and recorded, a profile is well formed, and a trace is
// read back as it was written; a damaged trace is refused with a text, never with a fault.
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include "format/encoder.h"
#include "format/file_reader.h"
#include "format/file_writer.h"
#include "fuzz/input.h"
#include "platform/os.h"
#include "profile/profile_report.h"
#include "stacks/unwind.h"

namespace {

// A file of its own for one thing that is written.
class ScratchFile {
 public:
  ScratchFile() : path_("/tmp/freestone-fuzz-" + std::to_string(getpid())) {}
  ~ScratchFile() { unlink(path_.c_str()); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::vector<uint8_t>& bytes) {
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    FUZZ_EXPECT(file.flush().good());
  }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    FUZZ_EXPECT(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// One protobuf message: fields of known wire types that fill it exactly, and messages inside where the schema of
// profiles has them.
void expect_message(const std::string& bytes, int depth) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      FUZZ_EXPECT(at < bytes.size() && shift < 70);
      const auto byte = static_cast<uint8_t>(bytes[at++]);
      if (shift < 64) value |= uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.size()) {
    const uint64_t key = varint();
    FUZZ_EXPECT(key >> 3 >= 1 && key >> 3 <= 14);
    if ((key & 7) == 0) {
      varint();
      continue;
    }
    FUZZ_EXPECT((key & 7) == 2);
    const uint64_t length = varint();
    FUZZ_EXPECT(length <= bytes.size() - at);
    // Of a profile the fields 1 to 5 are messages; 6 is the table of texts.
    if (depth == 0 && key >> 3 <= 5) expect_message(bytes.substr(at, length), 1);
    at += length;
  }
}

// Lines "frame;frame;.. number".
void expect_collapsed(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    FUZZ_EXPECT(end != std::string::npos);
    const size_t space = text.rfind(' ', end);
    FUZZ_EXPECT(space != std::string::npos && space > at && space + 1 < end);
    FUZZ_EXPECT(text.find_first_not_of("0123456789", space + 1) == end);
    at = end + 1;
  }
}

// What `write` writes, through a buffer that is often full.
template <typename Write>
std::string written(Write write) {
  ScratchFile scratch;
  const freestone::os::File file = freestone::os::File::create_private(scratch.path().c_str());
  char buffer[512];
  freestone::Output out(file, buffer, sizeof buffer);
  write(out);
  FUZZ_EXPECT(out.flush());
  return scratch.content();
}

void write_profiles(fuzz::Input input) {
  using namespace freestone;
  ProfileStore& store = profile_store;
  const unsigned steps = 1 + input.byte() % 64;
  std::vector<LiveSample*> live;
  u64 now = 1000;
  store.lock.lock();
  for (unsigned step = 0; step < steps && !input.empty(); ++step) {
    const uint8_t what = input.byte();
    now += input.number(2);
    if (what < 96 && !live.empty()) {
      const size_t victim = what % live.size();
      const auto* block = reinterpret_cast<const void*>(live[victim]->block);
      FUZZ_EXPECT(store.untrack_locked(block) == live[victim]);
      store.remove_locked(*live[victim], now);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    } else if (what == 255) {
      store.restart_locked(now);
    } else if (what == 254) {
      store.begin_locked(now);
      live.clear();
    } else {
      usize frames[kFramesMax];
      const unsigned depth = what % 12;
      // Addresses in code, near it, and anywhere.
      for (unsigned k = 0; k < depth; ++k) {
        const uint8_t kind = input.byte();
        const usize near = reinterpret_cast<usize>(kind % 2 == 0 ? reinterpret_cast<void*>(write_pprof)
                                                                 : reinterpret_cast<void*>(std::fopen));
        frames[k] = kind < 200 ? near + kind : (input.number(8) >> 1) | 1;  // no frame of Python, and no null
      }
      void* const block = reinterpret_cast<void*>(0x1000 + (u64{step} << 12));
      LiveSample* sample = store.add_locked(frames, depth, block, input.number(1 + what % 6), 1 + input.byte(), now);
      if (sample == nullptr) continue;
      store.track_locked(*sample);
      live.push_back(sample);
    }
  }
  const usize start = store.scratch_start_locked();
  ProfileReport report;
  if (report.gather((steps & 1) != 0)) {
    report.sample_bytes = 1 + input.number(3);
    report.find_symbols();
    for (const auto view : {ProfileView::live, ProfileView::cumulative, ProfileView::peak, ProfileView::lifetime}) {
      expect_message(written([&](Output& out) { write_pprof(report, view, out); }), 0);
      expect_collapsed(written([&](Output& out) { write_collapsed(report, view, out); }));
    }
    FUZZ_EXPECT(written([&](Output& out) { write_heap_v2(report, out); }).rfind("heap_v2/", 0) == 0);
  }
  store.release_scratch_locked(start);
  store.lock.unlock();
  // The next input starts with an empty store, in the same place.
  if (store.base() != 0) munmap(reinterpret_cast<void*>(store.base()), 64 * kGiB);
  store.~ProfileStore();
  new (&store) ProfileStore;
}

using namespace freestone::trace;

bool read_back(const std::vector<uint8_t>& bytes, TraceFile& file) {
  ScratchFile trace;
  trace.write(bytes);
  try {
    file = read_trace(trace.path());
    return true;
  } catch (const Error& error) {
    FUZZ_EXPECT(std::string(error.what()).size() > trace.path().size());
    return false;
  }
}

void append(std::vector<uint8_t>& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); }

// Events as the input says, written and read.
void write_trace(fuzz::Input input) {
  Encoder encoders[2] = {Encoder(0, 0), Encoder(0, 1)};
  Packer packer(1);
  Index index;
  std::vector<uint8_t> bytes = file_header(1 + input.byte(), input.number(8));
  uint64_t births[2] = {};
  uint64_t time = 0;
  uint64_t events = 0;
  const uint8_t damage = input.byte();
  const uint64_t damaged_at = input.number(2);
  const uint8_t damaged_bits = input.byte();
  const auto store_block = [&](Encoder& encoder) {
    if (encoder.events() == 0) return;
    Block block = encoder.take();
    // A payload that no writer makes, under a right checksum.
    if (damage == 1) block.payload[damaged_at % block.payload.size()] ^= damaged_bits;
    if (damage == 2) block.payload.resize(damaged_at % (block.payload.size() + 1));
    index.add(block, bytes.size());
    append(bytes, packer.pack(block));
  };
  while (!input.empty()) {
    const uint8_t what = input.byte();
    const unsigned thread = what & 1;
    Encoder& encoder = encoders[thread];
    time += what >> 5;
    const auto name = [&] {
      const auto of = static_cast<uint32_t>(
          births[thread ^ 1] > 0 && (births[thread] == 0 || (what & 2) != 0) ? thread ^ 1 : thread);
      return ObjectName{of, input.byte() % births[of]};
    };
    const auto kind = static_cast<fst_kind>(1 + (what >> 2) % (FST_KINDS_END - 1));
    const uint64_t size = fst_is_birth(kind) ? input.number(1 + what % 6) : 0;
    const unsigned align = fst_is_aligned(kind) ? input.byte() % 48 : 0;
    if (fst_has_reference(kind) && births[0] + births[1] == 0) continue;
    ++events;
    Call call{kind, size, align};
    if (fst_has_reference(kind)) call.object = name();
    if (kind == FST_TOUCH) call.size = input.number(2);
    if (kind == FST_FORK) call.size = input.byte();
    births[thread] += fst_is_birth(kind) ? 1 : 0;
    encoder.add(call, time);
    if (encoder.events() == 16) store_block(encoder);
  }
  for (Encoder& encoder : encoders) store_block(encoder);
  append(bytes, index.finish(packer, bytes.size()));
  if (damage == 3) bytes[damaged_at % bytes.size()] ^= damaged_bits;
  if (damage == 4) bytes.resize(damaged_at % (bytes.size() + 1));
  TraceFile file;
  const bool read = read_back(bytes, file);
  if (damage == 3) FUZZ_EXPECT(read == (damaged_bits == 0));  // every byte is under a checksum
  if (damage != 0 && damage < 5) return;
  FUZZ_EXPECT(read);
  uint64_t found = 0;
  for (const ThreadEvents& thread : file.threads) found += thread.events.size();
  FUZZ_EXPECT(found == events);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  switch (data[0] % 3) {
    case 0: write_profiles({data + 1, size - 1}); break;
    case 1: write_trace({data + 1, size - 1}); break;
    default: {
      TraceFile file;
      read_back({data + 1, data + size}, file);
    }
  }
  return 0;
}
