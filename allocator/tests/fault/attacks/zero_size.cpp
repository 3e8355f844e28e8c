// Zero-size blocks: malloc(0) returns a pointer to nothing, so every access through it is out of bounds. In a twin the
// block has 64 bytes.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

namespace attack {
namespace {

enum Kind { kMallocZero, kCallocZero, kNewArrayZero, kAlignedZero };

Byte* empty_block(World& w, int kind) {
  const std::size_t bytes = w.misuse() ? 0 : 64;
  switch (kind) {
    case kCallocZero: return w.adopt(::calloc(bytes, bytes == 0 ? 0 : 1), bytes);
    case kNewArrayZero: return w.take(bytes, Source::kNewArray);
    case kAlignedZero: return w.take(bytes, Source::kAligned);
    default: return w.take(bytes);
  }
}

Source source_of(int kind) { return kind == kNewArrayZero ? Source::kNewArray : Source::kMalloc; }

// Neighbours as small as blocks can be, with a secret in the live ones and in the freed ones.
void prepare(World& w) {
  Byte* blocks[64];
  for (Byte*& block : blocks) {
    block = w.take(16);
    w.disregard(block);
    w.write_secret(block, 16);
  }
  for (std::size_t i = 0; i < 64; i += 3) w.give(blocks[i]);
}

void write_into(World& w, const Params& params) {
  prepare(w);
  Byte* const block = empty_block(w, params.how);
  if (block == nullptr) {  // a null pointer faults on access, as it should
    w.fault();
    w.past();
    return;
  }
  w.disregard(block);
  const std::size_t bytes = static_cast<std::size_t>(params.distance);
  w.fault();
  flip(block, bytes, w.random());
  w.give(block, source_of(params.how));
  w.past();
  if (w.misuse()) w.touched(block, bytes, "a live block was written to through a zero-size block");
  w.aftermath();
}

void read_from(World& w, const Params& params) {
  prepare(w);
  Byte* const block = empty_block(w, params.how);
  if (block == nullptr) {
    w.fault();
    w.past();
    return;
  }
  const std::size_t bytes = static_cast<std::size_t>(params.distance);
  w.fault();
  const bool seen = w.holds_secret(block, bytes);
  w.past();
  if (w.misuse() && seen) w.effect("a secret was read through a zero-size block");
  if (w.misuse()) w.touched(block, bytes, "a live block was read through a zero-size block");
  w.give(block, source_of(params.how));
  w.aftermath();
}

void after_free(World& w, const Params& params) {
  prepare(w);
  Byte* const block = empty_block(w, params.how);
  if (block != nullptr && w.misuse()) w.give(block, source_of(params.how));
  w.fault();
  if (block != nullptr) {
    if (w.misuse()) {
      flip(block, 8, w.random());
    } else {
      w.give(block, source_of(params.how));
    }
  }
  w.past();
  w.aftermath();
}

void freed_twice(World& w, const Params&) {
  prepare(w);
  Byte* const block = empty_block(w, kMallocZero);
  w.give(block);
  w.fault();
  if (w.misuse()) ::free(opaque(block));
  w.past();
  w.aftermath();
}

// A program tells its objects apart by their address, also empty ones.
void distinct(World& w, const Params&) {
  prepare(w);
  Byte* blocks[64];
  w.fault();
  for (Byte*& block : blocks) block = static_cast<Byte*>(opaque(::malloc(w.misuse() ? 0 : 16)));
  w.past();
  for (std::size_t i = 0; i < 64; i++)
    for (std::size_t k = 0; k < i; k++)
      if (blocks[i] != nullptr && blocks[i] == blocks[k]) w.effect("two live zero-size blocks have one address");
  for (Byte* const block : blocks) ::free(block);
  w.aftermath();
}

const Case kCases[] = {
    {"zero_size_write_1", kAny, "one byte into malloc(0)", write_into, {1}},
    {"zero_size_write_16", kAny, "16 bytes into malloc(0)", write_into, {16}},
    {"zero_size_write_48", kAny, "48 bytes into malloc(0)", write_into, {48}},
    {"zero_size_write_calloc", kAny, "16 bytes into calloc(0, 0)", write_into, {16, kCallocZero}},
    {"zero_size_write_new_array", kAny, "16 bytes into new char[0]", write_into, {16, kNewArrayZero}},
    {"zero_size_write_aligned", kAny, "64 bytes into memalign(64, 0)", write_into, {64, kAlignedZero}},
    {"zero_size_read_16", kAny, "16 bytes out of malloc(0)", read_from, {16}},
    {"zero_size_read_48", kAny, "48 bytes out of malloc(0)", read_from, {48}},
    {"zero_size_read_new_array", kAny, "16 bytes out of new char[0]", read_from, {16, kNewArrayZero}},
    {"zero_size_write_freed", kAny, "a word into a freed malloc(0)", after_free},
    {"zero_size_double_free", kAny, "malloc(0), freed twice", freed_twice},
    {"zero_size_distinct", kAny, "64 zero-size blocks have 64 addresses", distinct},
};

}  // namespace

const Family kZeroSize = {"zero-size", "no live block and no secret is reached through a zero-size block", kCases,
                          sizeof kCases / sizeof kCases[0]};

}  // namespace attack
