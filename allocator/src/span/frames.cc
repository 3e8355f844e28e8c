// Room 6, span: see frames.h.

#include "span/frames.h"

#include <cerrno>

#include "platform/message.h"
#include "platform/os.h"
#include "policy/policy.h"
#include "region/account.h"
#include "span/purge.h"
#include "span/span_map.h"

namespace freestone {

namespace {

Atomic<u32> moves_refused;  // 1: by an old kernel, or since memory is locked

UnitIndex rest_of(const FrameMoves::Move& move) { return move.to + kFrameUnits - static_cast<UnitIndex>(move.rest); }

bool move_frame(UnitIndex to, UnitIndex from) {
  void* const target = unit_address(to);
  if (os::purge(target, kFrameBytes)) {  // locked memory: a move would unlock where it comes from
    moves_refused.store_relaxed(1);
    return false;
  }
  const os::Failure failure = os::move_memory(unit_address(from), target, kFrameBytes);
  if (!failure) return true;
  if (failure.error == EINVAL) moves_refused.store_relaxed(1);
  // The kernel may have unmapped the target before it failed. A block without memory must not be handed out.
  const os::Failure mapping = os::map_at(target, kFrameBytes);
  if (mapping && mapping.error != EEXIST) fail("lost memory", target, "the kernel unmapped it and refuses to map it");
  return false;
}

}  // namespace

bool fill_frame_around(UnitIndex first, usize units) {
  const usize from_bytes = max_of(kFramesFromBytes, kFramesFromSlabs * units_to_bytes(units));
  if (account.charged.load_relaxed() < from_bytes || !fills_frames()) return false;
  const UnitIndex frame = first & ~(kFrameUnits - 1);
  const UnitIndex behind = first + static_cast<UnitIndex>(units);
  const UnitIndex end = frame + kFrameUnits;
  if (frame < region.heap_start || behind > end || end > region.frontier.load_acquire()) return false;
  const struct {
    UnitIndex first;
    usize units;
  } rest[] = {{frame, first - frame}, {behind, end - behind}};
  const usize rest_bytes = kFrameBytes - units_to_bytes(units);
  {
    LockGuard guard(span_lock);
    for (const auto& part : rest) {
      if (part.units == 0) continue;
      if (!span_map.are_free(part.first, part.units) || span_map.count_dirty(part.first, part.units) > 0) return false;
    }
    if (!charge(rest_bytes)) return false;
    for (const auto& part : rest) {
      if (part.units > 0) span_map.mark_taken(part.first, part.units);
    }
  }
  const bool filled = fill_frame(frame);
  if (!filled) uncharge(rest_bytes);
  LockGuard guard(span_lock);
  for (const auto& part : rest) {
    if (part.units == 0) continue;
    span_map.mark_free(part.first, part.units, filled);
    if (filled) note_filled(part.first, part.units);
  }
  return filled;
}

bool may_move_frames(usize units) {
  if (kMitigations.any() || units < 2 * kFrameUnits || units > bytes_to_units(kRunBytesMax)) return false;
  if (region.reserved || is_limited() || moves_refused.load_relaxed() != 0) return false;
  return region.frontier.load_relaxed() - region.heap_start <= bytes_to_units(kMovedHeapBytesMax);
}

void plan_moves(UnitIndex first, usize units, FrameMoves& moves) {
  if (first % kFrameUnits != 0 || span_map.dirty_units() < kFrameUnits || !may_move_frames(units)) return;
  const UnitIndex end = first + static_cast<UnitIndex>(units);
  for (UnitIndex frame = first; frame < end; frame += kFrameUnits) {
    const usize inside = min_of<usize>(kFrameUnits, end - frame);
    const usize clean = inside - span_map.count_dirty(frame, inside);
    const usize rest = kFrameUnits - inside;
    if (clean < kFrameUnits / 2 || frame + kFrameUnits > region.frontier.load_relaxed()) continue;
    if (rest > 0 && !span_map.are_free(end, rest)) continue;
    moves.of[moves.count++] = {frame, kNoUnit, clean, rest};
  }
}

usize take_frames_to_move(FrameMoves& moves) {
  usize moved = 0;
  const unsigned planned = moves.count;
  moves.count = 0;
  for (UnitIndex below = kNoUnit; moves.count < planned; ++moves.count) {
    FrameMoves::Move& move = moves.of[moves.count];
    const usize rest_bytes = units_to_bytes(move.rest - span_map.count_dirty(rest_of(move), move.rest));
    if (!charge(rest_bytes)) break;
    move.from = below = span_map.take_dirty_frame(below);
    if (below == kNoUnit) {
      uncharge(rest_bytes);
      break;
    }
    if (move.rest > 0) span_map.mark_taken(rest_of(move), move.rest);
    moved += move.clean;
  }
  return moved;
}

void move_frames(const FrameMoves& moves) {
  for (unsigned k = 0; k < moves.count; ++k) {
    const FrameMoves::Move& move = moves.of[k];
    const bool moved = move_frame(move.to, move.from);
    if (moved) uncharge(kFrameBytes);  // before another thread can be given the units, and charge again
    LockGuard guard(span_lock);
    span_map.mark_free(move.from, kFrameUnits, !moved);
    if (move.rest > 0) span_map.mark_free(rest_of(move), move.rest, true);
  }
}

}  // namespace freestone
