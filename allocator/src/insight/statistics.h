// Room 10, insight: what the heap holds, counted when asked.
//
// Nothing is counted on the fast paths: blocks outside the slabs are counted at refill and flush, blocks in caches are read from
// the caches' pointers. While other threads run the figures of one call may belong to slightly different instants; at
// rest they are exact, and they are never negative.
#pragma once

#include "slab/size_class.h"

namespace freestone {

struct ClassStatistics {
  usize block_bytes;
  usize live_blocks;
  usize cached_blocks;
};

struct Statistics {
  usize live_bytes;       // handed out, counted by block size
  usize live_blocks;
  usize cached_bytes;     // in thread caches
  usize slab_free_bytes;  // free blocks inside slabs
  usize dirty_bytes;      // free spans with memory
  usize clean_bytes;      // free spans without memory
  usize mapped_bytes;     // own mappings, part of live_bytes
  usize mapped_blocks;
  usize large_bytes;      // runs above the size classes, part of live_bytes
  usize large_blocks;
  usize metadata_bytes;   // accessible for the allocator's own records
  usize committed_bytes;  // accessible heap
  usize reserved_bytes;
  usize resident_bytes;   // of the process
  usize threads;          // with a cache
  u64 purged_bytes;
  u64 purge_calls;
  ClassStatistics classes[kClassEnd];
};

void collect_statistics(Statistics& statistics);

// Receives finished pieces of text.
using TextSink = void (*)(void* context, const char* text, usize length);
void print_statistics_text(TextSink sink, void* context);
void print_statistics_xml(TextSink sink, void* context);

}  // namespace freestone
