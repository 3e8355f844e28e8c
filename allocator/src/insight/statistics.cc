// Room 10, insight: see statistics.h.

#include "insight/statistics.h"

#include <cstring>

#include "cache/cache.h"
#include "platform/message.h"
#include "platform/os.h"
#include "region/metadata.h"
#include "span/mapping.h"
#include "span/run.h"
#include "span/span_heap.h"

namespace freestone {

namespace {

usize less(usize total, usize part) { return total > part ? total - part : 0; }

// One line of "name value" in the shape of a table.
class Lines {
 public:
  Lines(TextSink sink, void* context) : sink_(sink), context_(context) {}

  void put(const Message& message) { sink_(context_, message.data(), message.length()); }
  void text(const char* string) { sink_(context_, string, std::strlen(string)); }
  void row(u64 bytes, const char* what) {
    Message line("  ");
    u64 width = 1;
    for (u64 n = bytes; n >= 10; n /= 10) ++width;
    for (; width < 16; ++width) line << ' ';
    put(line << bytes << "  " << what << '\n');
  }

 private:
  TextSink sink_;
  void* context_;
};

}  // namespace

void collect_statistics(Statistics& s) {
  s = {};
  usize cached_blocks[kClassEnd];
  count_cached(cached_blocks);
  usize slab_bytes_outside = 0;
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    ClassStatistics& k = s.classes[c];
    const usize outside = class_blocks_outside(c);
    k.block_bytes = class_info(c).bytes;
    k.cached_blocks = min_of(cached_blocks[c], outside);
    k.live_blocks = outside - k.cached_blocks;
    s.live_blocks += k.live_blocks;
    s.live_bytes += k.live_blocks * k.block_bytes;
    s.cached_bytes += k.cached_blocks * k.block_bytes;
    slab_bytes_outside += outside * (is_slab_class(c) ? k.block_bytes : units_to_bytes(class_info(c).units));
  }
  const MappingCounts mappings = mapping_counts();
  const RunCounts runs = run_counts();
  const SpanCounts spans = span_counts();
  s.mapped_bytes = mappings.bytes;
  s.mapped_blocks = mappings.blocks;
  s.large_bytes = runs.live_bytes;
  s.large_blocks = runs.live_runs;
  s.live_bytes += mappings.bytes + runs.live_bytes;
  s.live_blocks += mappings.blocks + runs.live_runs;
  s.committed_bytes = units_to_bytes(spans.committed_units);
  s.dirty_bytes = spans.backed_bytes;
  s.clean_bytes = less(units_to_bytes(spans.free_units), spans.backed_bytes);
  s.slab_free_bytes = less(less(s.committed_bytes, units_to_bytes(spans.free_units)), slab_bytes_outside + runs.live_bytes + runs.cached_bytes);
  s.cached_bytes += runs.cached_bytes;
  s.metadata_bytes = metadata_committed_bytes() + metadata_mapped_bytes();
  s.reserved_bytes = units_to_bytes(less(region.reserved_end.load_relaxed(), region.heap_start));
  s.resident_bytes = os::resident_bytes();
  s.threads = cache_count();
  s.purged_bytes = spans.purged_bytes;
  s.purge_calls = spans.purge_calls;
}

void print_statistics_text(TextSink sink, void* context) {
  Statistics s;
  collect_statistics(s);
  Lines out(sink, context);
  out.text("freestone " FREESTONE_VERSION " (" FREESTONE_BUILD "): bytes\n");
  out.row(s.live_bytes, "live: handed out and not yet freed");
  out.row(s.cached_bytes, "cached: free, in thread caches");
  out.row(s.slab_free_bytes, "free blocks inside slabs");
  out.row(s.dirty_bytes, "dirty: free spans with memory");
  out.row(s.metadata_bytes, "metadata, accessible");
  out.row(s.committed_bytes + s.mapped_bytes, "heap, accessible (own mappings included)");
  out.row(s.clean_bytes, "clean: free spans without memory");
  out.row(s.mapped_bytes, "in own mappings (part of live)");
  out.row(s.purged_bytes, "given back to the kernel so far");
  out.row(s.resident_bytes, "resident set of the process");
  out.text("counts\n");
  out.row(s.live_blocks, "live blocks");
  out.row(s.threads, "threads with a cache");
  out.row(s.purge_calls, "purge calls");
  out.text("size classes in use: block bytes, live blocks, cached blocks\n");
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    const ClassStatistics& k = s.classes[c];
    if (k.live_blocks + k.cached_blocks == 0) continue;
    out.put(Message("  ") << u64{k.block_bytes} << ' ' << u64{k.live_blocks} << ' ' << u64{k.cached_blocks} << '\n');
  }
}

void print_statistics_xml(TextSink sink, void* context) {
  Statistics s;
  collect_statistics(s);
  Lines out(sink, context);
  out.text("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
  for (SizeClass c = 1; c < kClassEnd; ++c) {
    const ClassStatistics& k = s.classes[c];
    if (k.live_blocks + k.cached_blocks == 0) continue;
    out.put(Message("<size from=\"") << u64{class_bytes(c - 1)} + (c > 1 ? 1U : 0U) << "\" to=\"" << u64{k.block_bytes} << "\" total=\""
                                      << u64{k.live_blocks * k.block_bytes} << "\" count=\"" << u64{k.live_blocks} << "\" cached=\""
                                      << u64{k.cached_blocks} << "\"/>\n");
  }
  out.text("</sizes>\n");
  const auto element = [&](const char* kind, const char* type, usize count, usize bytes) {
    out.put(Message("<") << kind << " type=\"" << type << "\" count=\"" << u64{count} << "\" size=\"" << u64{bytes} << "\"/>\n");
  };
  element("total", "live", s.live_blocks, s.live_bytes);
  element("total", "cached", 0, s.cached_bytes);
  element("total", "slab-free", 0, s.slab_free_bytes);
  element("total", "dirty", 0, s.dirty_bytes);
  element("total", "mmap", s.mapped_blocks, s.mapped_bytes);
  element("system", "current", s.threads, s.committed_bytes + s.mapped_bytes);
  element("system", "metadata", 0, s.metadata_bytes);
  element("system", "resident", 0, s.resident_bytes);
  out.text("</heap>\n</malloc>\n");
}

}  // namespace freestone
