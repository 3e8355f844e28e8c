// replayer/streams.h: chooses the events of a trace to replay and the thread for each, and gathers facts about each
// object before the first operation is laid out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "format/file_reader.h"

namespace freestone::trace {

inline constexpr uint32_t kAll = ~uint32_t{0};
inline constexpr uint32_t kNoSlot = ~uint32_t{0};

struct PlanOptions {
  uint32_t process = kAll;  // kAll: the process with the most calls
  uint32_t threads = 0;     // the most threads; 0: as recorded
};

struct Object {
  uint64_t size = 0;
  uint32_t slot = kNoSlot;
  uint32_t maker = 0;           // plan thread
  uint32_t first_pages = kAll;  // in use at the first look and at the last; kAll: unknown
  uint32_t last_pages = kAll;
  bool foreign = false;  // another plan thread ends it
  bool live = false;
  uint8_t align_log2 = 0;
};

// The events of one recorded thread that are replayed.
struct Stream {
  const ThreadEvents* from;
  size_t end;
  uint32_t target;  // plan thread
  size_t at = 0;
  uint64_t first_birth = 0;  // above 0 if the trace lacks the beginning
  std::vector<Object> objects;
};

class Streams {
 public:
  // Throws Error if the trace has no events of the process.
  Streams(const TraceFile& trace, const PlanOptions& options);

  std::vector<Stream>& all() { return streams_; }
  // Null if the trace lacks the object.
  Object* find(uint32_t thread, uint64_t birth);
  // The recorded number of each plan thread.
  const std::vector<uint32_t>& targets() const { return targets_; }
  uint64_t calls() const { return calls_; }

 private:
  struct Fork {
    uint32_t parent;
    uint32_t thread;
    uint64_t time;
    size_t at;
  };

  void choose_process();
  const Fork* find_fork(uint32_t child);
  void gather();
  void deal();
  void look_ahead();

  const TraceFile& trace_;
  PlanOptions options_;
  uint32_t process_ = 0;
  std::unordered_map<uint32_t, Fork> forks_;
  bool searched_ = false;
  std::vector<Stream> streams_;
  std::unordered_map<uint32_t, size_t> places_;
  std::vector<uint32_t> targets_;
  uint32_t next_target_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace freestone::trace
