// Double free: the same block is given back twice. In a twin the second free is left out.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include <new>

#include "harness.h"

namespace attack {
namespace {

void free_it(void* block) { ::free(opaque(block)); }

void second_free(World& w, void* block, Source source = Source::kMalloc) {
  w.fault();
  if (w.misuse()) release(block, source);
  w.past();
  w.aftermath();
}

void plain(World& w, const Params& params) {
  w.populate();
  const Source source = static_cast<Source>(params.how);
  Byte* const block = w.take(w.size(), source);
  w.give(block, source);
  second_free(w, block, source);
}

void interleaved(World& w, const Params& params) {
  w.populate();
  Byte* const a = w.take();
  Byte* others[64];
  for (long i = 0; i < params.count; i++) others[i] = w.take();
  w.give(a);
  for (long i = 0; i < params.count; i++) w.give(others[i]);
  second_free(w, a);
}

// Fills the allocator's cache of this size first, so that the pair a, b, a lands behind it.
void behind_full_cache(World& w, const Params& params) {
  w.populate();
  Byte* fillers[64];
  const long count = w.size_class() == kLarge ? 8 : params.count;
  for (long i = 0; i < count; i++) fillers[i] = w.take();
  Byte* const a = w.take();
  Byte* const b = w.take();
  for (long i = 0; i < count; i++) w.give(fillers[i]);
  w.give(a);
  w.give(b);
  second_free(w, a);
}

void delayed(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.churn(static_cast<std::size_t>(params.count), 16 * kMebibyte,
          params.distance != 0 ? static_cast<std::size_t>(params.distance) : w.size());
  second_free(w, block);
}

// The block may have a new owner when the stale pointer is freed: that owner must not lose it.
void stale(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.churn(static_cast<std::size_t>(params.distance), kMebibyte);
  const std::size_t holders = w.bulk(static_cast<std::size_t>(params.count));
  for (std::size_t i = 0; i < holders; i++) w.take();
  second_free(w, block);
}

void after_flush(World& w, const Params&) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.flush_class();
  second_free(w, block);
}

void after_trim(World& w, const Params&) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.flush_class();
  ::malloc_trim(0);
  second_free(w, block);
}

// The whole class is empty, and its memory may belong to another class by now.
void after_slab_left(World& w, const Params& params) {
  Byte* blocks[512];
  const std::size_t count = w.bulk(512);
  for (std::size_t i = 0; i < count; i++) blocks[i] = w.take();
  Byte* const block = blocks[w.random().below(count)];
  for (std::size_t i = 0; i < count; i++) w.give(blocks[i]);
  ::malloc_trim(0);
  if (params.how != 0)
    for (std::size_t i = 0; i < 64; i++) w.take(w.size() * 3 / 2 + 48);
  second_free(w, block);
}

void cycle(World& w, const Params&) {
  w.populate();
  Byte* const a = w.take();
  Byte* const b = w.take();
  w.give(a);
  w.give(b);
  w.fault();
  if (w.misuse())
    for (int i = 0; i < 8; i++) {
      free_it(a);
      free_it(b);
    }
  w.past();
  w.aftermath();
}

void all_again(World& w, const Params&) {
  Byte* blocks[256];
  const std::size_t count = w.bulk(256);
  for (std::size_t i = 0; i < count; i++) blocks[i] = w.take();
  for (std::size_t i = 0; i < count; i++) w.give(blocks[i]);
  w.fault();
  if (w.misuse())
    for (std::size_t i = count; i-- > 0;) free_it(blocks[i]);
  w.past();
  w.aftermath();
}

// An attacker who can write to the freed block wipes whatever mark the first free left in it.
void mark_wiped(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  w.give(block);
  w.fault();
  if (w.misuse()) {
    if (params.how == 0) {
      poke(block + 8, 0x4141414141414141ULL);
    } else {
      for (std::size_t i = 0; i + 8 <= w.size() && i < 64; i += 8) poke(block + i, 0);
    }
    free_it(block);
  }
  w.past();
  w.aftermath();
}

// ---- threads: `how` says who frees first and who second

enum Order { kLocalRemote, kRemoteLocal, kRemoteRemote, kRemoteTwice, kExitedLocal, kExitedExited };

void across_threads(World& w, const Params& params) {
  w.populate();
  Byte* const block = w.take();
  Partner first;
  Partner second;
  w.forget(block);
  switch (params.how) {
    case kLocalRemote: free_it(block); break;
    case kExitedLocal:
    case kExitedExited: in_thread(free_it, block); break;
    default: first.run(free_it, block); break;
  }
  w.fault();
  if (w.misuse()) {
    switch (params.how) {
      case kRemoteLocal:
      case kExitedLocal: free_it(block); break;
      case kRemoteTwice: first.run(free_it, block); break;
      case kExitedExited: in_thread(free_it, block); break;
      default: second.run(free_it, block); break;
    }
  }
  w.past();
  w.aftermath();
}

// The owner thread allocated it, this thread frees it twice: the free waits in the owner's queue.
void pending_remote(World& w, const Params&) {
  static Byte* block;
  w.populate();
  Partner owner;
  struct Ask {
    World* world;
  } ask{&w};
  owner.run([](void* argument) { block = static_cast<Ask*>(argument)->world->take(); }, &ask);
  w.give(block);
  second_free(w, block);
}

struct Race {
  pthread_barrier_t barrier;
  void* block;
};

void free_at_barrier(void* argument) {
  Race* const race = static_cast<Race*>(argument);
  pthread_barrier_wait(&race->barrier);
  free_it(race->block);
}

void* race_main(void* argument) {
  free_at_barrier(argument);
  return nullptr;
}

void concurrent(World& w, const Params&) {
  w.populate();
  Byte* const block = w.take();
  w.forget(block);
  Race race{};
  race.block = block;
  pthread_barrier_init(&race.barrier, nullptr, w.misuse() ? 2 : 1);
  w.fault();
  pthread_t thread;
  if (w.misuse() && pthread_create(&thread, nullptr, race_main, &race) != 0) w.refused("a thread");
  free_at_barrier(&race);
  if (w.misuse()) pthread_join(thread, nullptr);
  w.past();
  w.aftermath();
}

void sized_twice(World& w, const Params&) {
  w.populate();
  Byte* const block = w.take(w.size(), Source::kNew);
  w.forget(block);
  ::operator delete(opaque(block), w.size());
  w.fault();
  if (w.misuse()) ::operator delete(opaque(block), w.size());
  w.past();
  w.aftermath();
}

const Case kCases[] = {
    {"double_free_immediate", kAll, "free(p); free(p)", plain},
    {"double_free_calloc", kAll, "a block of calloc, freed twice", plain, {0, static_cast<int>(Source::kCalloc)}},
    {"double_free_aligned",
     kAll,
     "a block of memalign(64), freed twice",
     plain,
     {0, static_cast<int>(Source::kAligned)}},
    {"double_free_page_aligned",
     kAll,
     "a block of memalign(4096), freed twice",
     plain,
     {0, static_cast<int>(Source::kPageAligned)}},
    {"double_free_realloc", kAll, "a block of realloc, freed twice", plain, {0, static_cast<int>(Source::kRealloc)}},
    {"double_delete", kAll, "operator delete twice", plain, {0, static_cast<int>(Source::kNew)}},
    {"double_delete_array", kAll, "operator delete[] twice", plain, {0, static_cast<int>(Source::kNewArray)}},
    {"double_delete_sized", kAll, "sized operator delete twice", sized_twice},
    {"double_free_interleaved", kAll, "free(a); free(b); free(a)", interleaved, {0, 0, 1}},
    {"double_free_interleaved_16", kAll, "16 other frees between", interleaved, {0, 0, 16}},
    {"double_free_full_cache_7", kAll, "7 frees of the size first, then a, b, a", behind_full_cache, {0, 0, 7}},
    {"double_free_full_cache_64", kAll, "64 frees of the size first, then a, b, a", behind_full_cache, {0, 0, 64}},
    {"double_free_delayed_16", kAll, "16 malloc/free pairs of the size between", delayed, {0, 0, 16}},
    {"double_free_delayed_1024", kAll, "1024 malloc/free pairs of the size between", delayed, {0, 0, 1024}},
    {"double_free_delayed_other_size", kAll, "1024 malloc/free pairs of 700 bytes between", delayed, {700, 0, 1024}},
    {"double_free_stale_1", kAll, "one malloc of the size between: its owner must keep it", stale, {0, 0, 1}},
    {"double_free_stale_64", kAll, "64 mallocs of the size between", stale, {0, 0, 64}},
    {"double_free_stale_churned", kAll, "64 pairs, then 64 mallocs between", stale, {64, 0, 64}},
    {"double_free_stale_long",
     kSlab,
     "20,000 pairs, then 512 mallocs between",
     stale,
     {20000, 0, 512},
     kSlab,
     "after so long the address has honestly been handed out again: to the allocator the stale free is its owner's"},
    {"double_free_after_flush", kAll, "up to 4096 blocks of the size pass through the cache between", after_flush},
    {"double_free_after_trim", kAll, "the cache is flushed and malloc_trim called between", after_trim},
    {"double_free_after_slab_emptied", kAll, "every block of the size is free and trimmed", after_slab_left},
    {"double_free_after_slab_reused", kAll, "its memory may serve another size by now", after_slab_left, {0, 1}},
    {"double_free_cycle", kAll, "a and b freed in turn eight times", cycle},
    {"double_free_all_again", kAll, "up to 256 blocks freed, then all again", all_again},
    {"double_free_key_overwritten", kAll, "the freed block's second word is overwritten before the second free",
     mark_wiped},
    {"double_free_block_wiped", kAll, "the freed block is zeroed before the second free", mark_wiped, {0, 1}},
    {"double_free_local_then_remote", kAll, "this thread frees, then another", across_threads, {0, kLocalRemote}},
    {"double_free_remote_then_local", kAll, "another thread frees, then this one", across_threads, {0, kRemoteLocal}},
    {"double_free_two_remotes", kAll, "two other threads free in turn", across_threads, {0, kRemoteRemote}},
    {"double_free_remote_twice", kAll, "one other thread frees twice", across_threads, {0, kRemoteTwice}},
    {"double_free_after_thread_exit",
     kAll,
     "a thread frees and ends, then this one frees",
     across_threads,
     {0, kExitedLocal}},
    {"double_free_two_exited_threads", kAll, "two threads free and end in turn", across_threads, {0, kExitedExited}},
    {"double_free_pending_remote", kAll, "another thread's block, freed here twice", pending_remote},
    {"double_free_concurrent", kAll, "two threads free at the same moment", concurrent},
};

}  // namespace

const Family kDoubleFree = {"double-free", "no address is handed out twice and no live block changes afterwards",
                            kCases, sizeof kCases / sizeof kCases[0]};

}  // namespace attack
