// Realloc: of freed, foreign or interior pointers, and stale use of what realloc moved or shortened. In a twin the
// program uses what realloc returned.
#include <malloc.h>
#include <stdlib.h>

#include "harness.h"

namespace attack {
namespace {

std::size_t resized(const World& w, int how) {
  switch (how) {
    case 0: return w.size();
    case 1: return 4 * w.size() + 64;
    default: return w.size() / 2;
  }
}

// realloc(p) after free(p). `how`: to the same size, larger, smaller; `distance`: pairs between.
void of_freed(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.write_secret(block, w.size());
  w.disregard(block);
  if (w.misuse()) w.give(block);
  w.churn(static_cast<std::size_t>(params.distance), kMebibyte);
  const std::size_t bytes = resized(w, params.how);
  w.fault();
  if (!w.misuse()) w.forget(block);
  Byte* const moved = static_cast<Byte*>(::realloc(opaque(block), bytes));
  if (moved != nullptr) {  // the first use of what came back belongs to the misuse: it may be inaccessible
    if (w.misuse() && w.holds_secret(moved, bytes < w.size() ? bytes : w.size()))
      w.effect("realloc copied the freed block's secret");
    w.adopt(moved, bytes);
  }
  w.past();
  w.aftermath();
}

// After one realloc moved the block, the old pointer is reallocated again, or freed, written to or read.
enum Stale { kReallocAgain, kFree, kWrite, kRead };

void stale_after_move(World& w, const Params& params) {
  w.populate();
  Byte* const old = w.take();
  w.take();  // keeps some heaps from growing the block in place
  w.write_secret(old, w.size());
  w.disregard(old);
  w.forget(old);
  const std::size_t bytes = 8 * w.size() + 256;
  Byte* const moved = w.adopt(::realloc(opaque(old), bytes), bytes);
  Byte* const used = w.misuse() ? old : moved;
  const bool stayed = moved == old;  // then the old pointer is the new one, and its use is no misuse
  w.fault();
  switch (params.how) {
    case kReallocAgain: {
      w.forget(used);
      Byte* const again = static_cast<Byte*>(::realloc(opaque(used), 2 * bytes));
      if (again != nullptr) w.adopt(again, 2 * bytes);
      w.past();
      break;
    }
    case kFree:
      w.forget(used);
      ::free(opaque(used));
      w.past();
      break;
    case kWrite:
      w.disregard(used);
      flip(used, w.size(), w.random());
      w.past();
      break;
    default: {
      const bool seen = w.holds_secret(used, w.size());
      w.past();
      if (seen && w.misuse() && !stayed) w.effect("the moved block's secret was read at its old place");
      break;
    }
  }
  w.aftermath();
}

// Shrunk, then used to its old length. `how`: 0 write at the new border, 1 write far behind it, 2 read.
void stale_after_shrink(World& w, const Params& params) {
  w.populate();
  Byte* block = w.take();
  w.write_secret(block, w.size());
  const std::size_t kept = w.size() / 2 > 16 ? w.size() / 2 - w.random().below(8) : w.size() / 2;
  w.forget(block);
  block = w.adopt(::realloc(opaque(block), kept), kept);
  if (block == nullptr) w.refused("a shrinking realloc");
  w.disregard(block);
  for (int i = 0; i < 16; i++) {  // the tail may belong to others by now
    Byte* const other = w.take(kept);
    w.write_secret(other, kept);
    w.disregard(other);
  }
  Byte* const place = !w.misuse() ? block : params.how == 0 ? block + kept : block + (w.size() - 8);
  const std::size_t bytes = params.how == 0 ? 1 : 8;
  w.fault();
  if (params.how == 2) {
    const bool seen = w.holds_secret(place, bytes);
    w.past();
    if (w.misuse() && seen) w.effect("a secret was read behind the shrunk block's end");
    w.aftermath();
    return;
  }
  flip(place, bytes < kept ? bytes : kept, w.random());
  w.give(block);
  w.past();
  if (w.misuse()) w.touched(place, bytes, "a live block was written to behind the shrunk block's end");
  w.aftermath();
}

enum Wrong { kPlus1, kPlus8, kPlus16, kMinus16, kStatic, kStack, kOne };

void of_wrong(World& w, const Params& params) {
  alignas(16) Byte stack[256] = {0};
  Byte* const block = w.populate();
  w.disregard(block);
  dress(block, w.size(), w.size());
  Byte* wrong = block;
  switch (params.how) {
    case kPlus1: wrong = block + 1; break;
    case kPlus8: wrong = block + 8; break;
    case kPlus16: wrong = block + 16; break;
    case kMinus16: wrong = at<Byte>(address_of(block) - 16); break;
    case kStatic: wrong = w.target(); break;
    case kStack: wrong = stack + 32; break;
    default: wrong = at<Byte>(1); break;
  }
  dress(w.target() - 64, 1024, w.size());
  dress(stack, sizeof stack, w.size());
  w.seal_target();
  w.watch(stack, sizeof stack);
  const std::size_t bytes = 2 * w.size() + 64;
  w.fault();
  if (w.misuse()) {
    if (w.is_live(wrong)) w.forget(wrong);
    Byte* const moved = static_cast<Byte*>(::realloc(opaque(wrong), bytes));
    if (moved != nullptr) w.adopt(moved, bytes);
    w.past();
  } else {
    w.forget(block);
    w.adopt(::realloc(opaque(block), bytes), bytes);
    w.past();
  }
  w.aftermath();
}

// realloc(p, 0) frees on many systems; the program goes on as if it had not.
void to_zero(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.forget(block);
  void* const left = ::realloc(opaque(block), w.misuse() ? 0 : w.size());
  w.fault();
  if (w.misuse()) {
    if (params.how == 0) {
      ::free(opaque(block));
    } else {
      flip(block, w.size(), w.random());
    }
    w.past();
  } else {
    w.past();
    ::free(left);
  }
  w.aftermath();
}

const Case kCases[] = {
    {"realloc_freed_same", kAll, "realloc of a freed block to its size", of_freed},
    {"realloc_freed_larger", kAll, "realloc of a freed block to four times its size", of_freed, {0, 1}},
    {"realloc_freed_smaller", kAll, "realloc of a freed block to half its size", of_freed, {0, 2}},
    {"realloc_freed_churned", kAll, "the same, 64 pairs later", of_freed, {64, 1}},
    {"realloc_twice", kAll, "the old pointer is reallocated again after a move", stale_after_move, {0, kReallocAgain}},
    {"realloc_free_old", kAll, "the old pointer is freed after a move", stale_after_move, {0, kFree}},
    {"realloc_write_old", kAll, "the old pointer is written through after a move", stale_after_move, {0, kWrite}},
    {"realloc_read_old", kAll, "the old pointer is read through after a move", stale_after_move, {0, kRead}},
    {"realloc_shrunk_overflow_1", kAll, "one byte past the end after shrinking", stale_after_shrink},
    {"realloc_shrunk_write_tail",
     kAll,
     "the old last word after shrinking",
     stale_after_shrink,
     {0, 1},
     kSlab,
     "the word lies beyond the block's new place and touches no check value: seeing it takes a page per block or "
     "memory tagging"},
    {"realloc_shrunk_read_tail",
     kAll,
     "the old last word is read after shrinking",
     stale_after_shrink,
     {0, 2},
     kSlab,
     "a read leaves no trace: seeing it takes a page per block or memory tagging"},
    {"realloc_plus_1", kAll, "realloc one byte into a live block", of_wrong, {0, kPlus1}},
    {"realloc_plus_8", kAll, "realloc eight bytes into a live block", of_wrong, {0, kPlus8}},
    {"realloc_plus_16", kAll, "realloc sixteen bytes into a live block", of_wrong, {0, kPlus16}},
    {"realloc_minus_16", kAll, "realloc sixteen bytes before a live block", of_wrong, {0, kMinus16}},
    {"realloc_static", kAny, "realloc of static memory", of_wrong, {0, kStatic}},
    {"realloc_stack", kAny, "realloc of a stack array", of_wrong, {0, kStack}},
    {"realloc_one", kAny, "realloc of the address 1", of_wrong, {0, kOne}},
    {"realloc_zero_then_free", kAll, "realloc(p, 0), then free(p)", to_zero},
    {"realloc_zero_then_write", kAll, "realloc(p, 0), then a write through p", to_zero, {0, 1}},
};

}  // namespace

const Family kRealloc = {"realloc",
                         "no live block is handed out again, changed or copied from, and no foreign memory touched",
                         kCases, sizeof kCases / sizeof kCases[0]};

}  // namespace attack
