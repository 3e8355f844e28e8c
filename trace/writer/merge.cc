#include "writer/merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <queue>

namespace freestone::trace {
namespace {

constexpr uint64_t kPatienceTicks = 256;
constexpr uint32_t kBlockFullEvents = 1 << 16;
constexpr size_t kBlockFullBytes = 512 << 10;
constexpr uint64_t kOldSteps = 2000000;  // a block is sent after two seconds, full or not
constexpr uint64_t kLargeBytes = 64 << 10;
constexpr uint64_t kStepNs = 1000;

constexpr unsigned kReadings = 16;
constexpr uint64_t kCloseNs = 2000;  // a reading of the two clocks that took so long is as good as any

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

uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

Instant read_instant() {
    Instant best;
    uint64_t least = ~uint64_t{0};
    for (unsigned i = 0; i < kReadings && least > kCloseNs; i++) {
        const uint64_t before = monotonic_ns();
        const uint64_t tick = fsr_ticks();
        const uint64_t took = monotonic_ns() - before;
        if (took < least) best = {tick, before + took / 2}, least = took;
    }
    return best;
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
        if (load_acquire(&found->state) == kBlockFree) continue;  // SHARED-2: else its header is complete
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
    std::memset(done->words, 0, sizeof done->words);  // SHARED-1
    __atomic_store_n(&done->state, static_cast<uint32_t>(kBlockFree), __ATOMIC_RELAXED);  // published by the bit below
    known_[number] = false;
    __atomic_fetch_or(&shared_->free_bits[number / 64], uint64_t{1} << (number % 64), __ATOMIC_RELEASE);
}

// The stream's next event, if one was stored. Goes on to the next block where one is used up.
bool Merge::head(Stream& stream, Event& event) {
    for (;;) {
        if (stream.blocks.empty() || block(stream.blocks.front())->sequence != stream.next_sequence) return false;
        const fsr_block* from = block(stream.blocks.front());
        if (stream.position == 0) stream.base = std::max(stream.base, from->first_tick);
        const bool full =
            load_acquire(&from->state) == kBlockFull;  // before the event: what a full block lacks never comes
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
        event = {static_cast<unsigned>(first & 0xff), static_cast<unsigned>(first >> 8 & 0x3f), first >> 16,
                 second >> 32, std::max(tick, stream.tick)};
        return true;
    }
}

size_t Merge::poll() {
    watch_output();
    const Instant instant = read_instant();
    horizon_ = instant.tick;
    ns_per_tick_ = static_cast<double>(instant.ns - start_.ns) /
                   static_cast<double>(std::max<uint64_t>(1, horizon_ - start_.tick));
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

// Whether an event that does not fit should be tried again a little later.
bool Merge::put_off(Stream& stream, const Event& event) {
    if (stream.deferred_until || processes_[stream.process].streams < 2) return false;
    stream.deferred_until = event.tick + kPatienceTicks;
    return true;
}

bool Merge::take(Stream& stream, const Event& event) {
    if (stream.frames_to_come) {
        take_frame(stream, event.address);
        return true;
    }
    if (event.kind == FST_REALLOC) return take_realloc_end(stream, event);
    if (fst_is_birth(event.kind)) return take_birth(stream, event);
    if (fst_is_death(event.kind)) return take_death(stream, event);
    if (event.kind == kRawReallocBegin) return take_realloc_begin(stream, event);
    take_other(stream, event);
    return true;
}

// Notes where the object `name` lives.
void Merge::settle(Stream& stream, uint64_t address, uint64_t size, ObjectName name) {
    Process& process = processes_[stream.process];
    process.objects.insert(address, name);
    if (size >= kLargeBytes && is_recorded(name)) process.large[address] = {name, size, ~uint64_t{0}};
}

// What lived at `address` must have been freed unseen.
void Merge::clear_address(Stream& stream, uint64_t address, uint64_t time) {
    Process& process = processes_[stream.process];
    const auto old = process.objects.remove(address);
    forget_large(process, address);
    if (!old) return;
    counts_.lost_frees++;
    if (is_recorded(*old)) stream.encoder.death(FST_LOST_FREE, *old, time);
}

bool Merge::take_birth(Stream& stream, const Event& event) {
    const uint64_t time = time_of(event.tick);
    const auto kind = static_cast<fst_kind>(event.kind);
    uint64_t size = event.size;
    if (size == kRawSizeBig && stream.big_size) size = stream.big_size;
    if (event.address == 0) {
        stream.encoder.failed_birth(kind, size, event.align_log2, time);
    } else {
        if (processes_[stream.process].objects.find(event.address)) {
            if (put_off(stream, event)) return false;
            clear_address(stream, event.address, time);
        }
        ObjectName name{kUnrecorded, 0};
        if (!gap_until_s_) {
            name = {stream.thread, stream.encoder.birth(kind, size, event.align_log2, time)};
            counts_.births++;
        }
        settle(stream, event.address, size, name);
        stream.last_birth = name;
    }
    stream.big_size = 0;
    counts_.events++;
    send_if_full(stream);
    return true;
}

bool Merge::take_death(Stream& stream, const Event& event) {
    Process& process = processes_[stream.process];
    const auto name = process.objects.find(event.address);
    if (!name) {
        if (put_off(stream, event)) return false;
        counts_.unknown_frees++;
        return true;
    }
    process.objects.remove(event.address);
    forget_large(process, event.address);
    if (!is_recorded(*name)) {
        counts_.unknown_frees++;
        return true;
    }
    stream.encoder.death(static_cast<fst_kind>(event.kind), *name, time_of(event.tick));
    counts_.events++;
    counts_.deaths++;
    send_if_full(stream);
    return true;
}

// The end of a realloc was lost: its object is gone, and what it became is not known.
void Merge::abandon_realloc(Stream& stream, uint64_t time) {
    if (stream.in_realloc && stream.realloc_object && is_recorded(*stream.realloc_object)) {
        stream.encoder.death(FST_LOST_FREE, *stream.realloc_object, time);
        counts_.lost_frees++;
    }
    stream.in_realloc = false;
    stream.realloc_object.reset();
}

bool Merge::take_realloc_begin(Stream& stream, const Event& event) {
    Process& process = processes_[stream.process];
    if (!process.objects.find(event.address) && put_off(stream, event)) return false;
    abandon_realloc(stream, time_of(event.tick));
    stream.in_realloc = true;
    stream.realloc_address = event.address;
    stream.realloc_object = process.objects.remove(event.address);
    forget_large(process, event.address);
    return true;
}

bool Merge::take_realloc_end(Stream& stream, const Event& event) {
    const uint64_t time = time_of(event.tick);
    const uint64_t size = event.size == kRawSizeBig && stream.big_size ? stream.big_size : event.size;
    const bool known = stream.in_realloc && stream.realloc_object && is_recorded(*stream.realloc_object);
    const ObjectName old = known ? *stream.realloc_object : ObjectName{kUnrecorded, 0};
    if (event.address == 0 && size == 0) {
        if (known) stream.encoder.death(FST_REALLOC_ZERO, old, time), counts_.deaths++;
    } else if (event.address == 0) {
        if (known) stream.encoder.failed_realloc(old, size, time);
        if (stream.realloc_object && !processes_[stream.process].objects.find(stream.realloc_address))
            settle(stream, stream.realloc_address, 0, *stream.realloc_object);
    } else {
        if (processes_[stream.process].objects.find(event.address)) {
            if (put_off(stream, event)) return false;
            clear_address(stream, event.address, time);
        }
        ObjectName name{kUnrecorded, 0};
        if (gap_until_s_) {
            if (known) stream.encoder.death(FST_LOST_FREE, old, time);
        } else {
          const uint64_t birth =
              known ? stream.encoder.realloc(old, size, time) : stream.encoder.birth(FST_REALLOC_NULL, size, 0, time);
          name = {stream.thread, birth};
          counts_.births++;
          if (known) counts_.deaths++;
        }
        settle(stream, event.address, size, name);
        stream.last_birth = name;
    }
    stream.in_realloc = false;
    stream.realloc_object.reset();
    stream.big_size = 0;
    counts_.events++;
    send_if_full(stream);
    return true;
}

void Merge::take_other(Stream& stream, const Event& event) {
    const uint64_t time = time_of(event.tick);
    switch (event.kind) {
        case kRawBigSize: stream.big_size = event.address; break;
        case FST_THREAD_START:
        case FST_THREAD_END: stream.encoder.other(static_cast<fst_kind>(event.kind), time); break;
        case FST_TOUCH: {
            const auto name = processes_[stream.process].objects.find(event.address);
            if (name && is_recorded(*name)) stream.encoder.touch(*name, event.size, time);
            break;
        }
        case FST_FORK: fork(stream, static_cast<uint32_t>(event.address), time); break;
        case kRawGap: {
            abandon_realloc(stream, time);
            Block gap;
            gap.type = FST_BLOCK_GAP;
            gap.process = stream.process;
            gap.thread = stream.thread;
            gap.last_time = time;
            gap.first_time = time - std::min(time, event.size * (1000000000 / kStepNs));
            output_.put(std::move(gap));
            counts_.gap_seconds += event.size;
            break;
        }
        case kRawStack:
            if (!is_recorded(stream.last_birth) || event.size > kBlockEvents) break;
            put_varint(stream.stack, stream.last_birth.birth);
            put_varint(stream.stack, event.size);
            stream.frames_to_come = event.size;
            break;
        default: break;
    }
}

void Merge::take_frame(Stream& stream, uint64_t address) {
    put_varint(stream.stack, address);
    stream.frames_to_come--;
    if (stream.frames_to_come || stream.stack.size() < kBlockFullBytes) return;
    Block block{FST_BLOCK_STACKS, stream.process, stream.thread, 0, 0, 0, 0, {}};
    block.payload.swap(stream.stack);
    output_.put(std::move(block));
}

// The child begins with everything that its parent holds.
void Merge::fork(Stream& stream, uint32_t child, uint64_t time) {
    if (child >= kMostProcesses || child == stream.process) return;
    stream.encoder.fork(child, time);
    Process& made = processes_[child];
    const Process& parent = processes_[stream.process];
    made.parent = stream.process;
    made.objects = parent.objects;
    made.large = parent.large;
}

void Merge::touched(ObjectName object, uint64_t pages) {
    const auto found = streams_.find(object.thread);
    if (found == streams_.end() || found->second->ended || gap_until_s_) return;
    found->second->encoder.touch(object, pages, time_of(horizon_));  // not now: earlier calls are still to come
}

void Merge::send(Stream& stream) {
    if (stream.encoder.events()) output_.put(stream.encoder.take());
    if (!stream.stack.empty() && !stream.frames_to_come) {
        Block block{FST_BLOCK_STACKS, stream.process, stream.thread, 0, 0, 0, 0, {}};
        block.payload.swap(stream.stack);
        output_.put(std::move(block));
    }
}

void Merge::send_if_full(Stream& stream) {
    if (stream.encoder.events() < kBlockFullEvents && stream.encoder.bytes() < kBlockFullBytes) return;
    if (!gap_until_s_) send(stream);  // in a gap only deaths gather, one at most for each recorded object
}

// When the disk does not keep up, the file takes no births until the next whole second in which it does.
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
    Block gap;
    gap.type = FST_BLOCK_GAP;
    gap.process = gap.thread = FST_ALL;
    gap.first_time = gap_from_;
    gap.last_time = earliest_ = time_of(horizon_);
    counts_.gap_seconds += (gap.last_time - gap.first_time) / (1000000000 / kStepNs) + 1;
    gap_until_s_ = 0;
    output_.put(std::move(gap));
}

void Merge::look_after() {
    std::vector<uint32_t> gone;
    for (auto& [number, stream] : streams_)
        if (!stream->ended && is_gone(stream->pid, stream->tid)) gone.push_back(number);
    if (!gone.empty()) {
        poll();  // what they stored last; then their unfinished blocks are done
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
