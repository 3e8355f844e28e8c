#include "replayer/streams.h"

#include <algorithm>
#include <map>
#include <span>

namespace freestone::trace {
namespace {

uint64_t first_time(const Stream& stream) { return stream.from->events.empty() ? 0 : stream.from->events.front().time; }

}  // namespace

Streams::Streams(const TraceFile& trace, const PlanOptions& options) : trace_(trace), options_(options) {
  choose_process();
  gather();
  deal();
  look_ahead();
}

void Streams::choose_process() {
  std::map<uint32_t, uint64_t> calls;
  for (const ThreadEvents& thread : trace_.threads) calls[thread.process] += thread.events.size();
  if (calls.empty()) throw Error("the trace has no events");
  process_ = options_.process;
  if (process_ == kAll)
    process_ = std::max_element(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
                 return a.second < b.second;
               })->first;
  else if (!calls.contains(process_))
    throw Error("the trace has no process " + std::to_string(process_));
}

const Streams::Fork* Streams::find_fork(uint32_t child) {
  if (forks_.empty() && !searched_)
    for (const ThreadEvents& thread : trace_.threads)
      for (size_t i = 0; i < thread.events.size(); i++)
        if (thread.events[i].kind == FST_FORK && thread.events[i].size != thread.process)
          forks_.try_emplace(static_cast<uint32_t>(thread.events[i].size),
                             Fork{thread.process, thread.thread, thread.events[i].time, i});
  searched_ = true;
  const auto found = forks_.find(child);
  return found == forks_.end() ? nullptr : &found->second;
}

// Collects the process's own threads, and what its ancestors did before the forks that led to it.
void Streams::gather() {
  std::vector<uint32_t> seen;
  uint64_t until = kNone;
  const Fork* fork = nullptr;
  for (uint32_t process = process_;;) {
    for (const ThreadEvents& thread : trace_.threads) {
      if (thread.process != process) continue;
      size_t end = thread.events.size();
      if (fork && fork->thread == thread.thread)
        end = fork->at;
      else if (fork)
        end = static_cast<size_t>(std::partition_point(thread.events.begin(), thread.events.end(),
                                                       [&](const Event& e) { return e.time < until; }) -
                                  thread.events.begin());
      places_[thread.thread] = streams_.size();
      streams_.push_back({&thread, end, 0, 0, 0, {}});
    }
    seen.push_back(process);
    fork = find_fork(process);
    if (!fork || std::find(seen.begin(), seen.end(), fork->parent) != seen.end()) return;
    until = std::min(until, fork->time);
    process = fork->parent;
  }
}

// Assigns each recorded thread to a thread of the replay: one each, or fewer.
void Streams::deal() {
  std::vector<size_t> order(streams_.size());
  for (size_t i = 0; i < order.size(); i++) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [this](size_t a, size_t b) { return first_time(streams_[a]) < first_time(streams_[b]); });
  std::unordered_map<uint32_t, uint32_t> continued;  // a child's first thread continues the one that forked
  for (const size_t i : order) {
    Stream& stream = streams_[i];
    const uint32_t process = stream.from->process;
    const Fork* fork = find_fork(process);
    const auto parent = fork ? places_.find(fork->thread) : places_.end();
    if (parent != places_.end() && !continued.contains(process)) {
      stream.target = continued[process] = streams_[parent->second].target;
      continue;
    }
    const uint32_t most = options_.threads ? options_.threads : kAll;
    if (targets_.size() < most) {
      stream.target = static_cast<uint32_t>(targets_.size());
      targets_.push_back(stream.from->thread);
    } else {
      stream.target = next_target_++ % most;
    }
  }
}

Object* Streams::find(uint32_t thread, uint64_t birth) {
  const auto place = places_.find(thread);
  if (place == places_.end()) return nullptr;
  Stream& stream = streams_[place->second];
  return birth - stream.first_birth < stream.objects.size() ? &stream.objects[birth - stream.first_birth] : nullptr;
}

// Finds who ends each object and how much of it was used, before the first operation is laid out.
void Streams::look_ahead() {
  for (Stream& stream : streams_) {
    uint64_t births = 0;
    for (const Event& event : std::span(stream.from->events).first(stream.end)) {
      if (event.birth == kNone) continue;
      if (births++ == 0) stream.first_birth = event.birth;
    }
    stream.objects.resize(births);
    calls_ += stream.end;
  }
  for (const Stream& stream : streams_)
    for (const Event& event : std::span(stream.from->events).first(stream.end)) {
      if (event.birth == kNone) continue;
      Object* made = find(stream.from->thread, event.birth);
      made->size = event.size;
      made->maker = stream.target;
      made->align_log2 = event.align_log2;
    }
  for (const Stream& stream : streams_)
    for (const Event& event : std::span(stream.from->events).first(stream.end)) {
      Object* object = event.ref_thread == kNoThread ? nullptr : find(event.ref_thread, event.ref_birth);
      if (!object) continue;
      if (event.kind == FST_TOUCH) {
        object->last_pages = static_cast<uint32_t>(std::min<uint64_t>(event.size, kAll - 1));
        if (object->first_pages == kAll) object->first_pages = object->last_pages;
      } else if (object->maker != stream.target) {
        object->foreign = true;
      }
    }
}

}  // namespace freestone::trace
