// Room 10, hardened: see walk.h.

#include "hardened/walk.h"

#include <dlfcn.h>

#include "cache/lifetime.h"
#include "config/heuristics.h"
#include "config/options.h"
#include "hardened/large.h"
#include "hardened/paths.h"
#include "platform/child.h"
#include "platform/file.h"
#include "slab/holding.h"
#include "span/free_memory.h"
#include "span/run.h"
#include "span/run_store.h"
#include "span/span_heap.h"

namespace freestone::hardened {

namespace {

// What is wrong with a block of a slab at this instant; null: nothing.
const char* fault_of(SizeClass size_class, char* block, usize block_bytes) {
  const char* const trailer = trailer_of(block, block_bytes);
  const u64 word = load_trailer(trailer);
  if (is_changing(block, trailer)) return nullptr;
  if (word == 0 && !may_end_in_zero(size_class, block)) return "heap overflow";
  const bool says_free = (word & low_mask(8)) == kFreeState;
  if (word == 0 || (says_free && word == free_word(block))) {
    const bool is_whole = is_clear(block, block_bytes - kChunkBytes) && load_word(trailer - sizeof(u64)) == 0;
    return !kMitigations.zero_on_free || is_whole ? nullptr : "write after free";
  }
  const usize bytes = claim_of(word).bytes;
  const usize gap = block_bytes - kTrailerBytes - bytes;  // beyond block_bytes: the word is no trailer
  Chunk wrong;
  const bool whole = short_gap_damage(block + block_bytes, gap, wrong)
                         ? is_zero(wrong)
                         : gap < block_bytes && long_gap_is_whole(block + bytes, block + block_bytes);
  return whole && is_trailer(block, word) ? nullptr : "heap overflow";
}

// Another thread may be changing the block: what stays wrong for so many looks is damage (WORDS-1).
const char* lasting_fault_of(SizeClass size_class, char* block, usize block_bytes) {
  const char* fault = fault_of(size_class, block, block_bytes);
  for (int looks = 0; fault != nullptr && looks < 100; ++looks) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);  // each look must load again
    fault = fault_of(size_class, block, block_bytes);
  }
  return fault;
}

// Another thread was cut short by a fork, in this process or in an ancestor.
bool others_were_cut_short = false;
bool forks_alone = false;

// libc's count of its threads, which it keeps for debuggers: a sandbox may end the program for a look at /proc. Null
// where libc has none.
constexpr const unsigned*& libc_threads = sealed_page.libc_threads;
__attribute__((constructor(101))) void find_thread_count() {
  if constexpr (kChecksEveryCall) libc_threads = static_cast<const unsigned*>(dlsym(RTLD_DEFAULT, "__nptl_nthreads"));
}

// There is no other thread, with a cache or without.
bool is_only_thread() {
  return cache_count() <= 1 && libc_threads != nullptr && __atomic_load_n(libc_threads, __ATOMIC_RELAXED) == 1;
}

// Nothing changes during the check, and nothing was left half done.
bool is_alone() {
  settle_child();
  return !others_were_cut_short && is_only_thread();
}

void check_slab(void* checked, UnitIndex first, SizeClass size_class) {
  const ClassInfo& info = class_info(size_class);
  const usize slab_bytes = units_to_bytes(info.units);
  *static_cast<usize*>(checked) += slab_bytes;
  char* const slab = unit_address(first);
  const SlabPages pages = SlabPages::untouched(record_of(first));
  // A block that was never handed out may have no memory: only its bytes beside another block are checked.
  const u64 untouched = info.blocks <= 64 ? record_of(first).zero_blocks.load_relaxed() : 0;
  const auto is_touched = [&](u32 n) {
    return n < info.blocks && (n >= 64 || (untouched & bit(n)) == 0) && !pages.hold(usize{n} * info.bytes, info.bytes);
  };
  // Large parts of a slab are often free and zero: checking these as a whole is faster than block by block.
  u64 words[kSlabWordsMax];
  if constexpr (kMitigations.zero_on_free) load_words(info, record_of(first), words);
  usize clear_until = 0;
  usize next_look = 0;
  for (u32 n = 0; n < info.blocks; ++n) {
    const usize offset = usize{n} * info.bytes;
    char* const block = slab + offset;
    if (offset + info.bytes <= clear_until) continue;
    if (!is_touched(n)) {
      if (n > 0 && is_touched(n - 1)) expect_clear(block, kBesideBytes);
      if (is_touched(n + 1)) expect_clear(block + info.bytes - kBesideBytes, kBesideBytes);
      continue;
    }
    if (kMitigations.zero_on_free && info.bytes < kLookedAtOnceBytes && offset >= next_look) {
      const usize bytes = min_of(min_of(pages.left_of_page(offset), slab_bytes - offset), kLookedAtOnceBytes);
      const u32 last = min_of(block_number(info, offset + bytes - 1), info.blocks - 1);
      const bool is_free = all_set(words, n, last);  // STATE-1
      if (is_free) next_look = offset + bytes;
      if (is_free && is_clear(block, bytes)) clear_until = next_look;
      if (offset + info.bytes <= clear_until) continue;
    }
    const char* const fault = lasting_fault_of(size_class, block, info.bytes);
    // The bitmap says whether the block was live if its trailer no longer can.
    if (FREESTONE_UNLIKELY(fault != nullptr))
      misuse(is_block_free(size_class, block) ? "write after free" : fault, block, info.bytes);
  }
}

// Checks live runs; nobody else may free them meanwhile. Returns how many there are.
usize check_live_runs(UnitIndex first, UnitIndex end) {
  usize runs = 0;
  for (UnitIndex unit = first; unit < end; ++unit) {
    Claim claim;
    if (!has_record(unit_address(unit), tag_of(unit)) || large_request(unit_address(unit)) == 0) continue;
    examine_large(unit_address(unit), claim);
    ++runs;
  }
  return runs;
}

// Checks that class runs in this thread's cache are zero.
void check_cached_runs(const Cache& cache) {
  if (cache.counting != nullptr) return;
  for (SizeClass c = kLastSmallClass + 1; c < kClassEnd; ++c) {
    for (void* const* at = cache.base[c]; at != cache.top[c]; ++at) expect_run_clear(*at, class_info(c).bytes);
  }
}

}  // namespace

// The holder of a token clears bits before it writes the words.
FREESTONE_SLOW bool may_end_in_zero(SizeClass size_class, const void* block) {
  return is_block_free(size_class, block) || is_slab_held(size_class, block);
}

void note_fork() { forks_alone = is_only_thread(); }
void note_child(bool handlers_ran) { others_were_cut_short = others_were_cut_short || !handlers_ran || !forks_alone; }

// At exit: `bytes_max` bytes of free spans and as many of slabs, the lowest first, and all blocks above the slabs.
// Else: so many bytes of all together, from where the last call stopped. The last group is checked to its end.
static void check_heap(usize bytes_max, bool at_exit) {
  static Atomic<UnitIndex> next_group;  // relaxed: two threads may well check the same groups
  SlabUser unknown;
  Cache* const cache = ensure_cache();  // the child of a fork finds the token that is held here in the cache
  const bool alone = is_alone();
  const UnitIndex heap_end = region.frontier.load_acquire(), start = region.heap_start / kGroupUnits;
  const UnitIndex groups = (heap_end + kGroupUnits - 1) / kGroupUnits - start;
  UnitIndex next = at_exit ? 0 : next_group.load_relaxed();
  usize spans = 0, slabs = 0, others = 0;
  for (UnitIndex k = 0; k < groups && (at_exit || spans + slabs + others < bytes_max); ++k, ++next) {
    next %= groups;
    const UnitIndex first = max_of((start + next) * kGroupUnits, region.heap_start);
    const UnitIndex end = min_of((start + next + 1) * kGroupUnits, heap_end);
    if (spans < bytes_max) spans += check_free_spans(first, end);
    if (slabs < bytes_max) visit_slabs(cache != nullptr ? cache->user : unknown, alone, first, end, check_slab, &slabs);
    others += (1 + (alone ? check_live_runs(first, end) : 0)) * kWalkLookBytes;
  }
  if (!at_exit) next_group.store_relaxed(next);
  if (cache != nullptr) {
    check_cached_runs(*cache);
    release_held_run(cache->run);
  }
  flush_stored_runs();  // these two check runs as they go back
}

void check_next_part() { check_heap(kTrimCheckBytes, false); }

// Runs after the program's own handlers, which still free.
__attribute__((destructor(101))) static void on_exit() {
  if constexpr (!kChecksEveryCall) return;
  if (mode() != Mode::active || is_struck_at_work(own_cache())) return;
  check_heap(options.exit_check_bytes, true);
}

}  // namespace freestone::hardened
