// Room 18, report: the heap's figures, counted on request.
//
// The fast paths count nothing. Refill and flush count the blocks outside the slabs, the caches' pointers give the
// blocks in caches, and the span room's counters the spans. A call makes one pass over the classes and caches.
//
// STAT-1  live + thread_cached + run_cached + slab_free + dirty + clean = committed + mapped. slab_free is the rest,
//         which includes the tails of slabs, the rounding of blocks to whole units, and the addresses of charged spans
//         without memory (unbacked).
// STAT-2  charged = committed + mapped + metadata - clean.
// STAT-3  heap = live - mapped + heap_free = committed - clean - unbacked. Free memory of the heap may be resident.
//         glibc's and jemalloc's interfaces show these figures.
//
// While other threads run, the figures of one call may belong to slightly different instants; at rest they are exact.
// They are never negative.
#pragma once

#include "config/size_class.h"
#include "platform/os.h"

namespace freestone {

struct ClassStatistics {
  usize block_bytes;
  usize live_blocks;
  usize cached_blocks;
  usize free_blocks;  // in slabs, on pages with memory
  usize slabs;
};

struct ThreadStatistics {
  u32 thread_id;
  u32 capacity_bytes;  // what its cache may hold now
  usize cached_bytes;
  usize slow_paths;    // refills and flushes
};
inline constexpr usize kThreadsListed = 64;

struct Statistics {
  usize live_bytes;           // handed out, counted by block size
  usize live_blocks;
  usize thread_cached_bytes;
  usize run_cached_bytes;
  usize slab_free_bytes;
  usize unbacked_bytes;       // part of slab_free: empty pages of slabs, guards, guarded blocks that were freed
  usize dirty_bytes;          // free spans with memory behind them
  usize clean_bytes;          // free spans without
  usize large_bytes;          // runs above the size classes, part of live
  usize large_blocks;
  usize mapped_bytes;         // own mappings, part of live
  usize mapped_blocks;
  usize heap_object_bytes;    // spans of heap objects; their live blocks are part of live
  usize heap_objects;
  usize metadata_bytes;       // accessible for the allocator's own records
  usize metadata_resident_bytes;  // process figures left out: all of it
  usize committed_bytes;      // accessible heap, own mappings excluded
  usize charged_bytes;        // what limits are about
  usize peak_bytes;           // the highest charged so far
  usize reserved_bytes;       // address space
  usize resident_bytes;       // of the process; 0: not known, as the next
  usize peak_resident_bytes;
  usize purged_bytes;         // given back to the kernel since the start
  usize purge_calls;
  usize purged_surplus_bytes;   // the same by cause
  usize purged_decay_bytes;
  usize purged_slabs_bytes;
  usize purged_trim_bytes;
  usize purged_shortage_bytes;
  usize purged_hardening_bytes;
  usize unmapped_bytes;
  usize taken_fresh_bytes;    // memory that was taken without memory behind it
  usize taken_again_bytes;
  usize populated_bytes;
  usize mapped_total_bytes;
  usize limit_soft_bytes;     // 0: none
  usize limit_hard_bytes;
  usize soft_limit_crossings;
  usize reclaims;             // times everything was given back because an allocation found no memory
  usize failed_allocations;
  usize pressure_reactions;
  usize guard_mappings;       // that guards make where the kernel has no guard regions
  usize guard_mappings_max;   // 0: guards are no mappings, or there are none
  usize threads;              // with a cache
  usize fragmentation_permille;  // the part of charged that is not live
  usize system_calls[os::kCallKinds];
  ClassStatistics classes[kClassEnd];
  ThreadStatistics listed[kThreadsListed];  // the newest threads
  usize listed_count;

  usize cached_bytes() const { return thread_cached_bytes + run_cached_bytes; }
  usize heap_free_bytes() const { return cached_bytes() + slab_free_bytes - unbacked_bytes + dirty_bytes; }
  usize heap_live_bytes() const { return live_bytes - mapped_bytes; }
  usize heap_bytes() const { return heap_live_bytes() + heap_free_bytes(); }
  // Of all that is charged, what may have memory.
  usize backed_bytes() const { return heap_bytes() + mapped_bytes + metadata_bytes; }
};

// Whether the figures of the process are in it: resident_bytes, peak_resident_bytes and the exact
// metadata_resident_bytes. They are read from /proc/self, which a sandbox may refuse or end the program for. So the
// calls of the C library's interface (mallinfo, malloc_info, malloc_stats) and of jemalloc's leave them out: they make
// no system call.
enum class ProcessFigures { left_out, asked };
void collect_statistics(Statistics& statistics, ProcessFigures process);

// True if every lock that collecting takes is free, or soon becomes free. Then a signal handler may collect.
bool may_collect_here();

// One figure that every format shows.
struct Figure {
  enum class Kind : u8 { gauge, counter };
  const char* name;
  usize Statistics::* value;
  Kind kind;
  const char* help;
};
inline constexpr usize kFigureCount = 44;
extern const Figure kFigures[kFigureCount];
extern const char* const kSystemCallNames[os::kCallKinds];

// Receives finished pieces of text.
using TextSink = void (*)(void* context, const char* text, usize length);
enum class Format : u8 { text, json, xml, openmetrics, prometheus };
// Prints the statistics as they are now, without the figures of the process, or those in `statistics`.
void print_statistics(Format format, TextSink sink, void* context);
void print_statistics(const Statistics& statistics, Format format, TextSink sink, void* context);
void print_statistics_text(const Statistics& statistics, TextSink sink, void* context);
void print_statistics_json(const Statistics& statistics, TextSink sink, void* context);
void print_statistics_xml(const Statistics& statistics, TextSink sink, void* context);
// Prints one of the two formats for metrics; in openmetrics.cc.
void print_statistics_metrics(const Statistics& statistics, Format format, TextSink sink, void* context);

}  // namespace freestone
