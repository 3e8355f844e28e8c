// Predictability: can an attacker tell where the next block will be? Each case predicts a number of addresses; it
// succeeds when more than half come true. A twin does the same and predicts nothing.
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

namespace attack {
namespace {

constexpr int kTrials = 16;

void conclude(World& w, int right, const char* what) {
  w.past();
  if (w.misuse() && right > kTrials / 2) w.effect(what);
  w.aftermath();
}

// The address just freed comes back.
void reused_at_once(World& w, const Params& params) {
  w.populate();
  int right = 0;
  w.fault();
  for (int i = 0; i < kTrials; i++) {
    Byte* const freed = w.take();
    if (freed == nullptr) continue;
    w.give(freed);
    Byte* const next = w.take(w.size() - static_cast<std::size_t>(params.distance));
    right += next == freed;
  }
  conclude(w, right, "the address just freed came back");
}

// Freed blocks come back in the reverse order (how 0) or in the same order (how 1).
void order_of_reuse(World& w, const Params& params) {
  w.populate();
  Byte* freed[kTrials];
  int right = 0;
  for (Byte*& block : freed) block = w.take();
  for (Byte* const block : freed) w.give(block);
  w.fault();
  for (int i = 0; i < kTrials; i++) right += w.take() == freed[params.how == 0 ? kTrials - 1 - i : i];
  conclude(w, right, "freed blocks came back in a known order");
}

// Each new block lies at the same distance from the one before as that one from its own.
void constant_stride(World& w, const Params&) {
  int right = 0;
  w.fault();
  Byte* before = w.take();
  Byte* last = w.take();
  for (int i = 0; i < kTrials; i++) {
    Byte* const next = w.take();
    right += next != nullptr && next - last == last - before;
    before = last;
    last = next;
  }
  conclude(w, right, "new blocks lie at a constant distance");
}

// A block allocated right after another one is its upper neighbour: what an overflow wants.
void adjacent(World& w, const Params&) {
  int right = 0;
  w.fault();
  for (int i = 0; i < kTrials; i++) {
    Byte* const victim = w.take();
    Byte* const next = w.take();
    right +=
        address_of(next) > address_of(victim) && address_of(next) - address_of(victim) <= w.size() + w.size() / 4 + 64;
  }
  conclude(w, right, "the next block is the upper neighbour");
}

struct Place {
  std::uintptr_t block;
  std::uintptr_t library;
};

// Runs this program once more and reads where its first block of the size and the C library are.
bool place_in_fresh_process(std::size_t size, Place& place) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  char bytes[24];
  std::size_t length = sizeof bytes - 1;
  bytes[length] = '\0';
  for (std::size_t left = size; left != 0; left /= 10) bytes[--length] = static_cast<char>('0' + left % 10);
  char name[] = "/proc/self/exe";
  char word[] = "place";
  char* const arguments[] = {name, word, bytes + length, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  pid_t child = 0;
  const bool started = ::posix_spawn(&child, name, &actions, nullptr, arguments, environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const bool read = started && ::read(ends[0], &place, sizeof place) == sizeof place;
  ::close(ends[0]);
  int status = 0;
  if (started) ::waitpid(child, &status, 0);
  return read;
}

// `how` 0: the address itself; 1: its distance from the C library; 2: its place in the page, in 16 KiB.
void across_processes(World& w, const Params& params) {
  constexpr int kProcesses = 4;
  Place places[kProcesses];
  w.populate();
  w.fault();
  for (Place& place : places)
    if (!place_in_fresh_process(w.size(), place)) w.refused("a fresh process");
  w.past();
  int same = 0;
  for (int i = 1; i < kProcesses; i++) {
    const Place& a = places[0];
    const Place& b = places[i];
    same += params.how == 0   ? a.block == b.block
            : params.how == 1 ? a.block - a.library == b.block - b.library
                              : (a.block & 0x3fff) == (b.block & 0x3fff);
  }
  if (w.misuse() && same == kProcesses - 1) w.effect("four fresh processes agree on the place of a block");
  w.aftermath();
}

const Case kCases[] = {
    {"predict_reuse", kAll, "the address just freed", reused_at_once},
    {"predict_reuse_smaller", kAll, "the address just freed, for 8 bytes less", reused_at_once, {8}},
    {"predict_reverse_order", kAll, "16 freed blocks in reverse order", order_of_reuse},
    {"predict_same_order", kAll, "16 freed blocks in their order", order_of_reuse, {0, 1}},
    {"predict_stride", kAll, "the distance between new blocks", constant_stride},
    {"predict_adjacent", kSlab, "the next block is the neighbour", adjacent},
    {"predict_address", kAll, "the address of a block in a fresh process", across_processes},
    {"predict_distance_to_libc",
     kAll,
     "the distance of a block from the C library in a fresh process",
     across_processes,
     {0, 1}},
    {"predict_place_in_slab",
     kSlab,
     "the low 14 bits of a block's address in a fresh process",
     across_processes,
     {0, 2}},
};

}  // namespace

const Family kPredictability = {"predictability", "no more than half of the predictions come true", kCases,
                                sizeof kCases / sizeof kCases[0]};

}  // namespace attack
