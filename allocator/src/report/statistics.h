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

// What fits a small stack: the calls that show single figures take no more.
struct HeapFigures {
  // Each figure of the table.
#define FIGURE(name, kind, help) usize name;
#include "report/figures.def"
#undef FIGURE
  usize fragmentation_permille;  // the part of charged that is not live
  usize system_calls[os::kCallKinds];
  // Sums over the classes: of cached_blocks, of free_blocks, of the bytes of live blocks in slabs.
  usize class_cached_blocks;
  usize class_free_blocks;
  usize small_bytes;

  usize cached_bytes() const { return thread_cached_bytes + run_cached_bytes; }
  usize heap_free_bytes() const { return cached_bytes() + slab_free_bytes - unbacked_bytes + dirty_bytes; }
  usize heap_live_bytes() const { return live_bytes - mapped_bytes; }
  usize heap_bytes() const { return heap_live_bytes() + heap_free_bytes(); }
  // Of all that is charged, what may have memory.
  usize backed_bytes() const { return heap_bytes() + mapped_bytes + metadata_bytes; }
};
struct Statistics : HeapFigures {
  ClassStatistics classes[kSizeEnd];
  ThreadStatistics listed[kThreadsListed];  // the newest threads
  usize listed_count;
};

// Whether the figures of the process are in it: resident_bytes, peak_resident_bytes and the exact
// metadata_resident_bytes. They are read from /proc/self, which a sandbox may refuse or end the program for. So the
// calls of the C library's interface (mallinfo, malloc_info, malloc_stats) and of jemalloc's leave them out: they make
// no system call.
enum class ProcessFigures { left_out, asked };
void collect_statistics(Statistics& statistics, ProcessFigures process);
// The sums alone, and the figures of each class if there is a place for them, which is zero.
void collect_figures(HeapFigures& figures, ProcessFigures process, ClassStatistics* classes = nullptr);

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
inline constexpr usize kFigureCount = offsetof(HeapFigures, fragmentation_permille) / sizeof(usize);
extern const Figure kFigures[kFigureCount];
extern const char* const kSystemCallNames[os::kCallKinds];

// Receives finished pieces of text.
using TextSink = void (*)(void* context, const char* text, usize length);
enum class Format : u8 { text, json, xml, openmetrics, prometheus };
// Prints the statistics as they are now, without the figures of the process, or those in `statistics`.
void print_statistics(Format format, TextSink sink, void* context);
void print_statistics(const Statistics& statistics, Format format, TextSink sink, void* context);
void print_statistics_json(const Statistics& statistics, TextSink sink, void* context);
// Prints one of the two formats for metrics; in openmetrics.cc.
void print_statistics_metrics(const Statistics& statistics, Format format, TextSink sink, void* context);

}  // namespace freestone
