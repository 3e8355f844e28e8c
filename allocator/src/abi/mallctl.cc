// Room 19, abi: the part of jemalloc's control interface that programs use, answered from Freestone's own figures.
//
// One table of names; "#" stands for a number. There is one arena, number 0; 4096 means all of them, as in jemalloc. stats.* shows a snapshot
// that a write to "epoch" renews. Names that have no counterpart here answer ENOENT, as jemalloc does for what it does not know.

#include <cerrno>
#include <cstring>

#include "abi/locks.h"
#include "abi/names.h"
#include "base/compiler.h"
#include "config/options.h"
#include "freestone/freestone.h"
#include "front/heap.h"
#include "upkeep/background.h"
#include "report/statistics.h"
#include "report/statistics_report.h"
#include "upkeep/upkeep.h"
#include "platform/file.h"
#include "platform/message.h"
#include "platform/os.h"
#include "span/purge.h"

using namespace freestone;

namespace {

using Signed = long;  // jemalloc's ssize_t

constexpr usize kComponents = 5;
constexpr usize kAllArenas = 4096;

// The number of arenas itself is an old name for all of them; Redis uses it.
bool is_arena(usize number) { return number <= 1 || number == kAllArenas; }

// One call: where the old value goes and where the new one comes from; `number` is what stood for "#".
struct Request {
  usize number = 0;
  void* old = nullptr;
  size_t* old_bytes = nullptr;
  const void* fresh = nullptr;
  size_t fresh_bytes = 0;

  // As in jemalloc a wrong length copies what fits and is an error.
  template <typename T>
  int give(T value) const {
    if (old == nullptr || old_bytes == nullptr) return 0;
    const usize copied = min_of(*old_bytes, sizeof value);
    const bool right = *old_bytes == sizeof value;
    std::memcpy(old, &value, copied);
    *old_bytes = copied;
    return right ? 0 : EINVAL;
  }
  template <typename T>
  int read_only(T value) const {
    return fresh != nullptr ? EPERM : give(value);
  }
  template <typename T>
  bool take(T& value) const {
    if (fresh_bytes != sizeof value) return false;
    std::memcpy(&value, fresh, sizeof value);
    return true;
  }
};

// Guarded by snapshot_lock.
Statistics snapshot;
u64 epoch = 0;

Statistics snapshot_now() {
  LockGuard guard(snapshot_lock);
  if (epoch == 0) {
    collect_statistics(snapshot);
    epoch = 1;
  }
  return snapshot;
}

int renew_epoch(const Request& r) {
  u64 ignored;
  if (r.fresh != nullptr && !r.take(ignored)) return EINVAL;
  snapshot_now();
  LockGuard guard(snapshot_lock);
  if (r.fresh != nullptr) {
    collect_statistics(snapshot);
    ++epoch;
  }
  return r.give(epoch);
}

// jemalloc's active: pages in use by live and cached blocks.
usize active_bytes(const Statistics& s) { return s.committed_bytes + s.mapped_bytes - s.dirty_bytes - s.clean_bytes; }
usize small_bytes(const Statistics& s) {
  usize bytes = 0;
  for (SizeClass c = 1; c <= kLastSmallClass; ++c) bytes += s.classes[c].live_blocks * s.classes[c].block_bytes;
  return bytes;
}
usize pages(usize bytes) { return bytes / os::page_bytes(); }

template <usize Value(const Statistics&)>
int statistic(const Request& r) {
  return r.read_only(Value(snapshot_now()));
}
template <usize Value(const Statistics&)>
int arena_statistic(const Request& r) {
  return is_arena(r.number) ? r.read_only(Value(snapshot_now())) : ENOENT;
}

usize allocated(const Statistics& s) { return s.live_bytes; }
usize metadata(const Statistics& s) { return s.metadata_bytes; }
usize charged(const Statistics& s) { return s.charged_bytes; }
usize retained(const Statistics& s) { return s.clean_bytes; }
usize zero(const Statistics&) { return 0; }
usize active_pages(const Statistics& s) { return pages(active_bytes(s)); }
usize dirty_pages(const Statistics& s) { return pages(s.dirty_bytes); }
usize large_live(const Statistics& s) { return s.live_bytes - small_bytes(s); }

template <auto Value>
int constant(const Request& r) {
  return r.read_only(Value);
}

// A text must be an object with an address to be a template argument.
constexpr char kVersion[] = "freestone " FREESTONE_VERSION;
constexpr char kNothing[] = "";
constexpr char kDisabled[] = "disabled";
constexpr char kDefault[] = "default";
constexpr char kFalse[] = "false";
template <const char* Text>
int text(const Request& r) {
  return r.read_only(Text);
}

int background(const Request& r) {
  const bool before = background_runs();
  if (r.fresh != nullptr) {
    bool wanted;
    if (!r.take(wanted)) return EINVAL;
    options.background_purge = wanted;
    apply_upkeep_options();
    if (wanted && !background_runs()) return EAGAIN;
  }
  return r.give(before);
}

int background_count(const Request& r) { return r.read_only(usize{background_runs() ? 1U : 0U}); }

// There is at most one; other numbers are refused.
int background_limit(const Request& r) {
  usize wanted = 1;
  if (r.fresh != nullptr && (!r.take(wanted) || wanted != 1)) return EINVAL;
  return r.give(usize{1});
}

int flush_thread(const Request& r) {
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  if (this_thread.cache_offset != 0) flush_all(thread_cache());
  return 0;
}

// Every thread belongs to the one arena.
int thread_arena(const Request& r) {
  unsigned wanted = 0;
  if (r.fresh != nullptr && (!r.take(wanted) || wanted != 0)) return EINVAL;
  return r.give(0U);
}

int thread_cache_enabled(const Request& r) {
  bool wanted = true;
  if (r.fresh != nullptr && (!r.take(wanted) || !wanted)) return EINVAL;
  return r.give(true);
}


int purge_arena(const Request& r) {
  if (!is_arena(r.number)) return EFAULT;
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  trim(0);
  return 0;
}

int decay_arena(const Request& r) {
  if (!is_arena(r.number)) return EFAULT;
  if (r.fresh != nullptr || r.old != nullptr) return EPERM;
  decay_spans();
  return 0;
}

// Milliseconds of jemalloc's decay, after which all is gone, are taken as twice our half-life; -1 is never.
int decay_time(const Request& r) {
  const auto before = static_cast<Signed>(options.dirty_decay_ms * 2);
  if (r.fresh != nullptr) {
    Signed wanted;
    if (!r.take(wanted) || wanted < -1) return EINVAL;
    options.dirty_decay_ms = wanted < 0 ? 3'600'000 : min_of<u64>(static_cast<u64>(wanted) / 2, 3'600'000);
  }
  return r.give(before);
}
int arena_decay_time(const Request& r) { return is_arena(r.number) ? decay_time(r) : EFAULT; }
// There is no second stage of decay.
int muzzy_decay_time(const Request& r) {
  Signed wanted;
  if (r.fresh != nullptr && !r.take(wanted)) return EINVAL;
  return r.give(Signed{0});
}

int thread_count(const Request& r) { return is_arena(r.number) ? r.read_only(static_cast<unsigned>(snapshot_now().threads)) : ENOENT; }
int page_bytes(const Request& r) { return r.read_only(os::page_bytes()); }

constexpr unsigned kBins = kLastSmallClass - kFirstClass + 1;
bool is_bin(usize number) { return number < kBins; }
const ClassInfo& bin(const Request& r) { return class_info(static_cast<SizeClass>(r.number) + kFirstClass); }
int bin_size(const Request& r) { return is_bin(r.number) ? r.read_only(bin(r).bytes - kHeldBackBytes) : ENOENT; }
int bin_blocks(const Request& r) { return is_bin(r.number) ? r.read_only(bin(r).blocks) : ENOENT; }
int bin_slab(const Request& r) {
  return is_bin(r.number) ? r.read_only(units_to_bytes(bin(r).units)) : ENOENT;
}
constexpr unsigned kLargeClasses = kLastClass - kLastSmallClass;
int large_size(const Request& r) {
  return r.number < kLargeClasses ? r.read_only(class_info(kLastSmallClass + 1 + static_cast<SizeClass>(r.number)).bytes - kHeldBackBytes) : ENOENT;
}

int profiler_active(const Request& r) {
  const bool before = freestone_prof_is_active() != 0;
  if (r.fresh != nullptr) {
    bool wanted;
    if (!r.take(wanted)) return EINVAL;
    wanted ? freestone_prof_start() : freestone_prof_stop();
  }
  return r.give(before);
}

// The new value is the file's name; without one it goes where the option prof_file says.
int dump_profile(const Request& r) {
  if (r.old != nullptr) return EPERM;
  const char* path = nullptr;
  if (r.fresh != nullptr && !r.take(path)) return EINVAL;
  return freestone_prof_dump(path);
}

struct Node {
  const char* name;
  int (*answer)(const Request& request);
};

constexpr Node kNodes[] = {
    {"version", text<kVersion>},
    {"epoch", renew_epoch},
    {"background_thread", background},
    {"max_background_threads", background_limit},
    {"config.cache_oblivious", constant<false>},
    {"config.debug", constant<false>},
    {"config.fill", constant<false>},
    {"config.lazy_lock", constant<false>},
    {"config.malloc_conf", text<kNothing>},
    {"config.opt_safety_checks", constant<false>},
    {"config.prof", constant<true>},
    {"config.prof_libgcc", constant<false>},
    {"config.prof_libunwind", constant<false>},
    {"config.stats", constant<true>},
    {"config.utrace", constant<false>},
    {"config.xmalloc", constant<false>},
    {"opt.abort", constant<false>},
    {"opt.abort_conf", constant<false>},
    {"opt.background_thread", background},
    {"opt.max_background_threads", background_limit},
    {"opt.dirty_decay_ms", decay_time},
    {"opt.muzzy_decay_ms", muzzy_decay_time},
    {"opt.dss", text<kDisabled>},
    {"opt.junk", text<kFalse>},
    {"opt.lg_tcache_max", constant<usize{17}>},
    {"opt.metadata_thp", text<kDisabled>},
    {"opt.narenas", constant<1U>},
    {"opt.percpu_arena", text<kDisabled>},
    {"opt.prof", constant<false>},
    {"opt.retain", constant<true>},
    {"opt.stats_print", constant<false>},
    {"opt.tcache", constant<true>},
    {"opt.tcache_max", constant<kCachedBytesMax>},
    {"opt.thp", text<kDefault>},
    {"opt.utrace", constant<false>},
    {"opt.xmalloc", constant<false>},
    {"opt.zero", constant<false>},
    {"thread.arena", thread_arena},
    {"thread.idle", flush_thread},
    {"thread.tcache.enabled", thread_cache_enabled},
    {"thread.tcache.flush", flush_thread},
    {"prof.active", profiler_active},
    {"prof.dump", dump_profile},
    {"arena.#.initialized", constant<true>},
    {"arena.#.purge", purge_arena},
    {"arena.#.decay", decay_arena},
    {"arena.#.dirty_decay_ms", arena_decay_time},
    {"arena.#.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.narenas", constant<1U>},
    {"arenas.dirty_decay_ms", decay_time},
    {"arenas.muzzy_decay_ms", muzzy_decay_time},
    {"arenas.quantum", constant<kGranule>},
    {"arenas.page", page_bytes},
    {"arenas.tcache_max", constant<kCachedBytesMax>},
    {"arenas.nbins", constant<kBins>},
    {"arenas.nhbins", constant<unsigned{kLastClass}>},
    {"arenas.bin.#.size", bin_size},
    {"arenas.bin.#.nregs", bin_blocks},
    {"arenas.bin.#.slab_size", bin_slab},
    {"arenas.nlextents", constant<kLargeClasses>},
    {"arenas.lextent.#.size", large_size},
    {"stats.allocated", statistic<allocated>},
    {"stats.active", statistic<active_bytes>},
    {"stats.metadata", statistic<metadata>},
    {"stats.metadata_thp", statistic<zero>},
    {"stats.resident", statistic<charged>},
    {"stats.mapped", statistic<charged>},
    {"stats.retained", statistic<retained>},
    {"stats.zero_reallocs", statistic<zero>},
    {"stats.background_thread.num_threads", background_count},
    {"stats.arenas.#.nthreads", thread_count},
    {"stats.arenas.#.pactive", arena_statistic<active_pages>},
    {"stats.arenas.#.pdirty", arena_statistic<dirty_pages>},
    {"stats.arenas.#.pmuzzy", arena_statistic<zero>},
    {"stats.arenas.#.mapped", arena_statistic<charged>},
    {"stats.arenas.#.retained", arena_statistic<retained>},
    {"stats.arenas.#.resident", arena_statistic<charged>},
    {"stats.arenas.#.base", arena_statistic<metadata>},
    {"stats.arenas.#.internal", arena_statistic<zero>},
    {"stats.arenas.#.small.allocated", arena_statistic<small_bytes>},
    {"stats.arenas.#.large.allocated", arena_statistic<large_live>},
};
constexpr usize kNodeCount = sizeof kNodes / sizeof kNodes[0];

usize component_length(const char* name) { return std::strcspn(name, "."); }

usize count_components(const char* name) {
  usize count = 1;
  for (; *name != '\0'; ++name) count += *name == '.' ? 1 : 0;
  return count;
}

// Whether the name is the pattern's, with decimal numbers for "#", which go to their places in `numbers`.
bool matches(const char* pattern, const char* name, usize (&numbers)[kComponents]) {
  for (usize k = 0; k < kComponents; ++k) {
    const usize wanted = component_length(pattern);
    const usize given = component_length(name);
    if (*pattern == '#') {
      if (given == 0 || given > 9) return false;
      usize number = 0;
      for (usize i = 0; i < given; ++i) {
        if (name[i] < '0' || name[i] > '9') return false;
        number = number * 10 + static_cast<usize>(name[i] - '0');
      }
      numbers[k] = number;
    } else if (wanted != given || std::memcmp(pattern, name, wanted) != 0) {
      return false;
    }
    pattern += wanted;
    name += given;
    if (*pattern == '\0' || *name == '\0') return *pattern == *name;
    ++pattern;
    ++name;
  }
  return false;
}

usize number_position(const char* pattern) {
  usize position = 0;
  for (; *pattern != '\0' && *pattern != '#'; ++pattern) position += *pattern == '.' ? 1 : 0;
  return *pattern == '#' ? position : 0;
}

const Node* find_node(const char* name, usize (&numbers)[kComponents]) {
  for (const Node& node : kNodes) {
    if (matches(node.name, name, numbers)) return &node;
  }
  return nullptr;
}

int answer(const Node& node, usize number, void* old, size_t* old_bytes, const void* fresh, size_t fresh_bytes) {
  return node.answer({number, old, old_bytes, fresh, fresh_bytes});
}

struct Writer {
  void (*write)(void* context, const char* text);
  void* context;

  // jemalloc's callback takes strings that end in a zero.
  static void put(void* self, const char* text, usize length) {
    const auto* writer = static_cast<const Writer*>(self);
    char piece[512];
    while (length > 0) {
      const usize taken = min_of(length, sizeof piece - 1);
      std::memcpy(piece, text, taken);
      piece[taken] = '\0';
      writer->write(writer->context, piece);
      text += taken;
      length -= taken;
    }
  }
};

void write_to_stderr(void*, const char* text) { os::write_stderr(text, std::strlen(text)); }

}  // namespace

extern "C" {

FREESTONE_EXPORT ABI(int, mallctl(const char* name, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes)) {
  if (ensure_started() != Mode::active) return EAGAIN;
  usize numbers[kComponents] = {};
  const Node* node = find_node(name, numbers);
  return node != nullptr ? answer(*node, numbers[number_position(node->name)], old, old_bytes, fresh, fresh_bytes) : ENOENT;
}

// The position in the table, and the numbers in the places that they have in the name: a caller may exchange them.
FREESTONE_EXPORT ABI(int, mallctlnametomib(const char* name, size_t* mib, size_t* length)) {
  usize numbers[kComponents] = {};
  const Node* node = find_node(name, numbers);
  if (node == nullptr) return ENOENT;
  const usize count = count_components(name);
  if (*length < count) return EINVAL;
  for (usize k = 1; k < count; ++k) mib[k] = numbers[k];
  mib[0] = static_cast<usize>(node - kNodes);
  *length = count;
  return 0;
}

FREESTONE_EXPORT ABI(int, mallctlbymib(const size_t* mib, size_t length, void* old, size_t* old_bytes, void* fresh, size_t fresh_bytes)) {
  if (ensure_started() != Mode::active) return EAGAIN;
  if (length == 0 || mib[0] >= kNodeCount) return ENOENT;
  const Node& node = kNodes[mib[0]];
  if (length != count_components(node.name)) return ENOENT;
  const usize position = number_position(node.name);
  return answer(node, position != 0 ? mib[position] : 0, old, old_bytes, fresh, fresh_bytes);
}

// "J" among the options asks for JSON: jemalloc's six totals under its own names, and ours in full.
FREESTONE_EXPORT ABI(void, malloc_stats_print(void (*write)(void*, const char*), void* context, const char* wishes)) {
  Writer writer{write != nullptr ? write : write_to_stderr, context};
  if (wishes == nullptr || std::strchr(wishes, 'J') == nullptr) return print_statistics(Format::text, Writer::put, &writer);
  Statistics s;
  collect_statistics(s);
  Message head("{\"jemalloc\":{\"version\":\"");
  head << kVersion << "\",\"stats\":{\"allocated\":" << u64{s.live_bytes} << ",\"active\":" << u64{active_bytes(s)} << ",\"metadata\":" << u64{s.metadata_bytes}
       << ",\"resident\":" << u64{s.charged_bytes} << ",\"mapped\":" << u64{s.charged_bytes} << ",\"retained\":" << u64{s.clean_bytes} << "}},\"freestone\":";
  Writer::put(&writer, head.data(), head.length());
  print_statistics_json(s, Writer::put, &writer);
  Writer::put(&writer, "}\n", 2);
}

}  // extern "C"
