// replayer/plan.h: a trace made ready for replay. A plan is one file: a header, an entry for each thread, a time and
// the live memory of each window, then the operations of every thread. The replayer maps it and never copies it.
//
// PLAN-1: an operation on a block that another thread makes waits until that block is there (its slot is filled).
// PLAN-2: time is cut into windows. A thread enters window w when all operations of window w - 2 are done. So no thread
//         runs far ahead of the others, and memory peaks where it peaked in the recording.
// PLAN-3: one order exists in which all operations can run one after another, so no wait lasts for ever.
// PLAN-4: a slot gets another object only when nobody can still wait for the one before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "replayer/streams.h"

namespace freestone::trace {

inline constexpr uint64_t kPlanMagic = 0x324e414c50545346;  // "FSTPLAN2"

enum Code : uint8_t {  // 1 to 24 are those of enum fst_kind
  kWindow = 32,        // size: its number
  kTouch = 33,
};

struct Op {
  uint64_t size;
  uint32_t slot;         // the block that is born or dies
  uint32_t old_slot;     // realloc: the block that dies
  uint32_t touch_begin;  // in lines of 64 bytes for blocks up to a page, else in pages
  uint32_t touch_end;    // kAll: the block's end
  uint8_t code;
  uint8_t align_log2;
  uint8_t flags;
  uint8_t padding[5];
};
static_assert(sizeof(Op) == 32);

enum OpFlags : uint8_t {
  kWait = 1,    // another thread makes the object
  kFailed = 2,  // the call returned no memory
};

struct PlanThread {
  uint64_t first_op;
  uint64_t ops;
  uint64_t start_window;
  uint32_t recorded;  // its number in the trace
  uint32_t ends;      // 1: it ends before the program does
};

struct PlanWindow {
  uint64_t time_ns;     // since the start
  uint64_t live_bytes;  // at its end
  uint32_t threads;     // how many have operations in it
  uint32_t padding;
};

struct PlanHeader {
  uint64_t magic;
  uint64_t bytes;  // of the whole plan
  uint64_t threads;
  uint64_t windows;
  uint64_t ops;
  uint64_t slots;
  uint64_t dropped;  // events that no replay can do, because they name missing objects
  uint64_t peak_live_bytes;
  uint64_t crc;  // that of the header before it, exclusive-or that of everything behind it
};

// The bytes of the plan's file. Throws Error.
Bytes make_plan(const TraceFile& trace, const PlanOptions& options);

}  // namespace freestone::trace
