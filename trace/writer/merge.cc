#include "writer/merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <queue>

namespace freestone::trace {
namespace {

constexpr uint32_t kBlockFullEvents = 1 << 16;
constexpr uint64_t kOldSteps = 2000000;  // after two seconds a block is sent, full or not

uint64_t load_acquire(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
uint32_t load_acquire(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

}  // namespace

bool is_gone(uint32_t pid, uint32_t tid) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%u/task/%u/stat", pid, tid);
  const int fd = open(text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ESRCH;
  const ssize_t count = read(fd, text, sizeof text - 1);
  close(fd);
  if (count <= 0) return true;
  text[count] = 0;
  const char* state = std::strrchr(text, ')');
  return state && (state[2] == 'Z' || state[2] == 'X');
}

Merge::Merge(fsr_header* shared, Output& output)
    : shared_(shared), output_(output), processes_(kMostProcesses), known_(shared->blocks), start_(read_instant()) {}

uint64_t Merge::time_of(uint64_t tick) const {
  if (tick <= start_.tick) return earliest_;
  return std::max(earliest_, static_cast<uint64_t>(static_cast<double>(tick - start_.tick) * ns_per_tick_) / kStepNs);
}

uint64_t Merge::now() const { return (monotonic_ns() - start_.ns) / kStepNs; }

fsr_block* Merge::block(uint32_t number) const {
  return reinterpret_cast<fsr_block*>(reinterpret_cast<char*>(shared_) + shared_->blocks_offset +
                                      static_cast<uint64_t>(number) * kBlockBytes);
}

void Merge::find_blocks() {
  for (uint32_t number = 0; number < shared_->blocks; number++) {
    if (known_[number]) continue;
    const fsr_block* found = block(number);
    if (load_acquire(&found->state) == kBlockFree) continue;  // SHARED-2: otherwise its header is complete
    known_[number] = true;
    if (found->process >= kMostProcesses || found->thread >= kUnrecorded) {
      recycle(number);  // a program wrote over it
      continue;
    }
    auto& stream = streams_[found->thread];
    if (!stream) {
      stream = std::make_unique<Stream>(found->process, found->thread);
      counts_.threads++;
      processes_[found->process].streams++;
    }
    Process& process = processes_[found->process];
    if (!process.known) counts_.processes++;
    process.known = true;
    process.ended = false;
    process.pid = found->pid;
    stream->pid = found->pid;
    stream->tid = found->tid;
    stream->ended = false;
    stream->blocks.push_back(number);
    std::sort(stream->blocks.begin(), stream->blocks.end(),
              [this](uint32_t a, uint32_t b) { return block(a)->sequence < block(b)->sequence; });
  }
}

void Merge::recycle(uint32_t number) {
  fsr_block* done = block(number);
  std::memset(done->words, 0, sizeof done->words);                                      // SHARED-1
  __atomic_store_n(&done->state, static_cast<uint32_t>(kBlockFree), __ATOMIC_RELAXED);  // published by the bit below
  known_[number] = false;
  __atomic_fetch_or(&shared_->free_bits[number / 64], uint64_t{1} << (number % 64), __ATOMIC_RELEASE);
}

// The stream's next event, if there is one. Moves on to the next block at the end of one.
bool Merge::head(Stream& stream, Event& event) {
  for (;;) {
    if (stream.blocks.empty() || block(stream.blocks.front())->sequence != stream.next_sequence) return false;
    const fsr_block* from = block(stream.blocks.front());
    if (stream.position == 0) stream.base = std::max(stream.base, from->first_tick);
    const bool full =
        load_acquire(&from->state) == kBlockFull;  // read before the event: a full block gets no more events
    const uint32_t most =
        full ? std::min<uint32_t>(from->used / kEventBytes, kBlockEvents) : static_cast<uint32_t>(kBlockEvents);
    const uint64_t* words = &from->words[std::min<size_t>(stream.position, kBlockEvents - 1) * 2];
    const uint64_t first = load_acquire(&words[0]);  // SHARED-1: the second word is there
    if (stream.position >= most || (first == 0 && stream.ended && !full)) {
      if (!full && !stream.ended) return false;
      const uint32_t number = stream.blocks.front();
      stream.blocks.erase(stream.blocks.begin());
      recycle(number);
      stream.next_sequence++;
      stream.position = 0;
      continue;
    }
    if (first == 0) {
      if (!full) return false;
      stream.position++;  // a place that a signal handler left
      continue;
    }
    const uint64_t second = words[1];
    const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(second) - static_cast<uint32_t>(stream.base));
    const uint64_t tick = static_cast<uint64_t>(static_cast<int64_t>(stream.base) + ahead);
    event = {static_cast<unsigned>(first & 0xff), static_cast<unsigned>(first >> 8 & 0x3f), first >> 16, second >> 32,
             std::max(tick, stream.tick)};
    return true;
  }
}

size_t Merge::poll() {
  watch_output();
  const Instant instant = read_instant();
  horizon_ = instant.tick;
  ns_per_tick_ =
      static_cast<double>(instant.ns - start_.ns) / static_cast<double>(std::max<uint64_t>(1, horizon_ - start_.tick));
  find_blocks();
  struct Head {
    uint64_t tick;
    Stream* stream;
    bool operator<(const Head& other) const { return tick > other.tick; }  // the earliest on top
  };
  std::priority_queue<Head> heads;
  Event event{};
  for (auto& [number, stream] : streams_) {
    if (stream->blocks.empty()) continue;
    if (head(*stream, event)) heads.push({std::max(event.tick, stream->deferred_until), stream.get()});
  }
  size_t taken = 0;
  while (!heads.empty() && heads.top().tick <= horizon_) {
    Stream& stream = *heads.top().stream;
    heads.pop();
    const uint64_t next = heads.empty() ? horizon_ : std::min(horizon_, heads.top().tick);
    while (head(stream, event)) {
      const uint64_t tick = std::max(event.tick, stream.deferred_until);
      if (tick > next) {
        heads.push({tick, &stream});
        break;
      }
      if (!take(stream, event)) continue;
      stream.tick = stream.base = event.tick;
      stream.deferred_until = 0;
      stream.position++;
      taken++;
    }
  }
  for (auto& [number, stream] : streams_)
    if (!stream->blocks.empty() && !head(*stream, event))
      stream->base = std::max(stream->base, horizon_ - kPatienceTicks);
  return taken;
}

void Merge::touched(ObjectName object, uint64_t pages) {
  const auto found = streams_.find(object.thread);
  if (found == streams_.end() || found->second->ended || gap_until_s_) return;
  found->second->encoder.add({FST_TOUCH, pages, 0, object},
                             time_of(horizon_));  // not the current time: earlier calls may still come
}

void Merge::send(Stream& stream) {
  if (stream.encoder.events()) output_.put(stream.encoder.take());
  if (!stream.stack.empty() && !stream.frames_to_come) send_stacks(stream);
}

void Merge::send_stacks(Stream& stream) {
  output_.put({FST_BLOCK_STACKS, stream.process, stream.thread, 0, 0, 0, 0, std::move(stream.stack)});
  stream.stack = {};
}

void Merge::send_if_full(Stream& stream) {
  if (stream.encoder.events() < kBlockFullEvents && stream.encoder.bytes() < kBlockFullBytes) return;
  if (!gap_until_s_) send(stream);  // in a gap only deaths gather, at most one for each recorded object
}

// If the disk does not keep up, the file takes no births until the next whole second in which it does.
void Merge::watch_output() {
  const uint64_t second = monotonic_ns() / 1000000000u;
  if (gap_until_s_) {
    if (second < gap_until_s_) return;
    if (output_.is_full()) {
      gap_until_s_ = second + 1;
      return;
    }
    end_gap();
  } else if (output_.is_full()) {
    gap_from_ = time_of(horizon_);
    gap_until_s_ = second + 1;
  }
}

void Merge::end_gap() {
  earliest_ = time_of(horizon_);
  counts_.gap_seconds += (earliest_ - gap_from_) / (1000000000 / kStepNs) + 1;
  gap_until_s_ = 0;
  output_.put({FST_BLOCK_GAP, FST_ALL, FST_ALL, 0, gap_from_, earliest_, 0, {}});
}

void Merge::look_after() {
  std::vector<uint32_t> gone;
  for (auto& [number, stream] : streams_)
    if (!stream->ended && is_gone(stream->pid, stream->tid)) gone.push_back(number);
  if (!gone.empty()) {
    poll();  // takes the last events of dead threads, so their unfinished blocks are done
    for (const uint32_t number : gone) streams_[number]->ended = true;
    poll();
  }
  const uint64_t time = time_of(horizon_);
  for (auto at = streams_.begin(); at != streams_.end();) {
    Stream& stream = *at->second;
    const bool finished = stream.ended && stream.blocks.empty();
    const bool old = stream.encoder.events() && stream.encoder.first_time() + kOldSteps < time;
    if (finished) abandon_realloc(stream, time);
    if ((finished || old) && !gap_until_s_) send(stream);
    if (finished && !gap_until_s_) {
      processes_[stream.process].streams--;
      at = streams_.erase(at);
    } else {
      ++at;
    }
  }
  for (Process& process : processes_)
    if (process.known && !process.ended && is_gone(process.pid, process.pid)) process.ended = true;
}

void Merge::flush_all() {
  if (gap_until_s_) end_gap();
  for (auto& [number, stream] : streams_) {
    abandon_realloc(*stream, time_of(horizon_));
    send(*stream);
  }
}

}  // namespace freestone::trace
