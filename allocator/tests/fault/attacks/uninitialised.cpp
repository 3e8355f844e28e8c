// Uninitialised reuse: a new block shows a previous owner's secret. In a twin the previous owner wiped it.
#include <malloc.h>
#include <stdlib.h>

#include "harness.h"

namespace attack {
namespace {

constexpr char kSeen[] = "a previous owner's secret stands in a new block";

void free_it(void* block) { ::free(opaque(block)); }

// A previous owner frees `count` blocks that held the secret.
void leave_secrets(World& w, std::size_t count, bool by_thread = false) {
  Byte* blocks[256];
  for (std::size_t i = 0; i < count; i++) {
    blocks[i] = w.take();
    w.disregard(blocks[i]);
    if (w.misuse()) w.write_secret(blocks[i], w.size());
  }
  for (std::size_t i = 0; i < count; i++) {
    if (by_thread) {
      w.forget(blocks[i]);
      in_thread(free_it, blocks[i]);
    } else {
      w.give(blocks[i]);
    }
  }
}

void look(World& w, void* block, std::size_t bytes) {
  if (block == nullptr) w.refused("an allocation");
  if (w.holds_secret(static_cast<Byte*>(opaque(block)), bytes)) w.effect(kSeen);
}

enum Then { kNothing, kFlushed, kTrimmed };

// `how`: which call hands out the new blocks; `distance`: what happens between.
void reuse(World& w, const Params& params) {
  const Source source = static_cast<Source>(params.how);
  const std::size_t owners = w.bulk(16);
  w.populate();
  leave_secrets(w, owners);
  if (params.distance != kNothing) w.flush_class();
  if (params.distance == kTrimmed) ::malloc_trim(0);
  w.fault();
  static void* fresh[8192];
  const std::size_t count = w.bulk(static_cast<std::size_t>(params.count));
  for (std::size_t i = 0; i < count; i++) {
    fresh[i] = allocate(w.size(), source);
    look(w, fresh[i], w.size());
  }
  w.past();
  for (std::size_t i = 0; i < count; i++) release(fresh[i], source);
  w.aftermath();
}

// The secret was written by blocks of the case's size; the new blocks have another one.
void other_size(World& w, const Params& params) {
  w.populate();
  leave_secrets(w, w.bulk(64));
  if (params.how != 0) w.flush_class();
  if (params.how != 0) ::malloc_trim(0);
  const std::size_t bytes = params.how != 0 ? w.size() * 3 + 16 : w.size() > 32 ? w.size() - 16 : w.size() + 16;
  w.fault();
  void* fresh[64];
  const std::size_t count = w.bulk(64);
  for (std::size_t i = 0; i < count; i++) {
    fresh[i] = ::malloc(bytes);
    look(w, fresh[i], bytes);
  }
  w.past();
  for (std::size_t i = 0; i < count; i++) ::free(fresh[i]);
  w.aftermath();
}

// The part that realloc adds.
void grown(World& w, const Params&) {
  w.populate();
  leave_secrets(w, w.bulk(32));
  w.fault();
  for (std::size_t i = 0; i < w.bulk(16); i++) {
    void* const block = ::realloc(opaque(::malloc(w.size() / 2)), w.size());
    look(w, static_cast<Byte*>(block) + w.size() / 2, w.size() - w.size() / 2);
    ::free(block);
  }
  w.past();
  w.aftermath();
}

// What malloc_usable_size offers beyond the request.
void slack(World& w, const Params&) {
  w.populate();
  leave_secrets(w, w.bulk(32));
  w.fault();
  const std::size_t bytes = w.size() - w.random().below(8) - 7;
  for (std::size_t i = 0; i < w.bulk(16); i++) {
    Byte* const block = static_cast<Byte*>(::malloc(bytes));
    const std::size_t usable = ::malloc_usable_size(block);
    if (usable > bytes) look(w, block + bytes, usable - bytes);
  }
  w.past();
  w.aftermath();
}

void from_thread(World& w, const Params& params) {
  w.populate();
  leave_secrets(w, w.bulk(8), params.how == 0);
  w.fault();
  auto fetch = [](void* argument) {
    World& world = *static_cast<World*>(argument);
    for (std::size_t i = 0; i < world.bulk(32); i++) look(world, ::malloc(world.size()), world.size());
  };
  if (params.how == 0) {
    fetch(&w);
  } else {
    in_thread(fetch, &w);
  }
  w.past();
  w.aftermath();
}

const Case kCases[] = {
    {"uninitialised_malloc_1",
     kAll,
     "one malloc after the owner's free",
     reuse,
     {kNothing, static_cast<int>(Source::kMalloc), 1}},
    {"uninitialised_malloc_64",
     kAll,
     "64 mallocs after the owner's free",
     reuse,
     {kNothing, static_cast<int>(Source::kMalloc), 64}},
    {"uninitialised_flushed",
     kAll,
     "after the blocks left the thread's cache",
     reuse,
     {kFlushed, static_cast<int>(Source::kMalloc), 4608}},
    {"uninitialised_trimmed", kAll, "after malloc_trim", reuse, {kTrimmed, static_cast<int>(Source::kMalloc), 4608}},
    {"uninitialised_calloc",
     kAll,
     "calloc must clear what was used",
     reuse,
     {kNothing, static_cast<int>(Source::kCalloc), 64}},
    {"uninitialised_aligned", kAll, "memalign(64)", reuse, {kNothing, static_cast<int>(Source::kAligned), 64}},
    {"uninitialised_page_aligned",
     kAll,
     "memalign(4096)",
     reuse,
     {kFlushed, static_cast<int>(Source::kPageAligned), 32}},
    {"uninitialised_new", kAll, "operator new", reuse, {kNothing, static_cast<int>(Source::kNew), 64}},
    {"uninitialised_new_array", kAll, "operator new[]", reuse, {kNothing, static_cast<int>(Source::kNewArray), 64}},
    {"uninitialised_neighbour_size", kAll, "a malloc of 16 bytes less", other_size},
    {"uninitialised_other_size", kAll, "a malloc of three times the size, after a trim", other_size, {0, 1}},
    {"uninitialised_realloc", kAll, "the part that realloc adds", grown},
    {"uninitialised_slack", kAll, "the usable bytes beyond the request", slack},
    {"uninitialised_freed_by_thread", kAll, "the owner was freed by a thread that ended", from_thread},
    {"uninitialised_other_thread", kAll, "another thread gets the block", from_thread, {0, 1}},
};

}  // namespace

const Family kUninitialised = {"uninitialised", "no byte of a previous owner's data is visible in a new block", kCases,
                               sizeof kCases / sizeof kCases[0]};

}  // namespace attack
