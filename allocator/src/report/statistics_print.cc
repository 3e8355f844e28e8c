// Room 18, report: prints statistics as text for people, as JSON and as malloc_info's XML.

#include <cstring>
#include <initializer_list>

#include "platform/lock_counts.h"
#include "platform/message.h"
#include "report/statistics.h"

namespace freestone {

constinit const Figure kFigures[kFigureCount] = {
#define FIGURE(name, kind, help) {#name, &Statistics::name, Figure::Kind::kind, help},
#include "report/figures.def"
#undef FIGURE
};

constinit const char* const kSystemCallNames[os::kCallKinds] = {"mmap",   "munmap", "mprotect", "madvise",
                                                                "mremap", "futex",  "other"};

namespace {

class Output {
 public:
  Output(TextSink sink, void* context) : sink_(sink), context_(context) {}

  void put(const Message& message) { sink_(context_, message.data(), message.length()); }
  void text(const char* string) { sink_(context_, string, std::strlen(string)); }

 private:
  TextSink sink_;
  void* context_;
};

Message& padded(Message& line, u64 number, unsigned width) {
  unsigned digits = 1;
  for (u64 n = number; n >= 10; n /= 10) ++digits;
  for (; digits < width; ++digits) line << ' ';
  return line << number;
}

// "= 12345678 (   11.8 MiB)  what"
void sum_line(Output& out, char sign, usize bytes, const char* what) {
  Message line("");
  line << sign << ' ';
  padded(line, bytes, 14) << " (";
  const u64 tenths = u64{bytes} * 10 / kMiB;
  padded(line, tenths / 10, 7) << '.' << tenths % 10 << " MiB)  " << what << '\n';
  out.put(line);
}

struct Column {
  u64 number;
  unsigned width;
};
void row(Output& out, std::initializer_list<Column> columns, const char* name = "") {
  Message line("  ");
  for (const Column& each : columns) padded(line, each.number, each.width);
  if (*name != '\0') line << "  " << name;
  out.put(line << '\n');
}

// Only in a build that counts them.
[[maybe_unused]] void print_locks_text(Output& out) {
  out.text("locks: taken, of these after waiting, held for ns in all\n");
  for (unsigned k = 0; k < kLockNames; ++k) {
    const LockCount& lock = lock_counts[k];
    if (lock.taken.load_relaxed() == 0) continue;
    row(out, {{lock.taken.load_relaxed(), 8}, {lock.waited.load_relaxed(), 12}, {lock.held_ns.load_relaxed(), 16}},
        kLockNameTexts[k]);
  }
}

[[maybe_unused]] void print_locks_json(Output& out) {
  out.text(",\"locks\":{");
  for (unsigned k = 0; k < kLockNames; ++k) {
    const LockCount& lock = lock_counts[k];
    Message line(k == 0 ? "\"" : ",\"");
    out.put(line << kLockNameTexts[k] << "\":{\"taken\":" << lock.taken.load_relaxed() << ",\"waited\":"
                 << lock.waited.load_relaxed() << ",\"held_ns\":" << lock.held_ns.load_relaxed() << '}');
  }
  out.text("}");
}

constexpr char kRule[] = "  -----------------------------\n";

// A name in JSON or in XML. Leaves out the letters that those would escape.
void plain_name(Message& line) {
  char name[32];
  const usize length = os::program_name(name, sizeof name);
  for (usize i = 0; i < length; ++i) {
    if (name[i] > ' ' && name[i] < 0x7f && std::strchr("\"\\<>&'", name[i]) == nullptr) line << name[i];
  }
}

}  // namespace

static void print_statistics_text(const Statistics& s, TextSink sink, void* context) {
  Output out(sink, context);
  Message title("freestone " FREESTONE_VERSION " (" FREESTONE_BUILD "), process ");
  out.put(title << os::process_id() << '\n');
  sum_line(out, ' ', s.live_bytes, "live: handed out and not yet freed");
  sum_line(out, '+', s.thread_cached_bytes, "free, in thread caches");
  sum_line(out, '+', s.run_cached_bytes, "free, in run caches");
  sum_line(out, '+', s.slab_free_bytes, "free, inside slabs");
  sum_line(out, '+', s.dirty_bytes, "free spans with memory (dirty)");
  sum_line(out, '+', s.metadata_bytes, "metadata, accessible");
  out.text(kRule);
  sum_line(out, '=', s.charged_bytes, "charged: what limits are about");
  sum_line(out, '+', s.clean_bytes, "free spans without memory (retained)");
  out.text(kRule);
  sum_line(out, '=', s.committed_bytes + s.mapped_bytes + s.metadata_bytes, "accessible");
  out.text("\n");
  sum_line(out, ' ', s.peak_bytes, "peak of charged");
  if (s.resident_bytes != 0) {
    sum_line(out, ' ', s.resident_bytes, "resident set of the process");
    sum_line(out, ' ', s.peak_resident_bytes, "peak of it");
    sum_line(out, ' ', s.metadata_resident_bytes, "metadata in memory");
  }
  sum_line(out, ' ', s.mapped_bytes, "in own mappings, part of live");
  sum_line(out, ' ', s.unbacked_bytes, "of what is free inside slabs, without memory");
  sum_line(out, ' ', s.purged_bytes, "given back to the kernel so far");
  for (const Figure& figure : kFigures) {
    const bool is_cause = std::strncmp(figure.name, "purged_", 7) == 0 && figure.value != &Statistics::purged_bytes;
    if (is_cause && s.*figure.value > 0) sum_line(out, ' ', s.*figure.value, figure.help);
  }
  sum_line(out, ' ', s.taken_fresh_bytes, "taken for the first time, so that its pages fault");
  sum_line(out, ' ', s.taken_again_bytes, "taken again after it went back, so that they fault again");
  sum_line(out, ' ', s.reserved_bytes, "address space reserved");
  if (s.limit_soft_bytes != 0) sum_line(out, ' ', s.limit_soft_bytes, "soft limit");
  if (s.limit_hard_bytes != 0) sum_line(out, ' ', s.limit_hard_bytes, "hard limit");
  out.text("\n");
  row(out, {{s.live_blocks, 14}}, "live blocks");
  row(out, {{s.threads, 14}}, "threads with a cache");
  if (s.guard_mappings_max != 0) row(out, {{s.guard_mappings, 14}}, "mappings that guards make");
  if (s.guard_mappings_max != 0) row(out, {{s.guard_mappings_max, 14}}, "mappings that guards may make");
  row(out, {{s.fragmentation_permille, 14}}, "per mille of charged that is not live (fragmentation)");
  row(out, {{s.purge_calls, 14}}, "purge calls");
  row(out, {{s.purge_cost_ns / 1000, 14}}, "microseconds that giving back cost");
  row(out, {{s.worked_ms, 14}}, "milliseconds at work or at rest");
  row(out, {{s.reclaims, 14}}, "times all was given back for want of memory");
  row(out, {{s.failed_allocations, 14}}, "failed allocations");
  Message calls("  system calls:");
  for (unsigned k = 0; k < os::kCallKinds; ++k) calls << ' ' << kSystemCallNames[k] << ' ' << u64{s.system_calls[k]};
  out.put(calls << '\n');
  out.text("\nsize classes in use: block bytes, live blocks, cached blocks, live bytes\n");
  for (SizeClass c = 1; c < kSizeEnd; ++c) {
    const ClassStatistics& k = s.classes[c];
    if (k.live_blocks + k.cached_blocks == 0) continue;
    row(out, {{k.block_bytes, 8}, {k.live_blocks, 12}, {k.cached_blocks, 10}, {k.live_blocks * k.block_bytes, 16}});
  }
  out.text("threads: id, cached bytes, capacity, refills and flushes\n");
  for (usize i = 0; i < s.listed_count; ++i) {
    const ThreadStatistics& t = s.listed[i];
    row(out, {{t.thread_id, 8}, {t.cached_bytes, 12}, {t.capacity_bytes, 10}, {t.slow_paths, 16}});
  }
  if constexpr (kCountsLocks) print_locks_text(out);
}

void print_statistics_json(const Statistics& s, TextSink sink, void* context) {
  Output out(sink, context);
  Message head("{\"freestone\":\"" FREESTONE_VERSION "\",\"build\":\"" FREESTONE_BUILD "\",\"pid\":");
  head << os::process_id() << ",\"program\":\"";
  plain_name(head);
  out.put(head << "\",\"time_ms\":" << os::coarse_milliseconds() << ",\"figures\":{");
  const char* comma = "";
  for (const Figure& figure : kFigures) {
    Message line(comma);
    out.put(line << '"' << figure.name << "\":" << u64{s.*figure.value});
    comma = ",";
  }
  out.put(Message(",\"fragmentation\":0.")
          << s.fragmentation_permille / 100 << s.fragmentation_permille / 10 % 10 << s.fragmentation_permille % 10);
  out.text("},\"system_calls\":{");
  comma = "";
  for (unsigned k = 0; k < os::kCallKinds; ++k) {
    Message line(comma);
    out.put(line << '"' << kSystemCallNames[k] << "\":" << u64{s.system_calls[k]});
    comma = ",";
  }
  out.text("},\"classes\":[");
  comma = "";
  for (SizeClass c = 1; c < kSizeEnd; ++c) {
    const ClassStatistics& k = s.classes[c];
    if (k.live_blocks + k.cached_blocks == 0) continue;
    Message line(comma);
    out.put(line << "{\"bytes\":" << u64{k.block_bytes} << ",\"live\":" << u64{k.live_blocks}
                 << ",\"cached\":" << u64{k.cached_blocks} << '}');
    comma = ",";
  }
  out.text("],\"threads\":[");
  comma = "";
  for (usize i = 0; i < s.listed_count; ++i) {
    const ThreadStatistics& t = s.listed[i];
    Message line(comma);
    out.put(line << "{\"id\":" << t.thread_id << ",\"cached_bytes\":" << u64{t.cached_bytes}
                 << ",\"capacity_bytes\":" << t.capacity_bytes << ",\"slow_paths\":" << u64{t.slow_paths} << '}');
    comma = ",";
  }
  out.text("]");
  if constexpr (kCountsLocks) print_locks_json(out);
  out.text("}\n");
}

// By the names and rules of glibc's malloc_info, version 1: a size is one of free blocks, and what is in use follows as
// current - fast - rest + mmap.
static void print_statistics_xml(const Statistics& s, TextSink sink, void* context) {
  Output out(sink, context);
  usize cached = 0;
  usize in_slabs = 0;
  out.text("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n");
  for (SizeClass c = 1; c < kSizeEnd; ++c) {
    const ClassStatistics& k = s.classes[c];
    const usize count = k.cached_blocks + k.free_blocks;
    cached += k.cached_blocks;
    in_slabs += k.free_blocks;
    if (count == 0) continue;
    out.put(Message("<size from=\"") << u64{s.classes[c - 1].block_bytes} + (c > 1 ? 1U : 0U) << "\" to=\""
                                     << u64{k.block_bytes} << "\" total=\"" << u64{count * k.block_bytes}
                                     << "\" count=\"" << u64{count} << "\"/>\n");
  }
  out.text("</sizes>\n");
  const auto total = [&](const char* type, usize count, usize bytes) {
    out.put(Message("<total type=\"") << type << "\" count=\"" << u64{count} << "\" size=\"" << u64{bytes} << "\"/>\n");
  };
  const auto size = [&](const char* element, usize bytes) {
    out.put(Message("<") << element << "\" size=\"" << u64{bytes} << "\"/>\n");
  };
  const auto totals = [&](bool of_all_heaps) {
    total("fast", cached, s.thread_cached_bytes);
    total("rest", in_slabs, s.heap_free_bytes() - s.thread_cached_bytes);
    if (of_all_heaps) total("mmap", s.mapped_blocks, s.mapped_bytes);
    size("system type=\"current", s.heap_bytes());
    size("system type=\"max", max_of(s.peak_bytes, s.heap_bytes()));
    size("aspace type=\"total", s.committed_bytes);
    size("aspace type=\"mprotect", s.committed_bytes);
  };
  totals(false);
  out.text("</heap>\n");
  totals(true);
  out.text("<freestone>\n");
  for (const Figure& figure : kFigures) {
    const bool is_of_process =
        figure.value == &Statistics::resident_bytes || figure.value == &Statistics::peak_resident_bytes;
    if (is_of_process && s.resident_bytes == 0) continue;
    out.put(Message("<figure name=\"") << figure.name << "\" value=\"" << u64{s.*figure.value} << "\"/>\n");
  }
  out.text("</freestone>\n</malloc>\n");
}

void print_statistics(Format format, TextSink sink, void* context) {
  Statistics s;
  collect_statistics(s, ProcessFigures::left_out);
  print_statistics(s, format, sink, context);
}

void print_statistics(const Statistics& s, Format format, TextSink sink, void* context) {
  switch (format) {
    case Format::text: return print_statistics_text(s, sink, context);
    case Format::json: return print_statistics_json(s, sink, context);
    case Format::xml: return print_statistics_xml(s, sink, context);
    case Format::openmetrics:
    case Format::prometheus: return print_statistics_metrics(s, format, sink, context);
  }
}

}  // namespace freestone
