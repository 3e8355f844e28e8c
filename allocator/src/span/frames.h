// Room 6, span: frames, the stretches of 2 MiB at multiples of 2 MiB that one huge page or one page of the kernel's
// page table covers.
//
// A frame is filled as one huge page (fill_frame_around), or its memory is moved. A large run may get clean frames
// while the heap keeps dirty frames in holes too short for the run. Its pages would then fault in while the others go
// back. Instead the kernel moves their memory: one entry of the page table changes its place, which costs a hundredth
// of the faults.
//
// Until a move is done, both frames are in no bitmap (SPAN-2). If the kernel unmaps the target and then fails, which it
// may when its own memory is short, the target is mapped again.
#pragma once

#include "platform/mutex.h"
#include "region/region.h"

namespace freestone {

extern Mutex span_lock;

inline constexpr auto kFrameUnits = static_cast<UnitIndex>(kFrameBytes >> kUnitShift);

// For a span that was just taken and has no memory. If its frame holds nothing else and no memory, and the heap is
// large, fills the whole frame; the part outside the span is dirty from then on. False when nothing was done.
bool fill_frame_around(UnitIndex first, usize units);

// The moves into one run.
struct FrameMoves {
  struct Move {
    UnitIndex to;
    UnitIndex from;
    usize clean;  // units of the run in it that have no memory
    usize rest;   // units behind the run in it
  };
  unsigned count = 0;
  Move of[kRunBytesMax / kFrameBytes + 1];
};

// Whether a run of this length is worth moving memory for, and should lie at a multiple of a frame.
bool may_move_frames(usize units);
// plan_moves, before free units are taken: notes which of their frames have little memory. take_frames_to_move,
// afterwards: takes dirty frames whose memory will move there, and returns how many units get memory that way.
void plan_moves(UnitIndex first, usize units, FrameMoves& moves) FREESTONE_REQUIRES(span_lock);
usize take_frames_to_move(FrameMoves& moves) FREESTONE_REQUIRES(span_lock);
// Moves the memory. The caller holds no lock.
void move_frames(const FrameMoves& moves);

}  // namespace freestone
