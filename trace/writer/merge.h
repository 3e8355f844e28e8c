// writer/merge.h: turns the raw events of all threads into blocks of a trace. One thread owns all of this.
//
// It takes events of different threads in the order of their ticks. A program may read the counter some hundred
// nanoseconds early. So an event that does not fit (a free of an unknown block, a birth where something lives) is put
// off once, by kPatienceTicks. If it still does not fit, it counts as a loss.
//
// MERGE-1: a scan takes an event only if its tick is not later than the scan's start. By then, other threads had stored
// everything that happened before it, so those events are taken first.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "recorder/shared.h"
#include "writer/clock.h"
#include "writer/objects.h"
#include "writer/output.h"

namespace freestone::trace {

inline constexpr uint64_t kPatienceTicks = 256;
inline constexpr size_t kBlockFullBytes = 512 << 10;
inline constexpr uint64_t kStepNs = 1000;

struct Counts {
  uint64_t events = 0;
  uint64_t births = 0;
  uint64_t deaths = 0;
  uint64_t unknown_frees = 0;  // frees of blocks from before the recording, or from a gap
  uint64_t lost_frees = 0;     // frees whose place is a guess
  uint64_t gap_seconds = 0;    // dropped: the sum over threads without a buffer, and over the file
  uint64_t threads = 0;
  uint64_t processes = 0;
};

// What the writer knows about a live large object's memory.
struct Large {
  ObjectName name;
  uint64_t bytes;
  uint64_t pages;  // last seen resident
};

struct Process {
  uint32_t pid = 0;
  bool known = false;
  bool ended = false;
  unsigned streams = 0;
  Objects objects;
  std::map<uint64_t, Large> large;  // by address
};

class Merge {
 public:
  Merge(fsr_header* shared, Output& output);

  // Takes all events stored before now. Returns how many.
  size_t poll();

  // Frees the blocks of ended threads, and sends blocks that have waited long.
  void look_after();

  // Sends everything.
  void flush_all();

  uint64_t now() const;  // in steps of the trace
  const Counts& counts() const { return counts_; }
  std::vector<Process>& processes() { return processes_; }

  // Notes that `pages` pages of a live object were seen resident.
  void touched(ObjectName object, uint64_t pages);

 private:
  struct Stream {
    Stream(uint32_t process_number, uint32_t thread_number)
        : process(process_number), thread(thread_number), encoder(process_number, thread_number) {}
    uint32_t process;
    uint32_t thread;
    uint32_t pid = 0;
    uint32_t tid = 0;
    uint32_t next_sequence = 0;
    std::vector<uint32_t> blocks;  // by sequence
    uint32_t position = 0;         // in the first of them, in events
    uint64_t tick = 0;             // of the last event
    uint64_t base = 0;             // near the next event
    uint64_t deferred_until = 0;
    uint64_t big_size = 0;
    bool in_realloc = false;
    bool ended = false;
    uint64_t realloc_address = 0;
    std::optional<ObjectName> realloc_object;
    ObjectName last_birth{};
    Bytes stack;
    uint64_t frames_to_come = 0;
    Encoder encoder;
  };
  struct Event {
    unsigned kind;
    unsigned align_log2;
    uint64_t address;
    uint64_t size;
    uint64_t tick;
  };

  fsr_block* block(uint32_t number) const;
  void find_blocks();
  void recycle(uint32_t number);
  bool head(Stream& stream, Event& event);
  bool take(Stream& stream, const Event& event);  // false: put off
  bool take_birth(Stream& stream, const Event& event);
  bool take_death(Stream& stream, const Event& event);
  bool take_realloc_begin(Stream& stream, const Event& event);
  bool take_realloc_end(Stream& stream, const Event& event);
  void take_other(Stream& stream, const Event& event);
  void take_frame(Stream& stream, uint64_t address);
  bool put_off(Stream& stream, const Event& event);
  void abandon_realloc(Stream& stream, uint64_t time);
  bool clear_address(Stream& stream, const Event& event, uint64_t time);
  void settle(Stream& stream, uint64_t address, uint64_t size, ObjectName name);
  void forget_large(Process& process, uint64_t address) { process.large.erase(address); }
  void fork(Stream& stream, uint32_t child, uint64_t time);
  void send(Stream& stream);
  void send_stacks(Stream& stream);
  void send_if_full(Stream& stream);
  void watch_output();
  void end_gap();
  uint64_t time_of(uint64_t tick) const;
  bool is_recorded(ObjectName name) const { return name.thread != kUnrecorded; }

  static constexpr uint32_t kUnrecorded = 0xffffff;  // the maker of objects born in a gap

  fsr_header* shared_;
  Output& output_;
  std::vector<Process> processes_;
  std::unordered_map<uint32_t, std::unique_ptr<Stream>> streams_;
  std::vector<bool> known_;  // blocks that belong to a stream
  Instant start_;
  double ns_per_tick_ = 0;
  uint64_t horizon_ = 0;      // all calls up to this tick are taken
  uint64_t earliest_ = 0;     // the end of the last gap: no call is dated into it
  uint64_t gap_until_s_ = 0;  // the file takes no births until this second; 0: it takes them
  uint64_t gap_from_ = 0;
  Counts counts_;
};

// Whether a thread has ended: it is absent, or a zombie.
bool is_gone(uint32_t pid, uint32_t tid);

}  // namespace freestone::trace
