#include "replayer/plan.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <queue>
#include <unordered_map>

namespace freestone::trace {
namespace {

constexpr uint64_t kEventsPerWindow = 500;
constexpr uint64_t kLeastWindows = 16;
constexpr uint64_t kMostWindows = 4096;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLineBytes = 64;

// The slots of one plan thread's objects.
class Slots {
 public:
  uint32_t take(bool foreign, uint64_t window, uint64_t& total) {
    if (foreign) {
      // PLAN-4: its last owner ended at least two windows ago.
      if (!old_.empty() && old_.front().second + 2 <= window) {
        const uint32_t slot = old_.front().first;
        old_.pop();
        return slot;
      }
    } else if (!free_.empty()) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    return static_cast<uint32_t>(total++);
  }
  void put(uint32_t slot, bool foreign, uint64_t window) {
    if (foreign)
      old_.push({slot, window});
    else
      free_.push_back(slot);
  }

 private:
  std::vector<uint32_t> free_;
  std::queue<std::pair<uint32_t, uint64_t>> old_;
};

class Planner {
 public:
  Planner(const TraceFile& trace, const PlanOptions& options)
      : step_ns_(trace.step_ns), streams_(trace, options), targets_(streams_.targets().size()) {
    for (size_t i = 0; i < targets_.size(); i++) targets_[i].recorded = streams_.targets()[i];
  }

  Bytes make() {
    lay_out();
    return write();
  }

 private:
  struct Target {
    std::vector<Op> ops;
    Slots slots;
    uint64_t window = kNone;
    uint64_t start_window = 0;
    uint32_t recorded = 0;
    bool ends = false;
  };

  struct Head {
    uint64_t time;
    size_t stream;
    bool operator<(const Head& other) const { return time != other.time ? time > other.time : stream > other.stream; }
  };

  // PLAN-3: goes through all events in the order of time, but holds each one back until the object it names is there.
  void lay_out() {
    cut_windows();
    std::priority_queue<Head> heads;
    std::unordered_map<uint64_t, std::vector<size_t>> waiting;  // streams by the object that they wait for
    size_t waiting_count = 0;
    for (size_t i = 0; i < streams_.all().size(); i++) push(heads, i);
    for (;;) {
      if (heads.empty()) {
        if (waiting_count == 0) break;
        // The object that they wait for never comes, so these events cannot be replayed.
        for (auto& [key, list] : waiting)
          for (const size_t stream : list) {
            drop(streams_.all()[stream]);
            push(heads, stream);
          }
        waiting.clear();
        waiting_count = 0;
        continue;
      }
      const size_t number = heads.top().stream;
      heads.pop();
      Stream& stream = streams_.all()[number];
      const Event& event = stream.from->events[stream.at];
      Object* object = event.ref_thread == kNoThread ? nullptr : streams_.find(event.ref_thread, event.ref_birth);
      if (object && !object->live && object->slot == kNoSlot) {
        waiting[key_of(event.ref_thread, event.ref_birth)].push_back(number);
        waiting_count++;
        continue;
      }
      emit(stream, event, object);
      stream.at++;
      push(heads, number);
      if (event.birth == kNone) continue;
      const auto found = waiting.find(key_of(stream.from->thread, event.birth));
      if (found == waiting.end()) continue;
      for (const size_t other : found->second) push(heads, other);
      waiting_count -= found->second.size();
      waiting.erase(found);
    }
    close_window();
  }

  static uint64_t key_of(uint32_t thread, uint64_t birth) { return static_cast<uint64_t>(thread) << 40 ^ birth; }

  void push(std::priority_queue<Head>& heads, size_t number) {
    const Stream& stream = streams_.all()[number];
    if (stream.at < stream.end) heads.push({stream.from->events[stream.at].time, number});
  }

  void drop(Stream& stream) {
    const Event& event = stream.from->events[stream.at];
    dropped_++;
    if (event.kind == FST_REALLOC && !event.failed) {
      Event born = event;  // the object that it makes still exists
      born.kind = FST_REALLOC_NULL;
      born.ref_thread = kNoThread;
      emit(stream, born, nullptr);
    }
    stream.at++;
  }

  void cut_windows() {
    uint64_t last = 0;
    for (const Stream& stream : streams_.all())
      if (stream.end) last = std::max(last, stream.from->events[stream.end - 1].time);
    const uint64_t count = std::clamp(streams_.calls() / kEventsPerWindow, kLeastWindows, kMostWindows);
    window_steps_ = std::max<uint64_t>(1, last / count + 1);
    windows_.resize(last / window_steps_ + 1);
    for (size_t i = 0; i < windows_.size(); i++) windows_[i].time_ns = i * window_steps_ * step_ns_;
  }

  // The window of the event being laid out. Windows never go back, even if times do.
  uint64_t enter_window(Target& target, uint64_t time) {
    const uint64_t window = std::max<uint64_t>(window_, time / window_steps_);
    for (; window_ < window; window_++) close_window();
    if (target.window != window_) {
      if (target.window == kNone) target.start_window = window_;
      target.window = window_;
      windows_[window_].threads++;
      Op op{};
      op.code = kWindow;
      op.size = window_;
      target.ops.push_back(op);
    }
    return window_;
  }

  void close_window() { windows_[window_].live_bytes = live_bytes_; }

  void emit(Stream& stream, const Event& event, Object* object) {
    Target& target = targets_[stream.target];
    if (event.kind == FST_THREAD_END) target.ends = true;
    if (event.kind == FST_THREAD_START || event.kind == FST_THREAD_END || event.kind == FST_FORK) return;
    if (event.ref_thread != kNoThread && !object && event.kind != FST_REALLOC) {
      dropped_++;
      return;
    }
    if (object && !object->live) {
      dropped_++;  // it has ended already
      if (event.kind != FST_REALLOC || event.failed) return;
      object = nullptr;
    }
    const uint64_t window = enter_window(target, event.time);
    Op op{};
    op.code = event.kind;
    op.size = event.size;
    op.align_log2 = event.align_log2;
    if (event.failed) op.flags |= kFailed;
    if (object && object->maker != stream.target) op.flags |= kWait;
    if (event.kind == FST_TOUCH) {
      emit_touch(target, op, *object, event);
      return;
    }
    if (event.kind == FST_REALLOC && !object) op.code = FST_REALLOC_NULL;
    uint64_t used_before = 0;
    if (object) {
      op.slot = op.old_slot = object->slot;
      if (event.kind != FST_REALLOC) {
        op.size = object->size;  // the sized forms need it
        op.align_log2 = object->align_log2;
      }
      if (!event.failed) used_before = end_object(*object, window);
    }
    if (event.birth != kNone) begin_object(stream, target, op, event, window, used_before);
    target.ops.push_back(op);
  }

  // Returns how many bytes of it were in use.
  uint64_t end_object(Object& object, uint64_t window) {
    object.live = false;
    live_bytes_ -= object.size;
    targets_[object.maker].slots.put(object.slot, object.foreign, window);
    return object.last_pages == kAll ? object.size : std::min(object.size, object.last_pages * kPageBytes);
  }

  void begin_object(Stream& stream, Target& target, Op& op, const Event& event, uint64_t window, uint64_t used_before) {
    Object& made = *streams_.find(stream.from->thread, event.birth);
    made.slot = target.slots.take(made.foreign, window, slots_);
    made.live = true;
    live_bytes_ += made.size;
    peak_live_bytes_ = std::max(peak_live_bytes_, live_bytes_);
    op.slot = made.slot;
    const uint64_t unit = made.size <= kPageBytes ? kLineBytes : kPageBytes;
    const uint64_t all = (made.size + unit - 1) / unit;
    // Touch a block at once if another thread ends it: a later touch could come after the end.
    const uint32_t known = made.foreign ? made.last_pages : made.first_pages;
    op.touch_begin = static_cast<uint32_t>(std::min<uint64_t>(used_before / unit, kAll - 1));
    op.touch_end =
        static_cast<uint32_t>(std::min<uint64_t>({all, known == kAll || unit == kLineBytes ? all : known, kAll - 1}));
  }

  void emit_touch(Target& target, Op& op, const Object& object, const Event& event) {
    if (object.foreign || op.flags & kWait || object.size <= kPageBytes) return;
    op.code = kTouch;
    op.slot = object.slot;
    op.touch_begin = 0;
    op.touch_end = static_cast<uint32_t>(std::min(event.size, (object.size + kPageBytes - 1) / kPageBytes));
    op.size = object.size;
    target.ops.push_back(op);
  }

  Bytes write() {
    PlanHeader header{};
    header.magic = kPlanMagic;
    header.threads = targets_.size();
    header.windows = windows_.size();
    for (const Target& target : targets_) header.ops += target.ops.size();
    header.bytes = sizeof header + header.threads * sizeof(PlanThread) + header.windows * sizeof(PlanWindow) +
                   header.ops * sizeof(Op);
    header.slots = slots_;
    header.dropped = dropped_;
    header.peak_live_bytes = peak_live_bytes_;
    Bytes out;
    out.reserve(header.bytes);
    out.resize(sizeof header);
    // Threads start in their order, so none may begin earlier than the thread before it.
    for (size_t i = targets_.size(); i-- > 1;)
      targets_[i - 1].start_window = std::min(targets_[i - 1].start_window, targets_[i].start_window);
    uint64_t first = 0;
    const auto append = [&out](const void* from, size_t bytes) {
      const auto* at = static_cast<const uint8_t*>(from);
      out.insert(out.end(), at, at + bytes);
    };
    for (const Target& target : targets_) {
      const PlanThread thread{first, target.ops.size(), target.start_window, target.recorded, target.ends};
      append(&thread, sizeof thread);
      first += target.ops.size();
    }
    append(windows_.data(), windows_.size() * sizeof(PlanWindow));
    for (const Target& target : targets_) append(target.ops.data(), target.ops.size() * sizeof(Op));
    header.crc =
        crc32c(&header, offsetof(PlanHeader, crc)) ^ crc32c(out.data() + sizeof header, out.size() - sizeof header);
    std::memcpy(out.data(), &header, sizeof header);
    return out;
  }

  const uint64_t step_ns_;
  Streams streams_;
  std::vector<Target> targets_;
  std::vector<PlanWindow> windows_;
  uint64_t window_ = 0;
  uint64_t window_steps_ = 1;
  uint64_t slots_ = 0;
  uint64_t dropped_ = 0;
  uint64_t live_bytes_ = 0;
  uint64_t peak_live_bytes_ = 0;
};

}  // namespace

Bytes make_plan(const TraceFile& trace, const PlanOptions& options) { return Planner(trace, options).make(); }

}  // namespace freestone::trace
