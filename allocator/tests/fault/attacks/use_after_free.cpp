// Use after free: a stale pointer reads or writes, before its block has a new owner or after. In a twin the block is
// freed after its last use.
#include <malloc.h>
#include <stdlib.h>

#include <new>

#include "harness.h"

namespace attack {
namespace {

enum Place { kFirstWord, kSecondWord, kMiddle, kLastWord, kWhole, kOneBit };
enum Route { kPlain, kFlushed, kTrimmed, kThreadExited, kPendingRemote, kChurned };

constexpr char kStaleRead[] = "the freed block's secret was read";
constexpr char kOwnerRead[] = "the new owner's secret was read";
constexpr char kOwnerWritten[] = "the new owner's block was written to";

void free_it(void* block) { ::free(opaque(block)); }

Byte* word_of(Byte* block, std::size_t size, int place) {
  switch (place) {
    case kSecondWord: return block + 8;
    case kMiddle: return block + marked_middle(size);
    case kLastWord: return block + (size - 8);
    default: return block;
  }
}

void write_stale(World& w, Byte* block, int place) {
  switch (place) {
    case kWhole: flip(block, w.size(), w.random()); break;
    case kOneBit: {
      volatile Byte* const byte = opaque(block + w.random().below(w.size()));
      *byte = static_cast<Byte>(*byte ^ (1U << w.random().below(8)));
      break;
    }
    default: poke(word_of(block, w.size(), place), 0x4242424242424240ULL + w.random().below(4096) * 16); break;
  }
}

// Frees `block` by a route that leaves it at a different place inside the allocator.
void free_by(World& w, Byte* block, int route) {
  switch (route) {
    case kThreadExited:
      w.forget(block);
      in_thread(free_it, block);
      return;
    case kPendingRemote: {  // `block` is another thread's; see write_before_reuse
      w.give(block);
      return;
    }
    default: break;
  }
  w.give(block);
  if (route == kFlushed || route == kTrimmed) w.flush_class();
  if (route == kTrimmed) ::malloc_trim(0);
  if (route == kChurned) w.churn(64, kMebibyte);
}

// Written while nobody owns it. `how`: which part; `distance`: by which route it was freed.
void write_before_reuse(World& w, const Params& params) {
  static Byte* block;
  w.populate();
  Partner owner;
  if (params.distance == kPendingRemote) {
    owner.run([](void* world) { block = static_cast<World*>(world)->take(); }, &w);
  } else {
    block = w.take();
  }
  if (w.misuse()) {
    free_by(w, block, static_cast<int>(params.distance));
    w.fault();
    write_stale(w, block, params.how);
    w.past();
  } else {
    w.disregard(block);
    w.fault();
    write_stale(w, block, params.how);
    w.past();
    free_by(w, block, static_cast<int>(params.distance));
  }
  w.aftermath();
}

// The attacker makes the program allocate `count` blocks of the size after `distance` pairs, then uses the stale
// pointer.
void write_after_reuse(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.churn(static_cast<std::size_t>(params.distance), params.distance > 10000 ? 64 * kMebibyte : kMebibyte);
  const std::size_t owners = w.bulk(static_cast<std::size_t>(params.count));
  for (std::size_t i = 0; i < owners; i++) w.take();
  w.fault();
  if (w.misuse()) {
    write_stale(w, block, params.how);
    w.past();
    w.touched(block, w.size(), kOwnerWritten);
  } else {
    w.past();
  }
  w.aftermath();
}

void write_after_remote_reuse(World& w, const Params&) {
  w.populate();
  Byte* const block = w.take();
  Partner other;
  w.give(block);
  other.run(
      [](void* world) {
        for (int i = 0; i < 16; i++) static_cast<World*>(world)->take();
      },
      &w);
  w.fault();
  if (w.misuse()) write_stale(w, block, kWhole);
  w.past();
  if (w.misuse()) w.touched(block, w.size(), kOwnerWritten);
  w.aftermath();
}

void read_before_reuse(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.write_secret(block, w.size());
  w.disregard(block);
  w.give(block);
  if (params.distance == kFlushed) w.flush_class();
  if (params.distance == kChurned) w.churn(64, kMebibyte);
  w.fault();
  if (w.misuse()) {
    const bool seen = params.how == kWhole ? w.holds_secret(block, w.size())
                                           : w.holds_secret(word_of(block, w.size(), params.how), 8);
    w.past();
    if (seen) w.effect(kStaleRead);
  } else {
    w.past();
  }
  w.aftermath();
}

void read_after_reuse(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.churn(static_cast<std::size_t>(params.distance), params.distance > 10000 ? 64 * kMebibyte : kMebibyte);
  const std::size_t owners = w.bulk(static_cast<std::size_t>(params.count));
  for (std::size_t i = 0; i < owners; i++) {
    Byte* const secret = w.take();
    w.write_secret(secret, w.size());
    w.disregard(secret);
  }
  w.fault();
  if (w.misuse()) {
    const bool seen = w.holds_secret(block, w.size());
    w.past();
    if (seen) w.effect(kOwnerRead);
  } else {
    w.past();
  }
  w.aftermath();
}

// A deleted object's virtual function is called after the attacker sprayed blocks of its size.
struct Shape {
  virtual int area() const { return 1; }
  virtual ~Shape() = default;
};

World* g_world = nullptr;

int hijacked(const void*) {
  g_world->effect("a function of the attacker's choice was called");
  return 0;
}

using Function = int (*)(const void*);
const Function kFakeTable[8] = {hijacked, hijacked, hijacked, hijacked, hijacked, hijacked, hijacked, hijacked};

void virtual_call(World& w, const Params& params) {
  g_world = &w;
  w.populate();
  Byte* const memory = w.take(w.size(), Source::kNew);
  w.disregard(memory);
  Shape* const shape = new (memory) Shape;
  if (w.misuse()) {
    w.give(memory, Source::kNew);
    w.churn(static_cast<std::size_t>(params.distance), kMebibyte);
    const std::size_t sprayed = w.bulk(static_cast<std::size_t>(params.count));
    for (std::size_t i = 0; i < sprayed; i++) {
      Byte* const block = w.take();
      if (block == nullptr) continue;
      w.disregard(block);
      poke(block, address_of(kFakeTable));
    }
  }
  w.fault();
  const int area = opaque(shape)->area();
  w.past();
  if (w.misuse() && area == 1) w.effect("the freed object still answered");
  if (!w.misuse()) w.give(memory, Source::kNew);
  w.aftermath();
}

constexpr char kTooLong[] =
    "after so long a bounded quarantine has let the address go: seeing it takes a page per block or memory tagging";

const Case kCases[] = {
    {"write_freed_first_word", kAll, "the freed block's first word", write_before_reuse, {kPlain, kFirstWord}},
    {"write_freed_second_word", kAll, "the freed block's second word", write_before_reuse, {kPlain, kSecondWord}},
    {"write_freed_middle", kAll, "a word in the middle of the freed block", write_before_reuse, {kPlain, kMiddle}},
    {"write_freed_last_word", kAll, "the freed block's last word", write_before_reuse, {kPlain, kLastWord}},
    {"write_freed_whole", kAll, "the whole freed block", write_before_reuse, {kPlain, kWhole}},
    {"write_freed_one_bit", kAll, "one random bit of the freed block", write_before_reuse, {kPlain, kOneBit}},
    {"write_freed_flushed", kAll, "after the block left the thread's cache", write_before_reuse, {kFlushed, kWhole}},
    {"write_freed_trimmed", kAll, "after malloc_trim", write_before_reuse, {kTrimmed, kFirstWord}},
    {"write_freed_churned", kAll, "after 64 pairs of the size", write_before_reuse, {kChurned, kWhole}},
    {"write_freed_by_exited_thread",
     kAll,
     "freed by a thread that ended",
     write_before_reuse,
     {kThreadExited, kFirstWord}},
    {"write_freed_pending_remote",
     kAll,
     "another thread's block, freed here",
     write_before_reuse,
     {kPendingRemote, kFirstWord}},
    {"write_reused_1", kAll, "one malloc later", write_after_reuse, {0, kWhole, 1}},
    {"write_reused_word", kAll, "one malloc later, only the middle word", write_after_reuse, {0, kMiddle, 1}},
    {"write_reused_16", kAll, "16 mallocs later", write_after_reuse, {0, kWhole, 16}},
    {"write_reused_64", kAll, "64 mallocs later", write_after_reuse, {0, kWhole, 64}},
    {"write_reused_churned", kAll, "64 pairs and 64 mallocs later", write_after_reuse, {64, kWhole, 64}},
    {"write_reused_long",
     kSlab,
     "262,144 pairs (at most 64 MiB) and 1024 mallocs later",
     write_after_reuse,
     {262144, kWhole, 1024},
     kSlab,
     kTooLong},
    {"write_reused_by_thread", kAll, "another thread allocates 16 blocks meanwhile", write_after_remote_reuse},
    {"read_freed_first_word", kAll, "the freed block's first word", read_before_reuse, {kPlain, kFirstWord}},
    {"read_freed_middle", kAll, "a word in the middle of the freed block", read_before_reuse, {kPlain, kMiddle}},
    {"read_freed_last_word", kAll, "the freed block's last word", read_before_reuse, {kPlain, kLastWord}},
    {"read_freed_whole", kAll, "the whole freed block", read_before_reuse, {kPlain, kWhole}},
    {"read_freed_flushed", kAll, "after the block left the thread's cache", read_before_reuse, {kFlushed, kWhole}},
    {"read_freed_churned", kAll, "after 64 pairs of the size", read_before_reuse, {kChurned, kWhole}},
    {"read_reused_1", kAll, "one malloc later", read_after_reuse, {0, 0, 1}},
    {"read_reused_16", kAll, "16 mallocs later", read_after_reuse, {0, 0, 16}},
    {"read_reused_churned", kAll, "64 pairs and 64 mallocs later", read_after_reuse, {64, 0, 64}},
    {"read_reused_long",
     kSlab,
     "262,144 pairs (at most 64 MiB) and 1024 mallocs later",
     read_after_reuse,
     {262144, 0, 1024},
     kSlab,
     kTooLong},
    {"virtual_call_freed", kAll, "a deleted object's virtual function", virtual_call},
    {"virtual_call_reused", kAll, "after one block with a false table", virtual_call, {0, 0, 1}},
    {"virtual_call_sprayed", kAll, "after 64 pairs and 64 blocks with a false table", virtual_call, {64, 0, 64}},
};

}  // namespace

const Family kUseAfterFree = {"use-after-free",
                              "no new owner's data and no freed secret is read or written, and no metadata is misled",
                              kCases, sizeof kCases / sizeof kCases[0]};

}  // namespace attack
