// Room 20, abi: glibc's control functions and the functions of freestone.h.

#include <malloc.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>

#include "abi/locks.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "config/options.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "front/reclaim.h"
#include "limits/limits.h"
#include "platform/file.h"
#include "platform/message.h"
#include "platform/os.h"
#include "platform/seal.h"
#include "report/statistics.h"
#include "report/statistics_report.h"
#include "span/mapping.h"
#include "upkeep/upkeep.h"

using namespace freestone;

namespace {

void write_to_stderr(void*, const char* text, usize length) { os::write_stderr(text, length); }
void write_to_file(void* file, const char* text, usize length) {
  std::fwrite(text, 1, length, static_cast<std::FILE*>(file));
}
void ignore_complaint(const OptionInfo*, const char*, usize, const char*) {}

// Glibc's text, which is what scripts look for.
void print_glibc_lines(const Statistics& s) {
  const auto text = [](const Message& line) { write_to_stderr(nullptr, line.data(), line.length()); };
  const auto figure = [text](const char* name, usize value) {
    Message line(name);
    for (usize least = 1'000'000'000; least > max_of<usize>(value, 1); least /= 10) line << ' ';
    text(line << u64{value} << '\n');
  };
  const MappingCounts mappings = mapping_counts();
  text(Message("Arena 0:\n"));
  figure("system bytes     = ", s.heap_bytes());
  figure("in use bytes     = ", s.heap_live_bytes());
  text(Message("Total (incl. mmap):\n"));
  figure("system bytes     = ", s.heap_bytes() + s.mapped_bytes);
  figure("in use bytes     = ", s.heap_live_bytes() + s.mapped_bytes);
  figure("max mmap regions = ", mappings.most_blocks);
  figure("max mmap bytes   = ", mappings.most_bytes);
}

int trim_if_up(size_t keep_bytes) { return ensure_started() == Mode::active && trim(keep_bytes) ? 1 : 0; }

}  // namespace

extern "C" {

FREESTONE_EXPORT ABI(int, malloc_trim(size_t keep_bytes)) { return trim_if_up(keep_bytes); }

#if defined(__GLIBC__)  // other C libraries have neither the types nor the names
}

template <typename Info, typename Convert>
static Info filled(Convert convert) {
  HeapFigures s;
  collect_figures(s, ProcessFigures::left_out);
  Info info = {};
  info.arena = convert(s.heap_bytes());
  info.ordblks = convert(s.class_free_blocks);
  info.smblks = convert(s.class_cached_blocks);
  info.hblks = convert(s.mapped_blocks);
  info.hblkhd = convert(s.mapped_bytes);
  info.fsmblks = convert(s.thread_cached_bytes);
  info.uordblks = convert(s.heap_live_bytes());
  info.fordblks = convert(s.heap_free_bytes());
  info.keepcost = convert(s.dirty_bytes);
  return info;
}

extern "C" {
FREESTONE_EXPORT ABI(struct mallinfo2, mallinfo2()) {
  return filled<struct mallinfo2>([](usize value) { return value; });
}
// The members are ints: a figure that does not fit is shown as INT_MAX.
FREESTONE_EXPORT ABI(struct mallinfo, mallinfo()) {
  return filled<struct mallinfo>([](usize value) { return static_cast<int>(min_of<usize>(value, INT_MAX)); });
}
#endif

FREESTONE_EXPORT ABI(int, malloc_info(int flags, FILE* file)) {
  if (flags != 0 || file == nullptr) {
    errno = EINVAL;
    return -1;
  }
  print_statistics(Format::xml, write_to_file, file);
  return 0;
}

FREESTONE_EXPORT ABI(void, malloc_stats()) {
  Statistics s;
  collect_statistics(s, ProcessFigures::left_out);
  print_statistics(s, Format::text, write_to_stderr, nullptr);
  print_glibc_lines(s);
}

FREESTONE_EXPORT int freestone_stats_write(int file, enum freestone_format format) {
  constexpr Format kFormats[] = {Format::text, Format::json, Format::xml, Format::openmetrics};
  static_assert(FREESTONE_TEXT == 0 && FREESTONE_JSON == 1 && FREESTONE_XML == 2 && FREESTONE_OPENMETRICS == 3);
  if (static_cast<unsigned>(format) >= sizeof kFormats / sizeof kFormats[0]) return EINVAL;
  return write_statistics(file, kFormats[format]) ? 0 : EIO;
}

FREESTONE_EXPORT int freestone_stats_report() { return write_report(); }

#if defined(__GLIBC__)
// Returns 1 for a parameter of malloc.h with a value in mallopt(3)'s range. It has an effect only where Freestone has a
// counterpart.
FREESTONE_EXPORT ABI(int, mallopt(int parameter, int value)) {
  constexpr int kFastBytesMax = 80 * int{sizeof(usize)} / 4;
  constexpr usize kNoTrim = usize{1} << 40;  // the most that the option takes
  if (ensure_started() != Mode::active) return 0;
  switch (parameter) {
    case M_TRIM_THRESHOLD:
      return set_sealed(options.dirty_bytes, value < 0 ? kNoTrim : static_cast<usize>(value)) ? 1 : 0;
    case M_MMAP_THRESHOLD:
      if (value < 0 || static_cast<usize>(value) > kRunBytesMax) return 0;
      return set_sealed(options.map_bytes, max_of(static_cast<usize>(value), kSharedRunBytesMax)) ? 1 : 0;
    case M_ARENA_MAX:  // 0: the library chooses, as it does anyway
      if (value > 0) set_shard_count(1U << highest_bit(min_of(static_cast<u64>(value), u64{kShardsMax})));
      return 1;
    case M_MXFAST: return value >= 0 && value <= kFastBytesMax ? 1 : 0;
    case M_TOP_PAD:
    case M_MMAP_MAX:
    case M_CHECK_ACTION:
    case M_PERTURB:
    case M_ARENA_TEST:
    case M_NLBLKS:
    case M_GRAIN:
    case M_KEEP: return 1;
    default: return 0;
  }
}
#endif

FREESTONE_EXPORT const char* freestone_version() { return FREESTONE_VERSION; }
FREESTONE_EXPORT int freestone_is_active() { return ensure_started() == Mode::active ? 1 : 0; }
FREESTONE_EXPORT size_t freestone_good_size(size_t bytes) { return good_size(bytes); }
FREESTONE_EXPORT int freestone_trim(size_t keep_bytes) { return trim_if_up(keep_bytes); }

FREESTONE_EXPORT int freestone_get_stats(struct freestone_stats* stats) {
  if (stats == nullptr || stats->version < 1 || stats->version > FREESTONE_STATS_VERSION) return EINVAL;
  const uint32_t version = stats->version;
  Statistics s;
  collect_statistics(s, ProcessFigures::asked);
  usize calls = 0;
  for (const usize kind : s.system_calls) calls += kind;
  // clang-format off
  const struct freestone_stats all = {
      version, static_cast<uint32_t>(s.threads), s.live_bytes, s.live_blocks, s.cached_bytes(), s.slab_free_bytes,
      s.dirty_bytes, s.clean_bytes, s.mapped_bytes, s.metadata_bytes, s.committed_bytes, s.reserved_bytes,
      s.resident_bytes, s.purged_bytes, s.purge_calls, s.thread_cached_bytes, s.run_cached_bytes, s.large_bytes,
      s.heap_object_bytes, s.metadata_resident_bytes, s.charged_bytes, s.peak_bytes, s.peak_resident_bytes,
      s.limit_soft_bytes, s.limit_hard_bytes, s.soft_limit_crossings, s.pressure_reactions, s.reclaims,
      s.failed_allocations, calls};
  // clang-format on
  std::memcpy(stats, &all, version == 1 ? offsetof(struct freestone_stats, thread_cached_bytes) : sizeof all);
  return 0;
}

FREESTONE_EXPORT int freestone_option_get(const char* name, char* value, size_t capacity) {
  ensure_started();
  const OptionInfo* info = find_option(name, std::strlen(name));
  if (info == nullptr) return ENOENT;
  char text[kOptionTextBytes];
  const usize length = option_text(*info, text, sizeof text);
  if (length >= capacity) return ERANGE;
  std::memcpy(value, text, length);
  value[length] = '\0';
  return 0;
}

// EPERM where the seal cannot be opened.
static int set_sealed_option(const OptionInfo& info, const char* value, usize length) {
  const OpenedSeal seal;
  if (!seal.is_open()) return EPERM;
  return set_option(info, value, length, ignore_complaint) ? 0 : EINVAL;
}

FREESTONE_EXPORT int freestone_option_set(const char* name, const char* value) {
  ensure_started();
  const OptionInfo* info = find_option(name, std::strlen(name));
  if (info == nullptr) return ENOENT;
  LockGuard guard(option_lock);
  char before[kOptionTextBytes];
  const usize before_length = option_text(*info, before, sizeof before);
  if (const int error = set_sealed_option(*info, value, std::strlen(value)); error != 0) return error;
  if (mode() != Mode::active) return 0;
  if (info->kind == OptionKind::limit && !apply_limit_options()) {
    set_sealed_option(*info, before, before_length);
    return EINVAL;
  }
  apply_upkeep_options();
  return 0;
}

}  // extern "C"

#if !FREESTONE_PREFIXED && defined(__GLIBC__)
ALSO_EXPORTED("__libc_mallinfo", "mallinfo");  // see malloc.cc
ALSO_EXPORTED("__libc_mallopt", "mallopt");
#endif
