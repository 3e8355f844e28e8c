// What each kind of raw event becomes: see merge.h.

#include <algorithm>

#include "writer/merge.h"

namespace freestone::trace {
namespace {

constexpr uint64_t kLargeBytes = 64 << 10;

}  // namespace

// Whether to try an event that does not fit again a little later.
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

// An object that still lives where another is born must have been freed unseen. False: the event is put off.
bool Merge::clear_address(Stream& stream, const Event& event, uint64_t time) {
  Process& process = processes_[stream.process];
  const auto old = process.objects.find(event.address);
  if (!old) return true;
  if (put_off(stream, event)) return false;
  process.objects.remove(event.address);
  forget_large(process, event.address);
  counts_.lost_frees++;
  if (is_recorded(*old)) stream.encoder.add({.kind = FST_LOST_FREE, .object = *old}, time);
  return true;
}

bool Merge::take_birth(Stream& stream, const Event& event) {
  const uint64_t time = time_of(event.tick);
  const uint64_t size = event.size == kRawSizeBig && stream.big_size ? stream.big_size : event.size;
  const Call call{event.kind, size, event.align_log2, {}, event.address == 0};
  if (event.address == 0) {
    stream.encoder.add(call, time);
  } else {
    if (!clear_address(stream, event, time)) return false;
    ObjectName name{kUnrecorded, 0};
    if (!gap_until_s_) {
      name = {stream.thread, stream.encoder.add(call, time)};
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
  stream.encoder.add({.kind = event.kind, .object = *name}, time_of(event.tick));
  counts_.events++;
  counts_.deaths++;
  send_if_full(stream);
  return true;
}

// The end of a realloc was lost: its object is gone, and nobody knows what it became.
void Merge::abandon_realloc(Stream& stream, uint64_t time) {
  if (stream.in_realloc && stream.realloc_object && is_recorded(*stream.realloc_object)) {
    stream.encoder.add({.kind = FST_LOST_FREE, .object = *stream.realloc_object}, time);
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
    if (known) stream.encoder.add({.kind = FST_REALLOC_ZERO, .object = old}, time), counts_.deaths++;
  } else if (event.address == 0) {
    if (known) stream.encoder.add({FST_REALLOC, size, 0, old, true}, time);
    if (stream.realloc_object && !processes_[stream.process].objects.find(stream.realloc_address))
      settle(stream, stream.realloc_address, 0, *stream.realloc_object);
  } else {
    if (!clear_address(stream, event, time)) return false;
    ObjectName name{kUnrecorded, 0};
    if (gap_until_s_) {
      if (known) stream.encoder.add({.kind = FST_LOST_FREE, .object = old}, time);
    } else {
      Call call{known ? FST_REALLOC : FST_REALLOC_NULL, size};
      if (known) call.object = old;
      name = {stream.thread, stream.encoder.add(call, time)};
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
    case FST_THREAD_END: stream.encoder.add({event.kind}, time); break;
    case FST_TOUCH: {
      const auto name = processes_[stream.process].objects.find(event.address);
      if (name && is_recorded(*name)) stream.encoder.add({FST_TOUCH, event.size, 0, *name}, time);
      break;
    }
    case FST_FORK: fork(stream, static_cast<uint32_t>(event.address), time); break;
    case kRawGap: {
      abandon_realloc(stream, time);
      const uint64_t begin = time - std::min(time, event.size * (1000000000 / kStepNs));
      output_.put({FST_BLOCK_GAP, stream.process, stream.thread, 0, begin, time, 0, {}});
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
  send_stacks(stream);
}

// The child begins with everything that its parent holds.
void Merge::fork(Stream& stream, uint32_t child, uint64_t time) {
  if (child >= kMostProcesses || child == stream.process) return;
  stream.encoder.add({FST_FORK, child}, time);
  Process& made = processes_[child];
  const Process& parent = processes_[stream.process];
  made.objects = parent.objects;
  made.large = parent.large;
}

}  // namespace freestone::trace
